r"""Noise of any law: a function from per-row parameters to a torch distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    constraints,
)

from deconflow.checks import as_tensor
from deconflow.noise.base import Noise, Rows, flatten_cholesky
from deconflow.noise.gaussian import psd_cholesky

Law = Callable[..., Distribution]


@dataclass(frozen=True, repr=False)
class LawNoise(Noise):
    """Noise whose law is a torch distribution; make one with :func:`from_law`.

    Attributes
    ----------
    law : callable
        Takes the parameters by keyword and returns a distribution over ``(N, D)``: batch
        shape ``(N, D)`` for independent values, or batch ``(N,)`` and event ``(D,)``.
    parameters : dict of Tensor
        One row an observation, or one row in all if shared.
    unit : Tensor
        ``(D,)``: this is the law of the distribution's variable divided by ``unit``.
    observed : Tensor or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    law: Law
    parameters: Mapping[str, Tensor]
    shared: bool
    n_rows: int | None
    unit: Tensor
    observed: Tensor | None = None
    _made: list[Distribution] = field(default_factory=list, init=False, compare=False)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values a row."""
        return len(self.unit)

    @property
    def distribution(self) -> Distribution:
        """The torch distribution of these rows, made at the first use."""
        if not self._made:
            self._made.append(self.law(**self.parameters))
        return self._made[0]

    @property
    def independent(self) -> bool:
        """Whether the values of a row have independent noise."""
        return len(self.distribution.event_shape) == 0

    def log_prob(self, residual: Tensor) -> Tensor:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        log_p = self.distribution.log_prob(residual * self.unit)
        if not self.independent:
            return log_p + self.unit.log().sum()
        log_p = log_p + self.unit.log()
        if self.observed is not None:
            log_p = torch.where(self.observed, log_p, 0.0)
        return log_p.sum(-1)

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, D)``."""
        if self.shared:
            return self.distribution.sample((k, len(self))).squeeze(2) / self.unit
        return self.distribution.sample((k,)) / self.unit

    def mean(self) -> Tensor:
        """Means ``(N or 1, D)``, zero where the law has none."""
        mean = self.distribution.mean / self.unit
        return torch.where(mean.isfinite(), mean, 0.0)

    def covariance(self) -> Tensor:
        """Covariances ``(N or 1, D, D)``; finite also for laws without a variance."""
        covariance = _covariance(self.distribution) / torch.outer(self.unit, self.unit)
        if covariance.isfinite().all():
            return covariance
        return torch.where(covariance.isfinite(), covariance, self._central_width_squared())

    def variance(self) -> Tensor:
        """Variances ``(N or 1, D)``; finite also for laws without one."""
        return self.covariance().diagonal(dim1=-2, dim2=-1)

    def cholesky(self) -> Tensor:
        """Cholesky factors ``(N or 1, D, D)`` of the covariances."""
        return psd_cholesky(self.covariance())

    def features(self) -> Tensor:
        """Flattened Cholesky factors of the covariances, then the means."""
        return torch.cat([flatten_cholesky(self.cholesky()), self.mean()], -1)

    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """Return the support's ends if every value's support is an interval, else None."""
        support = self.distribution.support
        if not isinstance(support, constraints.interval):
            return None
        low, high = torch.as_tensor(support.lower_bound), torch.as_tensor(support.upper_bound)
        return low / self.unit, high / self.unit

    def restrict(self, observed: Tensor) -> LawNoise:
        """Return the law of the observed values; needs independent values."""
        if not self.independent:
            raise ValueError(
                "Expected noise whose values are independent, because w has missing values; "
                f"got a law over whole rows ({type(self.distribution).__name__})."
            )
        return replace(self, observed=observed)

    def divide(self, scale: Tensor) -> Self:
        """Return the law of ``n / scale``."""
        return replace(self, unit=self.unit * scale.to(self.unit))

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        moved = {
            name: value.to(dtype=dtype if value.is_floating_point() else None, device=device)
            for name, value in self.parameters.items()
        }
        unit = self.unit.to(dtype=dtype, device=device)
        observed = self.observed if self.observed is None else self.observed.to(device=device)
        return replace(self, parameters=moved, unit=unit, observed=observed)

    def _take(self, rows: Rows, n_rows: int) -> Self:
        observed = None if self.observed is None else self.observed[rows]
        if self.shared:
            return replace(self, n_rows=n_rows, observed=observed)
        taken = {name: value[rows] for name, value in self.parameters.items()}
        return replace(self, parameters=taken, n_rows=n_rows, observed=observed)

    def _central_width_squared(self, draws: int = 400) -> Tensor:
        """Diagonal ``((q84 - q16) / 2)^2`` from draws, for laws without a variance."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sample = self.distribution.sample((draws,)) / self.unit
        ordered = sample.sort(0).values
        low, high = ordered[int(0.16 * draws)], ordered[int(0.84 * draws)]
        return torch.diag_embed(((high - low) / 2).square())


def from_law(law: Law, *, shared: bool = False, **parameters: ArrayLike | Tensor) -> LawNoise:
    """Make noise of any law.

    Parameters
    ----------
    law
        A function that takes the parameters by keyword, as tensors with one row an
        observation, and returns a ``torch.distributions.Distribution`` with batch shape
        ``(N, D)``, or batch shape ``(N,)`` and event shape ``(D,)``. To be saved or sent to
        another process it must be a named function, not a lambda.
    shared
        Whether the parameters have one row that holds for all observations.
    **parameters
        Arrays with one row an observation (one row in all if shared).

    Examples
    --------
    >>> from torch.distributions import Gumbel
    >>> def gumbel(scale):
    ...     return Gumbel(0.0 * scale, scale)
    >>> from_law(gumbel, scale=[[0.1, 0.2]] * 7)
    LawNoise(rows=7, dim=2, shared=False)
    """
    tensors = {name: as_tensor(value, name) for name, value in parameters.items()}
    for name, value in tensors.items():
        _refuse_bad_rows(~value.reshape(len(value), -1).isfinite().all(-1), "finite", name, shared)
    try:
        distribution = law(**tensors)
    except Exception as error:
        raise ValueError(
            f"Expected a law that takes {list(tensors)}; got the error: {error}"
        ) from error
    if not isinstance(distribution, Distribution):
        raise TypeError(
            f"Expected a law that returns a torch distribution; got {type(distribution)}."
        )
    shape = distribution.batch_shape + distribution.event_shape
    if len(shape) != 2 or len(distribution.event_shape) > 1 or (shared and shape[0] != 1):
        raise ValueError(
            f"Expected a law over shape {'(1, D)' if shared else '(N, D)'}; "
            f"got batch shape {tuple(distribution.batch_shape)} "
            f"and event shape {tuple(distribution.event_shape)}."
        )
    unit = torch.ones(shape[-1], dtype=torch.float64)
    return LawNoise(law, tensors, shared, None if shared else shape[0], unit)


def _refuse_bad_rows(bad: Tensor, expected: str, name: str, shared: bool) -> None:
    if bad.any():
        where = "" if shared else f" in row {int(bad.nonzero()[0])}"
        raise ValueError(f"Expected {expected} values of {name} as noise; got another{where}.")


def _covariance(distribution: Distribution) -> Tensor:
    if isinstance(distribution, MixtureSameFamily) and isinstance(
        distribution.component_distribution, MultivariateNormal
    ):
        return _mixture_covariance(distribution)
    if isinstance(distribution, MultivariateNormal | LowRankMultivariateNormal):
        return distribution.covariance_matrix
    variance = distribution.variance
    return torch.diag_embed(torch.where(variance.isnan(), math.inf, variance))


def _mixture_covariance(mixture: MixtureSameFamily) -> Tensor:
    weights = mixture.mixture_distribution.probs[..., None]
    parts: Any = mixture.component_distribution
    offset = parts.mean - mixture.mean.unsqueeze(-2)
    spread = torch.einsum("...ki,...kj->...ij", weights * offset, offset)
    return spread + (weights[..., None] * parts.covariance_matrix).sum(-3)
