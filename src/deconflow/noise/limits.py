r"""Limits: values that were not detected, or saturated, beside others with Gaussian noise."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri_exp

from deconflow._types import Array
from deconflow.checks import (
    array_namespace,
    as_array,
    as_parameter,
    diagonals,
    first_bad,
    like,
    place,
    special_of,
)
from deconflow.noise.base import Noise, Reading, RowIndex
from deconflow.noise.coerce import as_noise, rows_of_law
from deconflow.noise.gaussian_noise import GaussianNoise
from deconflow.noise.limit_parts import LimitMixture
from deconflow.randomness import normal, own_rng, uniform

#: How far beyond a limit the truth may lie, in units of the spread of its column; see
#: :class:`LimitedNoise`. Twice as far changes nothing.
REACH = 24.0
#: What starts, units and networks take for the mean and the width of the distance between a limit
#: and the truth, in the same units: so wide that a limit counts little beside a value.
USUAL_SHIFT, USUAL_WIDTH = 2.0, 4.0


@dataclass(frozen=True, repr=False)
class LimitedNoise(Noise):
    r"""Gaussian noise, where of some values only a limit is known; make it with :func:`limited`.

    For an upper limit ``w`` the likelihood is :math:`P(v + n < w) = \Phi((w - v) / s)`, for a
    lower one :math:`P(v + n > w)`. This is a probability, not a density of noise: :meth:`log_prob`
    has it as it is. Everything else takes the distance between limit and truth for one that is not
    known but for its size.

    Attributes
    ----------
    sd : array
        Standard deviations ``(N, D)``.
    flags : array
        ``(N, D)``: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
    reach : array
        ``(N, D)``: how far beyond a limit the truth may lie, where the likelihood is written as a
        mixture of Gaussians.
    spread : array
        ``(D,)``: what is the spread of each column.
    unit : array
        ``(D,)``: this is the noise of the data divided by ``unit``.
    observed : array or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    sd: Any
    flags: Any = field()
    reach: Any
    spread: Any
    unit: Any
    observed: Any = None
    by_row = ("sd", "flags", "reach")
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
        sd = array_namespace(self.sd).where(values, self.sd, 1.0)
        return GaussianNoise(sd, shared=False, n_rows=len(self), observed=values)

    def without_limits(self) -> GaussianNoise:
        """Return the noise of the measurements that would have been made."""
        return GaussianNoise(self.sd, shared=False, n_rows=len(self), observed=self.observed)

    def log_prob(self, residual: Any) -> Any:
        """Log-likelihood of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp, flags = array_namespace(residual), like(self.flags, residual)
        sd, unit = like(self.sd, residual), like(self.unit, residual)
        tiny = xp.finfo(residual.dtype).smallest_normal
        with np.errstate(over="ignore"):
            beyond = -flags * residual / xp.where(sd > tiny, sd, tiny)
        limits = flags != 0
        log_p = special_of(xp).log_ndtr(xp.where(limits, beyond, 0.0)) + xp.log(unit)
        log_p = xp.sum(xp.where(limits, log_p, 0.0), axis=-1)
        return self._measured.log_prob(residual) + log_p

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``: of a limit, some distance of the usual size.

        For the training of networks, which see limits wherever they may be. How limits came about
        nobody knows, so that these are no rows to hold real ones against.
        """
        shape = (k, *self.sd.shape)
        white = normal(shape, self.sd)
        far = uniform(shape, self.sd) * USUAL_WIDTH * self.spread
        return white * self.sd - self.flags * far

    def mean(self) -> Any:
        """Zero for what was measured, and a usual distance for limits; ``(N, D)``."""
        return -self.flags * USUAL_SHIFT * self.spread

    def variance(self) -> Any:
        """Variances ``(N, D)``, those of limits so large that they count little."""
        return self.sd**2 + self.flags**2 * (USUAL_WIDTH * self.spread) ** 2

    def features(self) -> Any:
        """Return those of the same noise without limits; :class:`Observations` adds the flags."""
        return self.without_limits().features()

    def as_mixture(self) -> LimitMixture:
        """Write the likelihood as a mixture of Gaussians."""
        arrays = (self.sd, self.flags, self.reach, self.unit)
        return LimitMixture(*(as_array(each) for each in arrays))

    def restrict(self, observed: Any) -> "LimitedNoise":
        """Return the law of the observed values; the others get an idle unit variance."""
        sd, flags = np.where(observed, self.sd, 1.0), np.where(observed, self.flags, 0.0)
        return replace(self, sd=sd, flags=flags, observed=observed)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        sd = self.sd / scale
        if self.observed is not None:  # keep the idle ones at one
            sd = np.where(self.observed, sd, 1.0)
        lengths = {"reach": self.reach / scale, "spread": self.spread / scale}
        return replace(self, sd=sd, unit=self.unit * scale, **lengths)

    def floor(self, sd: float) -> "LimitedNoise":
        """Return the law with variances larger by ``sd^2``."""
        return replace(self, sd=np.sqrt(self.sd**2 + sd**2))

    def for_truths(self, w: Array, clean: Array) -> "LimitedNoise":
        """Let limits ``w`` reach as far as truths that are known, ``(K, D)`` as rows see them."""
        middle, spread = _middle_and_spread(clean)
        return self._reaching(w, middle, spread)

    def _reaching(self, w: Array, middle: Array, spread: Array) -> "LimitedNoise":
        return replace(self, spread=spread, reach=REACH * spread + np.abs(w - middle))

    def complete(self, w: Array, clean: Array) -> Any:
        """Draw the measurements that limits ``w`` stand for, given the truth as rows see it.

        Each is one of ``N(clean, sd^2)`` beyond its limit. All arrays are ``(N, D)``.
        """
        limits, sd = self.flags != 0, self.sd
        side = np.where(limits, self.flags, 1.0)
        uniform = np.maximum(own_rng().random(w.shape), 1e-16)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(sd > 0, side * (clean - w) / sd, 0.0)
        drawn = clean - side * sd * ndtri_exp(np.log(uniform) + log_ndtr(room))
        beyond = np.where(side > 0, np.maximum(drawn, w), np.minimum(drawn, w))
        return np.where(limits, beyond, w)


class Limited(Reading):
    """Noise with limits, before the values are known."""

    def __init__(self, noise: Any, flags: Array) -> None:
        self.noise, self.flags = noise, flags
        self.n_rows = len(flags) if flags.ndim else None

    def _take(self, rows: RowIndex) -> "Limited":
        return Limited(rows_of_law(self.noise, rows, self.n_rows), self.flags[rows])

    def read(self, w: Array) -> tuple[Array, Noise]:
        """Return the same values, and their noise; without limits that which was given."""
        seen = ~np.isnan(w)
        _check_flags(self.flags, w)
        n_rows, dim = w.shape
        law = as_noise(self.noise, n_rows, dim, None if seen.all() else seen)
        if not self.flags.any():
            return w, self.noise
        sd = np.array(np.broadcast_to(_independent_errors(law), w.shape))
        values = np.where(self.flags == 0, w, np.nan)
        middle, spread = _middle_and_spread(values, w, sd)
        unit = np.ones(w.shape[1])
        made = LimitedNoise(sd, self.flags, np.ones_like(sd), unit, unit)
        return w, made._reaching(np.nan_to_num(w), middle, spread)


def limited(noise: Any, flags: ArrayLike) -> Limited:
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


def _check_flags(flags: Array, w: Array) -> None:
    if flags.shape != w.shape:
        raise ValueError(
            f"Expected limits of shape {tuple(w.shape)}, as w; got {tuple(flags.shape)}."
        )
    position = first_bad(~((flags == 0) | (np.abs(flags) == 1)))
    if position is not None:
        raise ValueError(
            "Expected limits of -1 (upper limit), 0 (measured) or 1 (lower limit); "
            f"got {flags[position]:g} at {place(position)}."
        )
    position = first_bad((flags != 0) & np.isnan(w))
    if position is not None:
        raise ValueError(
            f"Expected a number in w where there is a limit; got NaN at {place(position)}. "
            "Put the limit there, or 0 in limits."
        )


def _independent_errors(law: Noise) -> Any:
    """Return standard deviations ``(N or 1, D)``, or raise for noise that has more to it."""
    if isinstance(law, GaussianNoise):
        covariance = law.covariance()
        if law.diagonal or (covariance == diagonals(law.variance())).all():
            return law.factor if law.diagonal else np.sqrt(law.variance())
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
