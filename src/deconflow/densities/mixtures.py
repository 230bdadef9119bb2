r"""Gaussian mixtures as densities: to be trained, to be evaluated only, and of conditionals."""

import math

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from deconflow.densities.base import Density
from deconflow.densities.networks import MaskedNetwork
from deconflow.mixtures import GaussianMixture
from deconflow.randomness import own_generator
from deconflow.torch_modes import lend_generator

LARGEST_LOG_SD = 5.0
#: Memory that :class:`FixedMixture` uses for intermediate results, in numbers.
NUMBERS = 2**22


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
    def spread(cls, dim: int, components: int) -> "MixtureDensity":
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


class ConditionalMixture(Density):
    r"""The product of one-dimensional Gaussian mixtures, each given the dimensions before it.

    .. math:: p(v) = \prod_d \sum_k \pi_k(v_{<d}) \, N(v_d; \mu_k(v_{<d}), \sigma_k^2(v_{<d}))

    Parameters
    ----------
    dim
        Number of dimensions.
    components
        Number of Gaussians in each conditional.
    **network
        As for :class:`~deconflow.densities.networks.MaskedNetwork`.

    References
    ----------
    Uria, Murray, Larochelle (2013), "RNADE", https://arxiv.org/abs/1306.0186
    """

    def __init__(self, dim: int, components: int, **network) -> None:  # noqa: ANN003
        super().__init__()
        self.dim = dim
        self.network = MaskedNetwork(dim, 3 * components, **network)
        # Equal components would stay equal: start with means side by side.
        with torch.no_grad():
            _, means, _ = self.network.output.bias.view(dim, 3, components).unbind(1)
            means += torch.linspace(-1, 1, components) if components > 1 else 0.0

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        shape, v = v.shape[:-1], torch.atleast_2d(v)
        log_weights, means, log_sds = self._conditionals(v)
        white = (v.mT.unsqueeze(-2) - means) * torch.exp(-log_sds)
        log_parts = log_weights - log_sds - 0.5 * white.square()
        log_p = torch.logsumexp(log_parts, -2).sum(-2) - 0.5 * self.dim * math.log(2 * math.pi)
        return log_p.reshape(shape)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, one dimension after another."""
        like = self.network.output.bias
        v = torch.zeros(n, self.dim, dtype=like.dtype, device=like.device)
        own = own_generator(like.device)
        for d in self.network.places.argsort():
            log_weights, means, log_sds = (part[d].mT for part in self._conditionals(v))
            part = torch.multinomial(log_weights.exp(), 1, generator=own)
            white = torch.empty_like(v[:, :1]).normal_(generator=own)
            v[:, d] = (means.gather(1, part) + log_sds.gather(1, part).exp() * white)[:, 0]
        return v

    def _conditionals(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, means and log standard deviations, each ``(..., dim, components, N)``.

        Rows are last, because there are more of them than components: sums over a short last axis
        are slow.
        """
        rows_last = self.network(v).flatten(-2).mT.contiguous()
        logits, means, raw = rows_last.unflatten(-2, (self.dim, 3, -1)).unbind(-3)
        bound = LARGEST_LOG_SD
        log_sds = 2 * bound * torch.sigmoid(raw * (2 / bound)) - bound  # bound * tanh(raw / bound)
        return torch.log_softmax(logits, -2), means, log_sds
