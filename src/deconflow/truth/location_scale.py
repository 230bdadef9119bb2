r"""Location and scale of the true values, as smooth functions of covariates.

.. math:: v_d = m_d(x) + \tau_d(x) \, z_d

With one Gaussian per column, :math:`w_d \sim N(m_d(x), \tau_d(x)^2 + s_d^2)`: the mean is a sum of
penalised cubic splines, one per covariate, whose penalties maximise the restricted likelihood; the
logarithm of :math:`\tau^2` is a quadratic function, whose ridge is found in the same way. The rest,
``z``, depends far less on ``x`` than ``v`` does.

References
----------
Chen (2024), "Empirical Bayes when estimation precision predicts parameters",
https://arxiv.org/abs/2212.14444
Wood and Fasiolo (2017), "A generalized Fellner-Schall method for smoothing parameter
optimization", Biometrics 73.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from sklearn.preprocessing import SplineTransformer

from deconflow._types import Array, BoolArray, IntArray
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.truth.bounds import in_units

#: Knot intervals of a spline, at most; they are even in the covariate's quantiles.
INTERVALS = 10
#: Covariates of fewer different values have a straight line only.
FEWEST_VALUES = 5
ROUNDS, STEPS = 5, 30
PENALTY_ROUNDS, PRECISE = 100, 0.01
#: Least variance about the curve, as a share of the noise's.
NARROWEST = 1e-3
#: Least and largest penalty on how the width changes; in between the rows choose.
RIDGE, STIFFEST = 1.0, 1e4
#: Largest log variance above the least.
WIDEST = 40.0


@dataclass(frozen=True)
class Spline:
    """A penalised cubic spline of one covariate, without its straight line.

    Attributes
    ----------
    knots : array
        Where the pieces meet.
    directions : array
        ``(basis, c)``: combinations of B-splines, each of unit penalty.
    line : array
        ``(2, c)``: intercepts and slopes that were taken out.
    """

    knots: Array
    directions: Array
    line: Array

    @classmethod
    def fit(cls, values: Array) -> "Spline | None":
        """Make the basis for a covariate's values; None for one of few values."""
        count = len(np.unique(values))
        knots = np.unique(np.quantile(values, np.linspace(0, 1, min(INTERVALS, count - 1) + 1)))
        if count < FEWEST_VALUES or len(knots) < 3:
            return None
        grid = np.linspace(knots[0], knots[-1], 400)
        bends = np.diff(_b_splines(knots, grid), 2, axis=0) / (grid[1] - grid[0]) ** 2
        penalty, vectors = np.linalg.eigh(bends.T @ bends * (grid[1] - grid[0]))
        bent = penalty > 1e-8 * penalty[-1]
        directions = vectors[:, bent] / np.sqrt(penalty[bent])
        straight = np.column_stack([np.ones_like(values), values])
        line = np.linalg.lstsq(straight, _b_splines(knots, values) @ directions, rcond=None)[0]
        return cls(knots, directions, line)

    def __call__(self, values: Array) -> Array:
        """Values ``(N, c)`` of the basis; straight beyond the knots."""
        straight = np.column_stack([np.ones_like(values), values])
        return _b_splines(self.knots, values) @ self.directions - straight @ self.line


@dataclass(frozen=True)
class LocationScale:
    """The curves of all columns.

    Attributes
    ----------
    splines : dict of int to Spline
        Of the covariates that have one, by their numbers.
    mean : array
        ``(D, P)``: coefficients of a constant, the covariates, and the splines.
    log_variance : array
        ``(D, 1 + 2 C)``: coefficients of a constant, the covariates, and their squares.
    smallest : array
        ``(D,)``: least log variance.
    low, high : array
        ``(C,)`` ends of the fitted covariates, beyond which the width does not change.
    """

    splines: dict[int, Spline]
    mean: Array
    log_variance: Array
    smallest: Array
    low: Array
    high: Array

    @classmethod
    def fit(cls, data: Observations, x: Array, continuous: BoolArray) -> "LocationScale":
        """Fit curves to rows with covariates ``(N, C)``."""
        made = {c: Spline.fit(x[:, c]) for c in np.flatnonzero(continuous).tolist()}
        splines = {c: spline for c, spline in made.items() if spline is not None}
        design, bends = _design(x, splines), _quadratic(x)
        sizes = [x.shape[1], *(spline.directions.shape[1] for spline in splines.values())]
        w = data.measured() - np.asarray(data.noise.mean())
        variance = np.broadcast_to(np.asarray(data.noise.variance()), w.shape)
        weights = np.ones(len(w)) if data.weights is None else np.asarray(data.weights)
        free = bends.shape[1] if isinstance(data.noise, GaussianNoise) else 1
        curves = [
            _curve(w[use, d], variance[use, d], weights[use], design[use], sizes, bends[use], free)
            for d, use in enumerate(~np.isnan(w).T)
        ]
        mean, log_variance, smallest = (np.stack(each) for each in zip(*curves, strict=True))
        return cls(splines, mean, log_variance, smallest, x.min(0), x.max(0))

    def at(self, x: Array) -> tuple[Array, Array]:
        """Means and widths ``(N, D)`` at covariates ``(N, C)``."""
        design, bends = _design(x, self.splines), _quadratic(np.clip(x, self.low, self.high))
        means = np.stack([design @ each for each in self.mean], axis=1)
        logs = np.stack([bends @ each for each in self.log_variance], axis=1)
        return means, np.exp(0.5 * np.clip(logs, self.smallest, self.smallest + WIDEST))

    def standardised(self, data: Observations, x: Array) -> Observations:
        """Return the rows of ``z``, without covariates."""
        return in_units(replace(data, given=None), *self.at(x))

    def log_volume(self, data: Observations, x: Array) -> Array:
        """Log of ``|dw / dz|`` over each row's observed values, ``(N,)``."""
        if data.projection is not None:
            return np.zeros(len(data))
        return np.where(np.isnan(data.measured()), 0.0, np.log(self.at(x)[1])).sum(1)

    def marginal(self, columns: IntArray) -> "LocationScale":
        """Return the curves of some columns."""
        own = {name: getattr(self, name)[columns] for name in ("mean", "log_variance", "smallest")}
        return replace(self, **own)


def _design(x: Array, splines: dict[int, Spline]) -> Array:
    """A constant, the covariates, and their splines."""
    return np.column_stack(
        [np.ones(len(x)), x, *(spline(x[:, c]) for c, spline in splines.items())]
    )


def _quadratic(x: Array) -> Array:
    """A constant, the covariates, and their squares less one."""
    return np.column_stack([np.ones(len(x)), x, np.square(x) - 1.0])


def _b_splines(knots: Array, values: Array) -> Array:
    made = SplineTransformer(degree=3, knots=knots[:, None], extrapolation="linear")
    return np.asarray(made.fit(knots[:, None]).transform(values[:, None]))


def _curve(
    w: Array, noise: Array, weights: Array, design: Array, sizes: list[int], bends: Array, free: int
) -> tuple[Array, Array, float]:
    """Coefficients of mean and log variance of one column, in turns, and the least of the latter.

    Of the coefficients of the log variance only some are ``free``.
    """
    spread = float(np.average(np.square(w - np.average(w, weights=weights)), weights=weights))
    usual = float(np.average(noise, weights=weights)) or spread or 1.0
    smallest = float(np.log(NARROWEST * usual))
    variance = np.full(len(w), max(spread - usual, 0.05 * usual, NARROWEST * usual))
    b = np.zeros(bends.shape[1])
    for _ in range(ROUNDS):
        mean = _penalised_mean(w, weights / (noise + variance), design, sizes)
        squares = np.square(w - design @ mean)
        b[:free] = _log_variance(squares, noise, weights, bends[:, :free], smallest)
        variance = np.exp(np.clip(bends @ b, smallest, smallest + WIDEST))
    return mean, b, smallest


def _penalised_mean(w: Array, precision: Array, design: Array, sizes: list[int]) -> Array:
    """Coefficients of a sum of smooth terms, each block with a variance that the rows choose."""
    gram = design.T @ (design * precision[:, None])
    pull = design.T @ (precision * w)
    ends = np.cumsum([1, *sizes])
    spread = np.average(np.square(w - np.average(w, weights=precision)), weights=precision)
    spread = max(float(spread), 1e-6 / float(precision.mean()))  # of a constant, too
    scales = np.full(len(sizes), spread)
    for _ in range(PENALTY_ROUNDS):
        penalty = np.concatenate([[0.0], np.repeat(1 / scales, sizes)])
        inverse = np.linalg.pinv(gram + np.diag(penalty), hermitian=True)
        found = inverse @ pull
        before, scales = scales, np.empty_like(scales)
        for j, (first, last) in enumerate(pairwise(ends)):
            used = (last - first) - np.trace(inverse[first:last, first:last]) / before[j]
            scales[j] = max(np.square(found[first:last]).sum() / max(used, 1e-3), 1e-10 * spread)
        if np.abs(np.log(scales / before)).max() < PRECISE:
            break
    return np.asarray(found)


def _log_variance(
    squares: Array, noise: Array, weights: Array, bends: Array, smallest: float
) -> Array:
    """Coefficients of the log variance about the mean, by Fisher's scoring with a ridge.

    The rows choose the ridge as they choose the penalties of the mean.
    """
    free = bends.shape[1] - 1
    b, ridge = np.zeros(free + 1), RIDGE
    b[0] = np.log(max(np.average(squares - noise, weights=weights), np.exp(smallest)))
    for _ in range(STEPS):
        own = np.exp(np.clip(bends @ b, smallest, smallest + WIDEST))
        total, before = noise + own, ridge
        penalty = np.r_[1e-6, np.full(free, ridge)]
        slope = bends.T @ (weights * 0.5 * own * (squares / total**2 - 1 / total)) - penalty * b
        curvature = bends.T @ (bends * (weights * 0.5 * (own / total) ** 2)[:, None])
        inverse = np.linalg.inv(curvature + np.diag(penalty))
        step = inverse @ slope
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        b = b + step
        b[0] = max(b[0], smallest)
        if free:  # as for the mean: what the rows do not ask for vanishes
            used = max(free - ridge * np.trace(inverse[1:, 1:]), 1e-3)
            ridge = float(np.clip(used / max(np.square(b[1:]).sum(), 1e-12), RIDGE, STIFFEST))
        if np.abs(step).max() < 1e-3 and abs(np.log(ridge / before)) < PRECISE:
            break
    return b
