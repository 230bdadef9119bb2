r"""Posteriors ``q(v | w, noise)``, weighted draws from them, and Gaussian mixtures as posteriors.

Sampling-importance-resampling gives exact posteriors in the limit, from any proposal. Mixtures are
one per row for many draws, or the exact posteriors of a mixture.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from deconflow.densities import Density, MixtureDensity
from deconflow.mixtures import GaussianMixture
from deconflow.noise import HALF_LOG_2PI, ByRow, GaussianNoise
from deconflow.observations import Observations
from deconflow.randomness import own_generator

NEGLIGIBLE = 1e-300


class PosteriorModel(nn.Module, ABC):
    """A distribution of the true value given the observation, for every row at once.

    Attributes
    ----------
    differentiable : bool
        Whether draws are differentiable functions of the parameters, as the bounds need;
        forward KL does without.
    """

    differentiable: bool = True

    @abstractmethod
    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``v`` of shape ``(k, N, D)``, with its log density ``(k, N)``."""

    @abstractmethod
    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``v`` with shape ``(k, N, D)``."""


@dataclass(frozen=True)
class WeightedDraws:
    r"""Proposals ``v`` of shape ``(K, N, D)`` with log weights ``(K, N)``.

    .. math:: \log \omega = \log p(v) + \log p(w | v) - \log q(v | w)
    """

    v: Tensor
    log_weights: Tensor

    @property
    def normalised(self) -> Tensor:
        """Weights ``(K, N)`` that sum to one over the draws of each row."""
        return torch.softmax(self.log_weights, 0)

    def log_marginal(self) -> Tensor:
        """Importance-weighted estimate of ``log p(w)``, ``(N,)``; a lower bound in expectation."""
        return torch.logsumexp(self.log_weights, 0) - math.log(len(self.v))

    def effective_sample_size(self) -> Tensor:
        """Return ``1 / sum omega^2`` of the normalised weights, ``(N,)``, between 1 and K."""
        return 1 / self.normalised.square().sum(0)

    def mean(self) -> Tensor:
        """Posterior means ``(N, D)``."""
        return (self.normalised.unsqueeze(-1) * self.v).sum(0)

    def covariance(self) -> Tensor:
        """Posterior covariances ``(N, D, D)``."""
        offset = self.v - self.mean()
        return torch.einsum("kn,kni,knj->nij", self.normalised, offset, offset)

    def split(self, counts: list[int]) -> "list[WeightedDraws]":
        """Split the draws into sets of these many draws per row."""
        return [*map(WeightedDraws, self.v.split(counts), self.log_weights.split(counts))]

    def choose(self, n: int) -> Tensor:
        """Draw the numbers ``(N, n)`` of proposals, by weight."""
        return torch.multinomial(
            self.normalised.mT, n, replacement=True, generator=own_generator(self.v.device)
        )

    def resample(self, n: int) -> Tensor:
        """Draw ``(n, N, D)`` from the proposals by weight."""
        choice = self.choose(n).mT
        return torch.gather(self.v, 0, choice.unsqueeze(-1).expand(-1, -1, self.v.shape[-1]))


def weigh(density: Density, posterior: PosteriorModel, data: Observations, k: int) -> WeightedDraws:
    """Draw ``k`` proposals per row from ``posterior`` and weigh them by the truth.

    References
    ----------
    Rubin (1988), "Using the SIR algorithm to simulate posterior distributions"
    """
    v, log_q = posterior.sample(data, k)
    return WeightedDraws(v, density.log_prob(v) + data.log_likelihood(v) - log_q)


@dataclass(frozen=True)
class RowMixtures(ByRow):
    r"""The distributions :math:`\sum_c \pi_{ic} N(m_{ic}, L_{ic} L_{ic}^T)` of rows ``i``.

    Attributes
    ----------
    log_weights : Tensor
        ``(N, C)``, minus infinity for components that a row does without.
    means, factors : Tensor
        ``(N, C, D)`` and ``(N, C, D, D)``.
    whiteners, centres : Tensor
        The inverse factors, and these times the means, as ``(N, C D, D)`` and ``(N, C D)``, so
        that all components of a row are whitened by one product.
    log_dets : Tensor
        ``(N, C)`` log-determinants of the factors.
    """

    log_weights: Tensor
    means: Tensor
    factors: Tensor
    whiteners: Tensor
    centres: Tensor
    log_dets: Tensor

    @classmethod
    def of(cls, mixtures: GaussianMixture) -> "RowMixtures":
        """Take a batch of mixtures in closed form, one per row."""
        scale = np.trace(mixtures.covariances, axis1=-2, axis2=-1)[..., None, None] / mixtures.dim
        # a floor where rounding has left too little
        factors = np.linalg.cholesky(mixtures.covariances + 1e-9 * scale * np.eye(mixtures.dim))
        log_dets = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
        parts = (
            np.log(np.maximum(mixtures.weights, NEGLIGIBLE)),
            mixtures.means,
            factors,
            np.linalg.inv(factors),
            log_dets,
        )
        return cls.from_factors(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    @classmethod
    def from_factors(
        cls,
        log_weights: Tensor,
        means: Tensor,
        factors: Tensor,
        whiteners: Tensor,
        log_dets: Tensor,
    ) -> "RowMixtures":
        """Make them of factors ``(N or 1, C, D, D)`` of the covariances, and their inverses."""
        n = len(means)
        centres = (whiteners @ means.unsqueeze(-1)).squeeze(-1)
        return cls(
            log_weights,
            means,
            factors.expand(n, -1, -1, -1),
            whiteners.flatten(1, 2).expand(n, -1, -1),
            centres.flatten(1),
            log_dets.expand(n, -1),
        )

    def mixed_with(self, other: "RowMixtures", share: float) -> "RowMixtures":
        """Mix row by row with the mixtures of ``other``, which get ``share``."""
        ours = replace(self, log_weights=self.log_weights + math.log1p(-share))
        theirs = replace(other, log_weights=other.log_weights + math.log(share))
        return RowMixtures(
            *(
                torch.cat(pair, 1)
                for pair in zip(vars(ours).values(), vars(theirs).values(), strict=True)
            )
        )

    def sample(self, k: int, stretch: Tensor | float | None = None) -> Tensor:
        """Draw ``(k, N, D)``; ``stretch`` widens the components, ``(k, N, 1)`` or a number.

        Draws carry no derivative: the choice of a component has none.
        """
        with torch.no_grad():
            n, _, dim = self.means.shape
            own, chances = own_generator(self.means.device), self.log_weights.exp()
            which = torch.multinomial(chances, k, replacement=True, generator=own).mT  # (k, N)
            row = torch.arange(n, device=which.device).expand_as(which)
            means = self.means[row, which]
            # The two differ in their order in memory, hence in the numbers drawn: seeds keep fits.
            white = torch.empty_like(means) if stretch is None else means.new_empty(k, n, dim)
            white.normal_(generator=own).mul_(1.0 if stretch is None else stretch)
            return means + (self.factors[row, which] @ white.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``v`` with shape ``(k, N, D)``, to the last digit."""
        whiteners = self.whiteners.unflatten(1, (self.means.shape[1], -1))
        white = torch.einsum("ncij,kncj->knci", whiteners, v.unsqueeze(2) - self.means)
        log_parts = self.log_weights - self.log_dets - 0.5 * white.square().sum(-1)
        return torch.logsumexp(log_parts, -1) - 0.5 * v.shape[-1] * math.log(2 * math.pi)

    def stretched_log_prob(self, v: Tensor, *stretches: float) -> tuple[Tensor, ...]:
        """Log densities ``(k, N)`` of ``v`` with the components widened by each stretch.

        Quicker than :meth:`log_prob`, and exact enough for values and means of about one.
        """
        n, count, dim = self.means.shape
        white = self.whiteners @ v.permute(1, 2, 0) - self.centres.unsqueeze(-1)
        squares = white.reshape(n, count, dim, -1).square().sum(2)  # (N, C, k)
        base = self.log_weights - self.log_dets - 0.5 * dim * math.log(2 * math.pi)
        return tuple(
            torch.logsumexp(base.unsqueeze(-1) - 0.5 * squares / stretch**2, 1).mT
            - dim * math.log(stretch)
            for stretch in stretches
        )


class MixtureExact(PosteriorModel):
    r"""The posterior of :math:`v \sim \sum_k \pi_k N(m_k, A_k A_k^T)` given :math:`w = R v + n`.

    It is a mixture again. With :math:`S = L L^T`, :math:`B = L^{-1} R A` and
    :math:`P = I + B^T B = C C^T`, the component's :math:`u = A^{-1} (v - m)` has

    .. math:: u | w \sim N(P^{-1} B^T L^{-1} (w - R m), \; P^{-1}), \quad
              \pi_k(w) \propto \pi_k \, N(w; R m, \, R A A^T R^T + S).

    It is computed from the density's parameters at every call, and has none of its own. Missing
    values and projections are in the formula.

    Parameters
    ----------
    density
        The mixture; it is shared, not copied. Draws and their densities are constants, so that a
        bound's gradient is that of :math:`\log p(v)` at posterior draws: the paper's fit of a
        mixture "with samples from the exact posterior".
    """

    differentiable = False

    def __init__(self, density: MixtureDensity) -> None:
        super().__init__()
        self._shared = (density,)  # a tuple: no module of its own, so that nothing is saved twice

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities."""
        mixtures = self._row_mixtures(data)
        v = mixtures.sample(k)
        return v, mixtures.log_prob(v).detach()

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        return self._row_mixtures(data).log_prob(v).detach()

    def log_marginal(self, data: Observations) -> Tensor:
        """Log density ``log p(w)`` of what each row measured, ``(N,)``, in closed form."""
        return torch.logsumexp(self._log_joint(data), -1)

    def _row_mixtures(self, data: Observations) -> RowMixtures:
        """Return the mixture of each row."""
        log_weights = torch.log_softmax(self._log_joint(data), -1)
        density = self._shared[0]
        A, L = density.factors(), data.noise.cholesky().unsqueeze(1)
        RA = data.projections().unsqueeze(1) @ A
        u, C = standard_posterior(L, RA, self._offsets(data).unsqueeze(-1))
        whiteners = C.mT @ torch.linalg.inv(A)
        roots = torch.linalg.solve_triangular(C, A.mT, upper=False).mT
        return RowMixtures.from_factors(
            log_weights,
            density.means + (A @ u).squeeze(-1),
            roots,
            whiteners,
            log_pivots(A) - log_pivots(C),
        )

    def _log_joint(self, data: Observations) -> Tensor:
        """Log of ``pi_k N(w; R m_k, T_k)`` over the observed values, ``(N, K)``."""
        if not isinstance(data.noise, GaussianNoise):
            raise ValueError(
                "Expected Gaussian noise, under which a mixture has an exact posterior; "
                f"got {type(data.noise).__name__}. Use a recognition flow or a mixture network."
            )
        density = self._shared[0]
        RA = data.projections().unsqueeze(1) @ density.factors()
        factor = torch.linalg.cholesky(RA @ RA.mT + data.noise.covariance().unsqueeze(1))
        offsets = self._offsets(data).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, offsets, upper=False).squeeze(-1)
        per_value = -0.5 * white.square() - factor.diagonal(dim1=-2, dim2=-1).log() - HALF_LOG_2PI
        if data.observed is not None:
            per_value = torch.where(data.observed.unsqueeze(1), per_value, 0.0)
        return torch.log_softmax(density.log_weights, 0) + per_value.sum(-1)

    def _offsets(self, data: Observations) -> Tensor:
        """Return ``w - R m_k``, ``(N, K, M)``, zero where missing."""
        return data.residual(self._shared[0].means.unsqueeze(1)).transpose(0, 1)


def standard_posterior(L: Tensor, R: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    r"""Posterior of :math:`u \sim N(0, I)` given :math:`y = R u + n` with noise of factor ``L``.

    Returns its mean, as a column, and the Cholesky factor of its precision.
    """
    B = torch.linalg.solve_triangular(L, R, upper=False)
    C = torch.linalg.cholesky(torch.eye(B.shape[-1], dtype=B.dtype, device=B.device) + B.mT @ B)
    return torch.cholesky_solve(B.mT @ torch.linalg.solve_triangular(L, y, upper=False), C), C


def log_pivots(factor: Tensor) -> Tensor:
    """Log-determinant of triangular factors."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
