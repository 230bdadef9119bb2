r"""Gaussian mixtures of many components, to be asked and not trained."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.mixtures import GaussianMixture
from deconflow.randomness import own_generator

NUMBERS = 2**22
"""Memory on the way, in numbers."""


class FixedMixture(Density):
    r"""The density :math:`p(v) = \sum_k \pi_k \, N(v; m_k, L_k L_k^T)` of an average of mixtures.

    All components whiten a point by one product :math:`L_k^{-1} v`, in pieces of bounded memory,
    so that thousands of components are cheap.

    Parameters
    ----------
    mixture
        What to ask.
    dtype
        The precision of the answers.

    Examples
    --------
    >>> import numpy as np
    >>> one = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    >>> FixedMixture(one, torch.float64).log_prob(torch.zeros(2, dtype=torch.float64))
    tensor(-1.8379, dtype=torch.float64)
    """

    def __init__(self, mixture: GaussianMixture, dtype: torch.dtype) -> None:
        super().__init__()
        self.dim = mixture.dim
        means, factors = torch.tensor(mixture.means), torch.tensor(mixture.covariances)
        factors = torch.linalg.cholesky(factors)
        eye = torch.eye(self.dim, dtype=factors.dtype).expand_as(factors)
        whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
        log_dets = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_weights = torch.tensor(mixture.weights).log()
        offsets = log_weights - log_dets - 0.5 * self.dim * math.log(2 * math.pi)
        self.whiteners = nn.Parameter(whiteners.flatten(0, 1))
        self.centres = nn.Parameter((whiteners @ means.unsqueeze(-1)).flatten())
        self.offsets, self.weights = nn.Parameter(offsets), nn.Parameter(log_weights.exp())
        self.means, self.factors = nn.Parameter(means), nn.Parameter(factors)
        self.to(dtype=dtype).requires_grad_(False)

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        points = v.reshape(-1, self.dim)
        pieces = points.split(max(1, NUMBERS // len(self.centres)))
        answer = torch.cat([self._log_prob(piece) for piece in pieces])
        return answer.view(v.shape[:-1])

    def _log_prob(self, v: Tensor) -> Tensor:
        white = torch.addmm(-self.centres, v, self.whiteners.mT)
        squares = white.view(len(v), -1, self.dim).square().sum(-1)
        return torch.logsumexp(self.offsets - 0.5 * squares, -1)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        own = own_generator(self.means.device)
        which = torch.multinomial(self.weights, n, replacement=True, generator=own)
        white = torch.empty_like(self.means[which]).normal_(generator=own)
        return self.means[which] + (self.factors[which] @ white.unsqueeze(-1)).squeeze(-1)
