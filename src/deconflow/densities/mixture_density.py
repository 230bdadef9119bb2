r"""Gaussian mixtures as trainable densities."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from deconflow.densities.base import Density
from deconflow.randomness import lend_generator, own_generator


class MixtureDensity(Density):
    r"""The density :math:`p(v) = \sum_k \pi_k \, N(v; m_k, L_k L_k^T)`.

    Parameters
    ----------
    weights, means, covariances
        Tensors of shape ``(K,)``, ``(K, D)`` and ``(K, D, D)`` to start from.

    Examples
    --------
    >>> mixture = MixtureDensity(torch.ones(1), torch.zeros(1, 2), torch.eye(2)[None])
    >>> mixture.log_prob(torch.zeros(2))
    tensor(-1.8379, grad_fn=...)
    """

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        super().__init__()
        self.dim = means.shape[-1]
        factors = torch.linalg.cholesky(covariances)
        self.log_weights = nn.Parameter(weights.log())
        self.means = nn.Parameter(means.clone())
        self.lower = nn.Parameter(factors.tril(-1))
        self.log_diagonals = nn.Parameter(factors.diagonal(dim1=-2, dim2=-1).log())

    @classmethod
    def spread(cls, dim: int, components: int) -> MixtureDensity:
        """Make a start for standardised data: unit Gaussians at random places."""
        means = torch.zeros(components, dim)
        if components > 1:
            means.normal_(generator=own_generator())
        covariances = torch.eye(dim).expand(components, dim, dim)
        return cls(torch.full_like(means[:, 0], 1 / components), means, covariances)

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        return self.distribution().log_prob(v)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        with lend_generator():
            return self.distribution().sample((n,))

    def distribution(self) -> MixtureSameFamily:
        """Return the torch distribution of the current parameters."""
        parts = MultivariateNormal(self.means, scale_tril=self.factors(), validate_args=False)
        choice = Categorical(logits=self.log_weights, validate_args=False)
        return MixtureSameFamily(choice, parts, validate_args=False)

    def factors(self) -> Tensor:
        """Cholesky factors of the covariances, ``(K, D, D)``."""
        return self.lower.tril(-1) + torch.diag_embed(self.log_diagonals.exp())
