r"""Limits: values that were not detected, or saturated, beside others with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri_exp
from torch import Tensor

from deconflow.checks import as_parameter, first_bad, place
from deconflow.noise.base import Noise, Reading, RowIndex
from deconflow.noise.catalogue import Array, as_array
from deconflow.noise.coerce import as_noise, rows_of_law
from deconflow.noise.gaussian_noise import GaussianNoise
from deconflow.noise.limit_parts import LimitMixture
from deconflow.randomness import own_generator

REACH = 24.0
"""How far beyond a limit the truth may lie, in units of the spread of its column; see
:class:`LimitedNoise`. Twice as far changes nothing."""
USUAL_SHIFT, USUAL_WIDTH = 2.0, 4.0
"""What starts, units and networks take for the mean and the width of the distance between a limit
and the truth, in the same units: so wide that a limit counts little beside a value."""


@dataclass(frozen=True, repr=False)
class LimitedNoise(Noise):
    r"""Gaussian noise, where of some values only a limit is known; make it with :func:`limited`.

    For an upper limit ``w`` the likelihood is :math:`P(v + n < w) = \Phi((w - v) / s)`, for a
    lower one :math:`P(v + n > w)`. This is a probability, not a density of noise: :meth:`log_prob`
    has it as it is. Everything else takes the distance between limit and truth for one that is not
    known but for its size.

    Attributes
    ----------
    sd : Tensor
        Standard deviations ``(N, D)``.
    flags : Tensor
        ``(N, D)``: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
    reach : Tensor
        ``(N, D)``: how far beyond a limit the truth may lie, where the likelihood is written as a
        mixture of Gaussians.
    spread : Tensor
        ``(D,)``: what is the spread of each column.
    unit : Tensor
        ``(D,)``: this is the noise of the data divided by ``unit``.
    observed : Tensor or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    sd: Tensor
    flags: Tensor = field()
    reach: Tensor
    spread: Tensor
    unit: Tensor
    observed: Tensor | None = None
    shared = False
    independent = True
    without_waves = "limits"

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.sd.shape[1]

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.sd)

    @cached_property
    def _measured(self) -> GaussianNoise:
        """The noise of what is no limit."""
        values = self.flags == 0
        if self.observed is not None:
            values = values & self.observed
        return GaussianNoise(self.sd, shared=False, n_rows=len(self)).restrict(values)

    def without_limits(self) -> GaussianNoise:
        """Return the noise of the measurements that would have been made."""
        noise = GaussianNoise(self.sd, shared=False, n_rows=len(self))
        return noise if self.observed is None else noise.restrict(self.observed)

    def log_prob(self, residual: Tensor) -> Tensor:
        """Log-likelihood of residuals ``(..., N, D)``, as ``(..., N)``."""
        limits = self.flags != 0
        beyond = -self.flags * residual / self.sd.clamp_min(torch.finfo(self.sd.dtype).tiny)
        of_limits = torch.special.log_ndtr(torch.where(limits, beyond, 0.0)) + self.unit.log()
        return self._measured.log_prob(residual) + torch.where(limits, of_limits, 0.0).sum(-1)

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, D)``: of a limit, some distance of the usual size.

        For the training of networks, which see limits wherever they may be. How limits came about
        nobody knows, so that these are no rows to hold real ones against.
        """
        shape, generator = (k, *self.sd.shape), own_generator(self.sd.device)
        options: dict[str, Any] = {"dtype": self.sd.dtype, "device": self.sd.device}
        white = torch.randn(shape, generator=generator, **options)
        far = torch.rand(shape, generator=generator, **options) * USUAL_WIDTH * self.spread
        return white * self.sd - self.flags * far

    def mean(self) -> Tensor:
        """Zero for what was measured, and a usual distance for limits; ``(N, D)``."""
        return -self.flags * USUAL_SHIFT * self.spread

    def variance(self) -> Tensor:
        """Variances ``(N, D)``, those of limits so large that they count little."""
        return self.sd.square() + self.flags.abs() * (USUAL_WIDTH * self.spread).square()

    def features(self) -> Tensor:
        """Return those of the same noise without limits; :class:`Observations` adds the flags."""
        return self.without_limits().features()

    def as_mixture(self) -> LimitMixture:
        """Write the likelihood as a mixture of Gaussians."""
        arrays = (self.sd, self.flags, self.reach, self.unit)
        return LimitMixture(*(as_array(each) for each in arrays))

    def restrict(self, observed: Tensor) -> LimitedNoise:
        """Return the law of the observed values; the others get an idle unit variance."""
        sd, flags = torch.where(observed, self.sd, 1.0), torch.where(observed, self.flags, 0.0)
        return replace(self, sd=sd, flags=flags, observed=observed)

    def divide(self, scale: Tensor) -> Self:
        """Return the law of ``n / scale``."""
        scale = scale.to(self.sd)
        sd = self.sd / scale
        if self.observed is not None:  # keep the idle ones at one
            sd = torch.where(self.observed, sd, 1.0)
        lengths = {"reach": self.reach / scale, "spread": self.spread / scale}
        return replace(self, sd=sd, unit=self.unit * scale, **lengths)

    def floor(self, sd: float) -> LimitedNoise:
        """Return the law with variances larger by ``sd^2``."""
        return replace(self, sd=(self.sd.square() + sd**2).sqrt())

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        names = ("sd", "flags", "reach", "spread", "unit")
        moved = {name: getattr(self, name).to(dtype=dtype, device=device) for name in names}
        observed = None if self.observed is None else self.observed.to(device=device)
        return replace(self, **moved, observed=observed)

    def _take(self, rows: RowIndex, n_rows: int) -> Self:
        taken = {name: getattr(self, name)[rows] for name in ("sd", "flags", "reach")}
        return replace(
            self, **taken, observed=None if self.observed is None else self.observed[rows]
        )

    def for_truths(self, w: Tensor, clean: Tensor) -> LimitedNoise:
        """Let limits ``w`` reach as far as truths that are known, ``(K, D)`` as rows see them."""
        middle, spread = _middle_and_spread(as_array(clean))
        return self._reaching(w, torch.from_numpy(middle), torch.from_numpy(spread))

    def _reaching(self, w: Tensor, middle: Tensor, spread: Tensor) -> LimitedNoise:
        return replace(self, spread=spread, reach=REACH * spread + (w - middle).abs())

    def complete(self, w: Tensor, clean: Tensor) -> Tensor:
        """Draw the measurements that limits ``w`` stand for, given the truth as rows see it.

        Each is one of ``N(clean, sd^2)`` beyond its limit. All arrays are ``(N, D)``.
        """
        limits, sd = as_array(self.flags) != 0, as_array(self.sd)
        side = np.where(limits, as_array(self.flags), 1.0)
        uniform = torch.rand(w.shape, generator=own_generator(), dtype=torch.float64)
        limit, centre = as_array(w), as_array(clean)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(sd > 0, side * (centre - limit) / sd, 0.0)
        log_share = np.log(as_array(uniform.clamp_min(1e-16)))
        drawn = centre - side * sd * ndtri_exp(log_share + log_ndtr(room))
        beyond = np.where(side > 0, np.maximum(drawn, limit), np.minimum(drawn, limit))
        return torch.where(torch.from_numpy(limits), torch.from_numpy(beyond).to(w), w)


class Limited(Reading):
    """Noise with limits, before the values are known."""

    def __init__(self, noise: Any, flags: Tensor) -> None:
        self.noise, self.flags = noise, flags
        self.n_rows = len(flags) if flags.dim() else None

    def _take(self, rows: RowIndex) -> Limited:
        return Limited(rows_of_law(self.noise, rows, self.n_rows), self.flags[rows])

    def read(self, w: Tensor) -> tuple[Tensor, Noise]:
        """Return the same values, and their noise; without limits that which was given."""
        seen = ~w.isnan()
        _check_flags(self.flags, w)
        n_rows, dim = w.shape
        law = as_noise(self.noise, n_rows, dim, None if seen.all() else seen)
        if not self.flags.any():
            return w, self.noise
        sd = _independent_errors(law).expand_as(w)
        values = np.where(as_array(self.flags) == 0, as_array(w), np.nan)
        middle, spread = _middle_and_spread(values, as_array(w), as_array(sd))
        unit = torch.ones(w.shape[1], dtype=w.dtype)
        made = LimitedNoise(sd.clone(), self.flags, torch.ones_like(sd), unit, unit)
        return w, made._reaching(w.nan_to_num(), *map(torch.from_numpy, (middle, spread)))


def limited(noise: Any, flags: ArrayLike | Tensor) -> Limited:
    """Say of which values only a limit is known, beside their noise.

    Parameters
    ----------
    noise
        Gaussian, with independent values: standard deviations ``(D,)`` or ``(N, D)``, or
        :func:`gaussian`. That of a limit is the error that its measurement would have had.
    flags
        ``(N, D)``: -1 where what would have been measured lies below the number in ``w``, 1 where
        it lies above, 0 for a measured value.

    Examples
    --------
    >>> from deconflow import XDGMM
    >>> v = np.random.default_rng(0).normal(size=(2000, 1))
    >>> w, flags = np.maximum(v, -0.5), np.where(v < -0.5, -1, 0)  # 31 % were not detected
    >>> XDGMM(1).fit(w, noise=limited(0.01, flags)).means_.round(1)
    array([[-0.]])
    """
    if isinstance(noise, Reading):
        raise TypeError(
            "Expected Gaussian noise of independent values for limits; got "
            f"{type(noise).__name__}. Drop the limits, or give standard deviations."
        )
    noise = as_parameter(noise, "noise") if hasattr(noise, "columns") else noise
    return Limited(noise, as_parameter(flags, "limits"))


def _check_flags(flags: Tensor, w: Tensor) -> None:
    if flags.shape != w.shape:
        raise ValueError(
            f"Expected limits of shape {tuple(w.shape)}, as w; got {tuple(flags.shape)}."
        )
    position = first_bad(~((flags == 0) | (flags.abs() == 1)))
    if position is not None:
        raise ValueError(
            "Expected limits of -1 (upper limit), 0 (measured) or 1 (lower limit); "
            f"got {flags[position]:g} at {place(position)}."
        )
    position = first_bad((flags != 0) & w.isnan())
    if position is not None:
        raise ValueError(
            f"Expected a number in w where there is a limit; got NaN at {place(position)}. "
            "Put the limit there, or 0 in limits."
        )


def _independent_errors(law: Noise) -> Tensor:
    """Return standard deviations ``(N or 1, D)``, or raise for noise that has more to it."""
    if isinstance(law, GaussianNoise):
        covariance = law.covariance()
        if law.diagonal or (covariance == torch.diag_embed(law.variance())).all():
            return law.variance().sqrt() if not law.diagonal else law.factor
    got = "correlated noise" if isinstance(law, GaussianNoise) else type(law).__name__
    raise ValueError(
        f"Expected Gaussian noise of independent values for limits; got {got}. Give standard "
        "deviations, or drop the limits."
    )


def _middle_and_spread(values: Array, *others: Array) -> tuple[Array, Array]:
    """Median and spread of each column, by the first arrays ``(N, D)`` that have one.

    ``values`` may be NaN. Outliers do not count, where there is anything beside them.
    """
    arrays = (values, *others)
    found = [_of_column([array[:, d] for array in arrays]) for d in range(values.shape[1])]
    middle, spread = np.array(found).T
    return middle.copy(), spread.copy()


def _of_column(arrays: list[Array]) -> tuple[float, float]:
    finite = [array[np.isfinite(array)] for array in arrays]
    middle = next((float(np.median(array)) for array in finite if len(array)), 0.0)
    for array in finite:
        if len(array):
            low, high = np.quantile(array, [0.05, 0.95])
            for spread in ((high - low) / 3.3, array.std()):
                if spread > 0:
                    return middle, float(spread)
    return middle, max((float(np.abs(a).max()) for a in finite if len(a)), default=1.0) or 1.0
