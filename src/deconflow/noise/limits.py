r"""Limits: values that were not detected, or saturated, beside others with Gaussian noise.

An upper limit ``w`` with error ``s`` says :math:`P(v + n < w) = \Phi((w - v) / s)` of the truth:
an edge of width ``s``, and then a plateau without end. A few Gaussians, narrow at the edge and ever
wider beyond it, add up to that as far as the plateau is needed.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from deconflow._types import Array, IntArray
from deconflow.checks import (
    array_namespace,
    as_array,
    as_parameter,
    diagonals,
    like,
    refuse_if,
    refuse_where,
    special_of,
)
from deconflow.noise.base import JointMixture, Noise, NoiseMixture, Reading, RowIndex
from deconflow.noise.coerce import as_noise, rows_of_law
from deconflow.noise.gaussian_noise import GaussianNoise
from deconflow.randomness import normal, own_rng, uniform

#: How far beyond a limit the truth may lie, in units of the spread of its column; see
#: :class:`LimitedNoise`. Twice as far changes nothing.
REACH = 24.0
#: What starts, units and networks take for the mean and the width of the distance between a limit
#: and the truth, in the same units: so wide that a limit counts little beside a value.
USUAL_SHIFT, USUAL_WIDTH = 2.0, 4.0


@dataclass(frozen=True)
class LimitShape:
    r"""Gaussians that add up to :math:`\Phi(x)` from ``x = -3`` to ``reach``, within 3 %.

    They were found by least squares of the relative error; :math:`\Phi(x) < .003` is exceeded by
    at most 3e-5 farther below.
    """

    reach: float
    weights: Array
    means: Array
    sds: Array


def _shape(reach: float, *numbers: tuple[float, ...]) -> LimitShape:
    return LimitShape(reach, *(np.array(each) for each in numbers))


_MANY = _shape(
    400.0,
    (0.8158, 1.486, 2.089, 2.827, 3.822, 5.172, 6.999, 9.466,
     12.8, 17.3, 23.38, 31.63, 43.04, 59.98, 90.61, 180.2),
    (0.4464, 1.706, 3.591, 6.151, 9.601, 14.26, 20.57, 29.1,
     40.63, 56.22, 77.28, 105.7, 144.3, 197.0, 272.6, 400.7),
    (1.027, 1.174, 1.488, 1.967, 2.637, 3.551, 4.788, 6.461,
     8.719, 11.77, 15.88, 21.44, 28.96, 39.15, 53.23, 75.42),
)  # fmt: skip
#: By how many values of a row are limits: the Gaussians of each multiply, and so get fewer.
SHAPES = {
    0: _shape(0.0, (1.0,), (0.0,), (1.0,)),
    1: _MANY,
    2: _MANY,
    3: _shape(
        60.0,
        (0.8066, 1.451, 2.029, 2.731, 3.676, 4.963, 6.749, 9.422, 14.31, 28.77),
        (0.4438, 1.679, 3.516, 5.997, 9.325, 13.8, 19.86, 28.14, 40.04, 60.4),
        (1.027, 1.171, 1.475, 1.939, 2.588, 3.472, 4.668, 6.289, 8.528, 12.09),
    ),
    4: _shape(
        20.0,
        (0.9556, 1.687, 2.428, 3.494, 5.436, 11.19),
        (0.5349, 1.981, 4.149, 7.209, 11.71, 19.55),
        (1.04, 1.238, 1.64, 2.26, 3.164, 4.622),
    ),
    5: _shape(
        8.0,
        (0.9358, 1.676, 2.651, 5.423),
        (0.5193, 1.926, 4.131, 7.951),
        (1.04, 1.221, 1.599, 2.272),
    ),
    6: _shape(
        5.0,
        (1.018, 1.948, 4.08),
        (0.5579, 2.113, 4.984),
        (1.047, 1.252, 1.728),
    ),
}


@dataclass(frozen=True)
class LimitMixture(NoiseMixture):
    """Independent values, each one Gaussian, or the shape of a limit.

    Edges are at least as wide as the plateau's reach asks for: with one or two limits in a row the
    400th part of it. So narrower errors of limits, or none, are blurred to that. Weights of a limit
    sum to the length of its plateau, not to one: what they weigh is the likelihood itself.

    Attributes
    ----------
    sd, flags, reach : array
        ``(N, M)``: standard deviations of the noise, -1 or 1 for limits, and how long the plateau
        of each must be.
    unit : array
        ``(M,)``: by what the values were divided; likelihoods are per unit of the data's.
    """

    sd: Array
    flags: Array
    reach: Array
    unit: Array

    @property
    def n_parts(self) -> int:
        """Number of Gaussians of the row that has most."""
        return max(map(_parts_of, np.unique((self.flags != 0).sum(1)).tolist()))

    @property
    def patterns(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """Which values of each row are limits, in bytes ``(N, P)``."""
        return np.packbits(self.flags != 0, axis=1)

    def take(
        self, rows: IntArray | slice | None = None, columns: IntArray | None = None
    ) -> JointMixture:
        """Mixtures of some rows and values; rows with fewer limits than others have empty parts."""
        of, among = (slice(None) if each is None else each for each in (columns, rows))
        sd, flags, reach = (x[among][:, of] for x in (self.sd, self.flags, self.reach))
        limits = flags != 0
        if not limits.any():
            return JointMixture(np.ones((1, 1)), None, np.square(sd)[:, None])
        found, which = np.unique(limits, axis=0, return_inverse=True)
        most = max(_parts_of(int(each.sum())) for each in found)
        shape = (len(sd), most, sd.shape[1])
        weights, means = np.zeros(shape[:2]), np.zeros(shape)
        variances = np.repeat(np.square(sd)[:, None], most, axis=1)
        for pattern, limited in enumerate(found):
            mine, own = np.flatnonzero(which.ravel() == pattern), np.flatnonzero(limited)
            parts = _parts_of(len(own))
            log_weights = np.zeros((len(mine), parts))
            table = SHAPES[len(own)]
            products = np.indices((len(table.weights),) * len(own))
            for d, part in zip(own.tolist(), map(np.ravel, products), strict=True):
                edge = np.maximum(sd[mine, d], reach[mine, d] / table.reach)[:, None]
                log_weights += np.log(table.weights[part] * edge * self.unit[of][d])
                means[mine, :parts, d] = -flags[mine, d, None] * table.means[part] * edge
                variances[mine, :parts, d] = np.square(table.sds[part] * edge)
            weights[mine, :parts] = np.exp(log_weights)
        return JointMixture(weights, means, variances)


def _parts_of(limits: int) -> int:
    """Return how many Gaussians a row with so many limits is made of."""
    refuse_if(
        limits not in SHAPES,
        f"Expected at most {max(SHAPES)} limits in a row; got {limits}. "
        "Put NaN for those that say least.",
    )
    return len(SHAPES[limits].weights) ** limits


@dataclass(frozen=True, repr=False)
class LimitedNoise(Noise):
    r"""Gaussian noise, where of some values only a limit is known; make it with :func:`limited`.

    For an upper limit ``w`` the likelihood is :math:`P(v + n < w) = \Phi((w - v) / s)`, for a
    lower one :math:`P(v + n > w)`. This is a probability, not a density of noise: :meth:`log_prob`
    has it as it is. Everything else takes the distance between limit and truth for one that is not
    known but for its size.

    Attributes
    ----------
    flags : array
        ``(N, D)``: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
    sd : array
        Standard deviations ``(N, D)``.
    reach : array
        ``(N, D)``: how far beyond a limit the truth may lie, where the likelihood is written as a
        mixture of Gaussians.
    spread : array
        ``(D,)``: what is the spread of each column.
    unit : array
        ``(D,)``: this is the noise of the data divided by ``unit``.
    """

    flags: Any = field()  # type: ignore[misc]
    sd: Any
    reach: Any
    spread: Any
    unit: Any
    by_row = ("sd", "flags", "reach")
    without_waves = "limits"

    @cached_property
    def _measured(self) -> GaussianNoise:
        """The noise of what is no limit."""
        values = self.flags == 0
        if self.observed is not None:
            values = values & self.observed
        return GaussianNoise(
            array_namespace(self.sd).where(values, self.sd, 1.0), n_rows=len(self), observed=values
        )

    def without_limits(self) -> GaussianNoise:
        """Return the noise of the measurements that would have been made."""
        return GaussianNoise(self.sd, n_rows=len(self), observed=self.observed)

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
        return normal(shape, self.sd) * self.sd - self.flags * (
            uniform(shape, self.sd) * USUAL_WIDTH * self.spread
        )

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
        return LimitMixture(*map(as_array, (self.sd, self.flags, self.reach, self.unit)))

    def restrict(self, observed: Any) -> "LimitedNoise":
        """Return the law of the observed values; the others get an idle unit variance."""
        return replace(
            self,
            sd=np.where(observed, self.sd, 1.0),
            flags=np.where(observed, self.flags, 0.0),
            observed=observed,
        )

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        sd = self.sd / scale
        if self.observed is not None:  # keep the idle ones at one
            sd = np.where(self.observed, sd, 1.0)
        return replace(
            self,
            sd=sd,
            unit=self.unit * scale,
            reach=self.reach / scale,
            spread=self.spread / scale,
        )

    def floor(self, sd: float) -> "LimitedNoise":
        """Return the law with variances larger by ``sd^2``."""
        return replace(self, sd=np.sqrt(self.sd**2 + sd**2))

    def for_truths(self, w: Array, *clean: Array) -> "LimitedNoise":
        """Let limits ``w`` reach as far as truths, ``(K, D)`` as rows see them.

        For columns without values in the first array, the next ones say how far.
        """
        columns = zip(*(array.T for array in clean), strict=True)
        middle, spread = np.transpose([_middle_and_spread(each) for each in columns])
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
        refuse_if(
            self.flags.shape != w.shape,
            f"Expected limits of shape {tuple(w.shape)}, as w; got {tuple(self.flags.shape)}.",
        )
        refuse_where(
            ~((self.flags == 0) | (np.abs(self.flags) == 1)),
            "limits of -1 (upper limit), 0 (measured) or 1 (lower limit)",
            self.flags,
        )
        refuse_where(
            (self.flags != 0) & ~seen,
            "a number in w where there is a limit",
            got="NaN",
            advice="Put the limit there, or 0 in limits.",
        )
        law = as_noise(self.noise, len(w), w.shape[1], None if seen.all() else seen)
        if not self.flags.any():
            return w, self.noise
        sd = np.array(np.broadcast_to(_independent_errors(law), w.shape))
        values = np.where(self.flags == 0, w, np.nan)
        unit = np.ones(w.shape[1])
        made = LimitedNoise(self.flags, sd, np.ones_like(sd), unit, unit, n_rows=len(w))
        return w, made.for_truths(np.nan_to_num(w), values, w, sd)


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
    refuse_if(
        isinstance(noise, Reading),
        "Expected Gaussian noise of independent values for limits; got "
        f"{type(noise).__name__}. Drop the limits, or give standard deviations.",
        TypeError,
    )
    noise = as_parameter(noise, "noise") if hasattr(noise, "columns") else noise
    return Limited(noise, as_parameter(flags, "limits"))


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


def _middle_and_spread(columns: tuple[Array, ...]) -> tuple[float, float]:
    """Median and spread of a column, by the first of its forms ``(N,)`` that has one.

    Values may be NaN. Outliers do not count, where there is anything beside them.
    """
    finite = [each[np.isfinite(each)] for each in columns if np.isfinite(each).any()]
    if not finite:
        return 0.0, 1.0
    spreads = [np.ptp(np.quantile(each, [0.05, 0.95])) / 3.3 for each in finite]
    pairs = zip(spreads, (each.std() for each in finite), strict=True)
    size = max(np.abs(each).max() for each in finite)
    spread = next((each for pair in pairs for each in pair if each > 0), size)
    return float(np.median(finite[0])), float(spread) or 1.0
