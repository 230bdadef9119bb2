r"""Where the truth lies and how widely it scatters, as smooth functions of covariates.

.. math:: v_d = m_d(x) + \tau_d(x) \, z_d

With one Gaussian per column, :math:`w_d \sim N(m_d(x), \tau_d(x)^2 + s_d^2)`: the mean is a sum of
penalised cubic splines, one per covariate, whose penalties maximise the restricted likelihood; the
logarithm of :math:`\tau^2` is a quadratic function, whose ridge is found likewise. What is left,
``z``, depends far less on ``x`` than ``v`` does: a curve without any width has become a point.

References
----------
Chen (2024), "Empirical Bayes when estimation precision predicts parameters",
https://arxiv.org/abs/2212.14444
Wood and Fasiolo (2017), "A generalized Fellner-Schall method for smoothing parameter
optimization", Biometrics 73.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import SplineTransformer

from deconflow._types import Array
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations

INTERVALS = 10
"""Knot intervals of a spline, at most; they are even in the covariate's quantiles."""
FEWEST_VALUES = 5
"""Covariates of fewer different values have a straight line only."""
ROUNDS, STEPS = 5, 30
PENALTY_ROUNDS, PRECISE = 100, 0.01
NARROWEST = 1e-3
"""The truth's variance about the curve is taken to be at least this share of the noise's."""
RIDGE, STIFFEST = 1.0, 1e4
"""Least and largest penalty on how the width changes; in between the rows choose."""


@dataclass(frozen=True)
class Spline:
    """A penalised cubic spline of one covariate, without its straight line.

    Attributes
    ----------
    column : int
        The covariate.
    knots : array
        Where the pieces meet.
    directions : array
        ``(basis, c)``: combinations of B-splines, each of unit penalty.
    line : array
        ``(2, c)``: intercepts and slopes that were taken out.
    """

    column: int
    knots: Array
    directions: Array
    line: Array

    @classmethod
    def fit(cls, x: Array, column: int) -> Spline | None:
        """Make the basis for a covariate's values; None for one of few values."""
        values = x[:, column]
        if len(np.unique(values)) < FEWEST_VALUES:
            return None
        shares = np.linspace(0, 1, min(INTERVALS, len(np.unique(values)) - 1) + 1)
        knots = np.unique(np.quantile(values, shares))
        if len(knots) < 3:
            return None
        grid = np.linspace(knots[0], knots[-1], 400)
        bends = np.diff(_b_splines(knots, grid), 2, axis=0) / (grid[1] - grid[0]) ** 2
        penalty, vectors = np.linalg.eigh(bends.T @ bends * (grid[1] - grid[0]))
        kept = penalty > 1e-8 * penalty[-1]
        directions = vectors[:, kept] / np.sqrt(penalty[kept])
        straight = np.column_stack([np.ones_like(values), values])
        bent = _b_splines(knots, values) @ directions
        return cls(column, knots, directions, np.linalg.lstsq(straight, bent, rcond=None)[0])

    def __call__(self, x: Array) -> Array:
        """Values ``(N, c)`` of the basis at covariates ``(N, C)``; straight beyond the knots."""
        values = x[:, self.column]
        straight = np.column_stack([np.ones_like(values), values])
        return _b_splines(self.knots, values) @ self.directions - straight @ self.line


@dataclass(frozen=True)
class Curve:
    """Mean and variance of one column of the truth, as functions of covariates."""

    mean: Array
    log_variance: Array
    smallest: float


@dataclass(frozen=True)
class LocationScale:
    """The curves of all columns.

    Attributes
    ----------
    splines : tuple of Spline
        Those of the mean.
    curves : tuple of Curve
        Coefficients, one for each column of the truth.
    low, high : array
        ``(C,)`` ends of the fitted covariates, beyond which the width does not change.
    """

    splines: tuple[Spline, ...]
    curves: tuple[Curve, ...]
    low: Array
    high: Array

    @classmethod
    def fit(cls, data: Observations, continuous: NDArray[np.bool_]) -> LocationScale:
        """Fit curves to rows with covariates."""
        assert data.given is not None
        x = data.given.numpy()
        made = (Spline.fit(x, c) for c in np.flatnonzero(continuous).tolist())
        splines = tuple(spline for spline in made if spline is not None)
        blocks = [x, *(spline(x) for spline in splines)]
        w = (data.w - data.noise.mean()).numpy()
        variance = np.broadcast_to(data.noise.variance().numpy(), w.shape)
        seen = np.ones(w.shape, bool) if data.observed is None else data.observed.numpy()
        weights = np.ones(len(w)) if data.weights is None else data.weights.numpy()
        by_row = isinstance(data.noise, GaussianNoise)
        curves = []
        for d in range(w.shape[1]):
            use = seen[:, d]
            rows = [block[use] for block in blocks]
            curves.append(
                _curve(w[use, d], variance[use, d], weights[use], rows, x[use], by_row=by_row)
            )
        return cls(splines, tuple(curves), x.min(0), x.max(0))

    def at(self, x: Array) -> tuple[Array, Array]:
        """Means and widths ``(N, D)`` at covariates ``(N, C)``."""
        design = np.column_stack([np.ones(len(x)), x, *(spline(x) for spline in self.splines)])
        bends = _quadratic(np.clip(x, self.low, self.high))
        means = [design @ curve.mean for curve in self.curves]
        logs = [
            np.clip(bends @ curve.log_variance, curve.smallest, curve.smallest + 40)
            for curve in self.curves
        ]
        return np.stack(means, axis=1), np.exp(0.5 * np.stack(logs, axis=1))

    def standardised(self, data: Observations) -> Observations:
        """Return the rows of ``z``."""
        assert data.given is not None
        mean, width = (torch.from_numpy(each) for each in self.at(data.given.numpy()))
        if data.projection is not None:  # w = R (m + tau z) + n: the noise is as it was
            w = data.w - torch.einsum("nmd,nd->nm", data.projection, mean)
            return replace(data, w=w, projection=data.projection * width.unsqueeze(1))
        w = (data.w - mean) / width
        if data.observed is not None:
            w = torch.where(data.observed, w, 0.0)
        return replace(data, w=w, noise=_divided(data.noise, width))

    def log_volume(self, data: Observations) -> Array:
        """Log of ``|dw / dz|`` over each row's observed values, ``(N,)``."""
        assert data.given is not None
        if data.projection is not None:
            return np.zeros(len(data))
        logs = np.log(self.at(data.given.numpy())[1])
        if data.observed is not None:
            logs = np.where(data.observed.numpy(), logs, 0.0)
        return logs.sum(1)

    def marginal(self, columns: NDArray[np.int64]) -> LocationScale:
        """Return the curves of some columns of the truth."""
        return replace(self, curves=tuple(self.curves[d] for d in columns))

    def state(self) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
        """Return what is saved: numbers for JSON, and arrays."""
        arrays: dict[str, Array] = {"low": self.low, "high": self.high}
        for j, spline in enumerate(self.splines):
            for name in ("knots", "directions", "line"):
                arrays[f"spline.{j}.{name}"] = getattr(spline, name)
        for d, curve in enumerate(self.curves):
            arrays[f"curve.{d}.mean"], arrays[f"curve.{d}.log_variance"] = (
                curve.mean, curve.log_variance,
            )  # fmt: skip
        details: list[dict[str, Any]] = [{"column": spline.column} for spline in self.splines]
        details += [{"smallest": curve.smallest} for curve in self.curves]
        return details, {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    @classmethod
    def from_state(
        cls, details: list[dict[str, Any]], arrays: dict[str, torch.Tensor]
    ) -> LocationScale:
        """Take what :meth:`state` gave."""
        columns = [int(each["column"]) for each in details if "column" in each]
        smallest = [float(each["smallest"]) for each in details if "smallest" in each]
        splines = [
            Spline(c, *(arrays[f"spline.{j}.{name}"].numpy() for name in
                        ("knots", "directions", "line")))
            for j, c in enumerate(columns)
        ]  # fmt: skip
        curves = [
            Curve(
                arrays[f"curve.{d}.mean"].numpy(), arrays[f"curve.{d}.log_variance"].numpy(), least
            )
            for d, least in enumerate(smallest)
        ]
        return cls(tuple(splines), tuple(curves), arrays["low"].numpy(), arrays["high"].numpy())


def _curve(
    w: Array, noise: Array, weights: Array, blocks: list[Array], x: Array, *, by_row: bool
) -> Curve:
    """Fit mean and width of one column in turns."""
    spread = float(np.average(np.square(w - np.average(w, weights=weights)), weights=weights))
    usual = float(np.average(noise, weights=weights)) or spread or 1.0
    smallest = NARROWEST * usual
    variance = np.full(len(w), max(spread - usual, 0.05 * usual, smallest))
    bends = _quadratic(x)
    design = np.column_stack([np.ones(len(w)), *blocks])
    sizes = [block.shape[1] for block in blocks]
    for _ in range(ROUNDS):
        mean = _penalised_mean(w, weights / (noise + variance), design, sizes)
        squares = np.square(w - design @ mean)
        b = _log_variance(squares, noise, weights, bends if by_row else bends[:, :1], smallest)
        b = np.r_[b, np.zeros(bends.shape[1] - len(b))]
        variance = np.exp(np.clip(bends @ b, np.log(smallest), np.log(smallest) + 40))
    return Curve(mean, b, float(np.log(smallest)))


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
        new = np.empty_like(scales)
        for j, (first, last) in enumerate(pairwise(ends)):
            used = (last - first) - np.trace(inverse[first:last, first:last]) / scales[j]
            new[j] = max(np.square(found[first:last]).sum() / max(used, 1e-3), 1e-10 * spread)
        done = np.abs(np.log(new / scales)).max() < PRECISE
        scales = new
        if done:
            break
    return np.asarray(found)


def _log_variance(
    squares: Array, noise: Array, weights: Array, bends: Array, smallest: float
) -> Array:
    """Coefficients of the log variance about the mean, by Fisher's scoring with a ridge.

    The rows choose the ridge as they choose the penalties of the mean.
    """
    least, free = np.log(smallest), bends.shape[1] - 1
    b, ridge = np.zeros(free + 1), RIDGE
    b[0] = np.log(max(np.average(squares - noise, weights=weights), smallest))
    for _ in range(STEPS):
        own = np.exp(np.clip(bends @ b, least, least + 40))
        total = noise + own
        penalty = np.r_[1e-6, np.full(free, ridge)]
        slope = bends.T @ (weights * 0.5 * own * (squares / total**2 - 1 / total)) - penalty * b
        curvature = bends.T @ (bends * (weights * 0.5 * (own / total) ** 2)[:, None])
        inverse = np.linalg.inv(curvature + np.diag(penalty))
        step = inverse @ slope
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        b = b + step
        b[0] = max(b[0], least)
        before = ridge
        if free:  # as for the mean: what the rows do not ask for vanishes
            used = max(free - ridge * np.trace(inverse[1:, 1:]), 1e-3)
            ridge = float(np.clip(used / max(np.square(b[1:]).sum(), 1e-12), RIDGE, STIFFEST))
        if np.abs(step).max() < 1e-3 and abs(np.log(ridge / before)) < PRECISE:
            break
    return b


def _quadratic(x: Array) -> Array:
    """A constant, the covariates, and their squares less one."""
    return np.column_stack([np.ones(len(x)), x, np.square(x) - 1.0])


def _b_splines(knots: Array, values: Array) -> Array:
    made = SplineTransformer(degree=3, knots=knots[:, None], extrapolation="linear")
    return np.asarray(made.fit(knots[:, None]).transform(values[:, None]))


def _divided(noise: Noise, width: torch.Tensor) -> Noise:
    """Divide each row's noise by its own widths ``(N, M)``; those of other laws by one for all."""
    if not isinstance(noise, GaussianNoise):
        if len(width) and not torch.allclose(width, width[:1]):
            raise ValueError(
                "Expected Gaussian noise, because the model was fitted with covariates to rows "
                "with such; got another law. Fit again with rows of that law."
            )
        return noise.divide(width[0])
    if noise.shared:
        shape = (len(width), *noise.factor.shape[1:])
        noise = GaussianNoise(noise.factor.expand(shape), shared=False, n_rows=len(width))
    return noise.divide(width)
