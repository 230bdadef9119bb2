"""The one abstraction for densities ``p(v)``, simple ones, mixtures, and those made of others."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from deconflow.densities.layers import MaskedNetwork
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, Pairs
from deconflow.randomness import own_generator
from deconflow.torch_modes import lend_generator
from deconflow.truth import Bounds

LARGEST_LOG_SD = 5.0
#: Memory that :class:`FixedMixture` uses for intermediate results, in numbers.
NUMBERS = 2**22


class Density(nn.Module, ABC):
    """A density ``p(v)`` over ``dim`` values, with parameters that can be trained.

    Attributes
    ----------
    dim : int
        Number of dimensions.
    """

    dim: int

    @abstractmethod
    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``v``, ``(..., dim)``, as ``(...)``."""

    @abstractmethod
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""


class StandardNormal(Density):
    """The standard normal density."""

    zeros: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("zeros", torch.zeros(dim))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        return -0.5 * v.square().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        return self.zeros.new_empty(n, self.dim).normal_(generator=own_generator(self.zeros.device))


class Ensemble(Density):
    r"""The average :math:`p(v) = \frac{1}{J} \sum_j p_j(v)` of several densities.

    Parameters
    ----------
    members
        Densities over the same space.
    """

    shares: Tensor

    def __init__(self, members: list[Density]) -> None:
        super().__init__()
        self.dim = members[0].dim
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", torch.full((len(members),), 1 / len(members)))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        log_p = torch.stack([member.log_prob(v) for member in self.densities()], -1)
        return torch.logsumexp(log_p + self.shares.to(log_p).log(), -1)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, each row from a random member."""
        choice = torch.multinomial(
            self.shares, n, replacement=True, generator=own_generator(self.shares.device)
        )
        counts = torch.bincount(choice, minlength=len(self.members)).tolist()
        drawn = torch.cat(
            [
                member.sample(count)
                for member, count in zip(self.densities(), counts, strict=True)
                if count > 0
            ]
        )
        return drawn[choice.argsort().argsort()]

    def densities(self) -> list[Density]:
        """Return the members."""
        return [cast(Density, member) for member in self.members]


class Folded(Density):
    r"""The density :math:`p(v) = \sum_s g(R_s v)` within bounds, zero outside.

    Parameters
    ----------
    density
        The density ``g`` that was fitted to mirrored rows.
    bounds
        Where to fold, in the density's units.
    """

    def __init__(self, density: Density, bounds: Bounds) -> None:
        super().__init__()
        self.density, self.bounds, self.dim = density, bounds, density.dim

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``, minus infinity outside."""
        each = torch.stack([self.density.log_prob(image) for image in self.images(v)])
        return torch.where(self.inside(v), torch.logsumexp(each, 0), -torch.inf)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        return self.fold(self.density.sample(n))

    def images(self, v: Tensor) -> list[Tensor]:
        """Return the points that fold to ``v``, itself first."""
        return [
            torch.from_numpy(shift).to(v) + torch.from_numpy(sign).to(v) * v
            for sign, shift in self.bounds.reflections()
        ]

    def fold(self, v: Tensor) -> Tensor:
        """Fold points back."""
        folded = self.bounds.fold(v.detach().cpu().double().numpy())
        return torch.from_numpy(folded).to(v).clamp(*self._ends(v))

    def inside(self, v: Tensor) -> Tensor:
        """Return which points are within the bounds."""
        low, high = self._ends(v)
        return ((v >= low) & (v <= high)).all(-1)

    def _ends(self, like: Tensor) -> list[Tensor]:
        return [torch.from_numpy(end).to(like) for end in (self.bounds.lower, self.bounds.upper)]


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
        weights = torch.full_like(means[:, 0], 1 / components)
        return cls(weights, means, torch.eye(dim).expand(components, dim, dim))

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
        return MixtureSameFamily(
            Categorical(logits=self.log_weights, validate_args=False), parts, validate_args=False
        )

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
        self.means = nn.Parameter(torch.tensor(mixture.means))
        self.factors = nn.Parameter(torch.linalg.cholesky(torch.tensor(mixture.covariances)))
        whiteners = torch.linalg.inv(self.factors)
        log_weights = torch.tensor(mixture.weights).log()
        log_dets = self.factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        offsets = log_weights - log_dets - 0.5 * self.dim * math.log(2 * math.pi)
        self.whiteners = nn.Parameter(whiteners.flatten(0, 1))
        self.centres = nn.Parameter((whiteners @ self.means.unsqueeze(-1)).flatten())
        self.offsets, self.weights = nn.Parameter(offsets), nn.Parameter(log_weights.exp())
        self.to(dtype=dtype).requires_grad_(False)

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        pieces = v.reshape(-1, self.dim).split(max(1, NUMBERS // len(self.centres)))
        return torch.cat([self._log_prob(piece) for piece in pieces]).view(v.shape[:-1])

    def _log_prob(self, v: Tensor) -> Tensor:
        white = torch.addmm(-self.centres, v, self.whiteners.mT).view(len(v), -1, self.dim)
        return torch.logsumexp(self.offsets - 0.5 * white.square().sum(-1), -1)

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
        As for :class:`~deconflow.densities.layers.MaskedNetwork`.

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


@contextmanager
def without_dropout(*models: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off inside the block: the result is used as a weight."""
    were = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for model, was in zip(models, were, strict=True):
            model.train(was)


def simulate(density: Density, data: Observations) -> Pairs:
    r"""Draw :math:`v \sim p(v)` for each row, and measure it with the row's own noise."""
    with without_dropout(density):
        v = density.sample(len(data)).to(data.w)
    return Pairs(data.remeasure(v), v)
