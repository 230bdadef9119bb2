r"""Noise of any law: a function from per-row parameters to a torch distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Distribution, Independent, Transform, biject_to

from deconflow.checks import SMALLEST, as_parameter, first_bad, place
from deconflow.guests import as_guest
from deconflow.noise import fourier
from deconflow.noise.base import KeptDraws, Noise, RowIndex, flatten_cholesky
from deconflow.noise.catalogue import CATALOGUE, Array, Complex, as_array
from deconflow.noise.gaussian_noise import psd_cholesky
from deconflow.noise.gaussian_parts import NoiseMixture
from deconflow.noise.law_fits import independent_mixture, joint_mixture
from deconflow.noise.moments import finite_covariance, finite_mean
from deconflow.noise.support import (
    check_support,
    is_interval,
    is_real,
    log_prob_inside,
    support_of,
)
from deconflow.randomness import lend_generator

Law = Callable[..., Distribution]
NARROWEST = 1e-15
"""Widths whose inverse squares single precision can add up."""


@dataclass(frozen=True, repr=False)
class LawNoise(Noise):
    """Noise whose law is a torch distribution; make one with :func:`from_law`.

    Attributes
    ----------
    law : callable
        Takes the parameters by keyword and returns a distribution over ``(N, D)``: batch
        shape ``(N, D)`` for independent values, or batch ``(N,)`` and event ``(D,)``.
    parameters : dict of Tensor
        One row per observation, or one row in all if shared.
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
    kept: KeptDraws | None = None
    _made: dict[str, Any] = field(default_factory=dict, compare=False)
    """What has been made of law and parameters, for all noises that share them."""

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return len(self.unit)

    @property
    def distribution(self) -> Distribution:
        """The torch distribution of these rows, made at the first use."""
        if "distribution" not in self._made:
            made = self.law(**self.parameters)
            while isinstance(made, Independent):  # its values are looked at one by one
                made = made.base_dist
            # Residuals outside the support are no error: their log density is minus infinity.
            made._validate_args = False
            self._made["distribution"] = made
        return self._made["distribution"]

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the values of a row have independent noise."""
        return len(self.distribution.event_shape) == 0

    def log_prob(self, residual: Tensor) -> Tensor:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        rounding = 50 * torch.finfo(residual.dtype).eps * self.unit
        log_p = log_prob_inside(self.distribution, residual * self.unit, rounding)
        if not self.independent:
            return log_p + self.unit.log().sum()
        log_p = log_p + self.unit.log()
        if self.observed is not None:
            log_p = torch.where(self.observed, log_p, 0.0)
        return log_p.sum(-1)

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, D)``."""
        shape = torch.Size((k, len(self)) if self.shared else (k,))
        with lend_generator():
            drawn = self.distribution.sample(shape)
        return (drawn.squeeze(2) if self.shared else drawn) / self.unit

    def from_uniform(self, share: Array) -> Array | None:
        """Make noise ``(K, N, D)`` of as many uniform numbers; None for a law not in the table."""
        known = CATALOGUE.get(type(self.distribution))
        if known is None:
            return None
        return known.quantile(self.distribution, share) / as_array(self.unit)

    def mean(self) -> Tensor:
        """Means ``(N or 1, D)``, zero where the law has none."""
        return finite_mean(self.distribution) / self.unit

    def covariance(self) -> Tensor:
        """Covariances ``(N or 1, D, D)``; finite also for laws without a variance."""
        return finite_covariance(self.distribution) / torch.outer(self.unit, self.unit)

    def variance(self) -> Tensor:
        """Variances ``(N or 1, D)``; finite also for laws without one."""
        return self.covariance().diagonal(dim1=-2, dim2=-1)

    def cholesky(self) -> Tensor:
        """Cholesky factors ``(N or 1, D, D)`` of the covariances."""
        return psd_cholesky(self.covariance())

    def features(self) -> Tensor:
        """Flattened Cholesky factors of the covariances, then the means."""
        return torch.cat([flatten_cholesky(self.cholesky()), self.mean()], -1)

    def as_mixture(self) -> NoiseMixture:
        """Write the law as a mixture of Gaussians."""
        if "mixture" not in self._made:
            self._made["mixture"] = (
                independent_mixture(self.distribution, lambda rows: self[rows].distribution)
                if self.independent
                else joint_mixture(self.distribution, shared=self.shared)
            )
        return self._made["mixture"].divide(as_array(self.unit))

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        return fourier.of_values(self.distribution, t / as_array(self.unit))

    def characteristic(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T)`` of rows."""
        if self.independent:
            return super().characteristic(t)
        return fourier.of_rows(self.distribution, t / as_array(self.unit))

    def support_map(self) -> tuple[Transform, Tensor, Tensor] | None:
        """Return how to reach the support: the map, the unit, and where it is of the noise's size.

        A half line is reached by an exponential, which is shifted to the scale of the noise.
        """
        support = support_of(self.distribution)
        if is_real(support):
            return None
        start = torch.zeros_like(self.unit)
        if not is_interval(support):
            start = finite_covariance(self.distribution).diagonal(dim1=-2, dim2=-1).log() / 2
        return biject_to(support), self.unit, start

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
        return replace(self, unit=self.unit * scale.to(self.unit), kept=None)

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device; an error if single precision does not hold it."""
        if dtype == torch.float32 and self.unit.dtype == torch.float64:
            self._refuse_single_precision()
        moved = {
            name: value.to(dtype=dtype if value.is_floating_point() else None, device=device)
            for name, value in self.parameters.items()
        }
        unit = self.unit.to(dtype=dtype, device=device)
        observed = self.observed if self.observed is None else self.observed.to(device=device)
        law = self.law.to(dtype, device) if hasattr(self.law, "to") else self.law
        return replace(self, law=law, parameters=moved, unit=unit, observed=observed, _made={})

    def _refuse_single_precision(self) -> None:
        """Raise for numbers in the data's units, or widths in the truth's, out of range."""
        tiny, huge = 1e-30, 1e30
        sizes = {f"{name} of the noise's law": value for name, value in self.parameters.items()}
        sizes["the spread of w"] = self.unit
        for name, size in ((name, value.abs()) for name, value in sizes.items()):
            position = first_bad((size > huge) | ((size > 0) & (size < tiny)))
            if position is not None:
                raise ValueError(
                    f"Expected {name} between {tiny:g} and {huge:g} in size, for single precision; "
                    f"got {size[position]:g}. Change the units of w and noise."
                )
        position = first_bad(self.variance() < NARROWEST**2)
        if position is not None:
            raise ValueError(
                f"Expected noise wider than {NARROWEST:g} times the spread of w, for single "
                f"precision; got less at {place(position)}. Use noise.gaussian, or 0.0."
            )

    def _take(self, rows: RowIndex, n_rows: int) -> Self:
        observed = None if self.observed is None else self.observed[rows]
        if self.shared:
            return replace(self, n_rows=n_rows, observed=observed)
        taken = {name: value[rows] for name, value in self.parameters.items()}
        kept = None if self.kept is None else self.kept[rows]
        return replace(
            self, parameters=taken, n_rows=n_rows, observed=observed, kept=kept, _made={}
        )


@as_guest()
def from_law(law: Law, *, shared: bool = False, **parameters: ArrayLike | Tensor) -> LawNoise:
    """Make noise of any law.

    Parameters
    ----------
    law
        A function that takes the parameters by keyword, as tensors with one row per
        observation, and returns a ``torch.distributions.Distribution`` with batch shape
        ``(N, D)``, or batch shape ``(N,)`` and event shape ``(D,)``. To be pickled or sent to
        another process it must be a named function, not a lambda.
    shared
        Whether the parameters have one row that holds for all observations.
    **parameters
        Arrays with one row per observation (one row in all if shared).

    Examples
    --------
    >>> from torch.distributions import Gumbel
    >>> def gumbel(scale):
    ...     return Gumbel(0.0 * scale, scale)
    >>> from_law(gumbel, scale=[[0.1, 0.2]] * 7)
    LawNoise(rows=7, dim=2, shared=False)
    """
    tensors = {name: as_parameter(value, name).clone() for name, value in parameters.items()}
    _check_rows(tensors, shared)
    try:
        distribution = law(**tensors)
    except Exception as error:
        raise ValueError(
            f"Expected a law that takes {list(tensors)}; got the error: {error}"
        ) from error
    if not isinstance(distribution, Distribution):
        raise TypeError(
            f"Expected a law that returns a torch distribution; got {type(distribution).__name__}."
        )
    check_support(distribution)
    shape = distribution.batch_shape + distribution.event_shape
    if len(shape) != 2 or len(distribution.event_shape) > 1 or (shared and shape[0] != 1):
        raise ValueError(
            f"Expected a law over shape {'(1, D)' if shared else '(N, D)'}; "
            f"got batch shape {tuple(distribution.batch_shape)} "
            f"and event shape {tuple(distribution.event_shape)}."
        )
    _refuse_narrow(distribution, [*tensors], shared)
    unit = torch.ones(shape[-1], dtype=torch.float64)
    return LawNoise(law, tensors, shared, None if shared else shape[0], unit)


def _refuse_narrow(distribution: Distribution, names: list[str], shared: bool) -> None:
    """Refuse laws so narrow that their squares vanish, by which torch makes NaN of densities."""
    try:
        variance = finite_covariance(distribution).diagonal(dim1=-2, dim2=-1)
    except ValueError:  # a law that does not know it may still be drawn from
        return
    position = first_bad(~(variance > 0))
    if position is not None:
        where = "" if shared else f" at {place(position)}"
        raise ValueError(
            f"Expected noise with a law ({', '.join(names)}) wider than {SMALLEST:g}; "
            f"got the variance {variance[position]:g}{where}. Change the units."
        )


def _check_rows(tensors: Mapping[str, Tensor], shared: bool) -> None:
    """Refuse parameters without rows, of different lengths, or not finite."""
    rows = 1 if shared else max((len(v) if v.dim() else 0 for v in tensors.values()), default=1)
    for name, value in tensors.items():
        if value.dim() == 0 or len(value) != rows or rows == 0:
            raise ValueError(
                f"Expected {name} with {rows or 'one or more'} rows, one for each observation; "
                f"got shape {tuple(value.shape)}."
            )
        position = first_bad(~value.reshape(rows, -1).isfinite().all(-1))
        if position is not None:
            where = "" if shared else f" in {place(position)}"
            raise ValueError(f"Expected finite values of {name} as noise; got NaN or inf{where}.")
