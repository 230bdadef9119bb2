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
WIDEST = 40.0
"""Log variances may exceed the least by so much."""
ARRAYS = ("mean", "log_variance", "smallest", "low", "high")


@dataclass(frozen=True)
class LocationScale:
    """The curves of all columns.

    Attributes
    ----------
    knots : dict of int to array
        Where the pieces of a covariate's spline meet, for covariates that have one.
    mean : array
        ``(P, D)``: coefficients of a constant, the covariates, and the B-splines.
    log_variance : array
        ``(1 + 2 C, D)``: coefficients of a constant, the covariates, and their squares.
    smallest : array
        ``(D,)``: least log variance.
    low, high : array
        ``(C,)`` ends of the fitted covariates, beyond which the width does not change.
    """

    knots: dict[int, Array]
    mean: Array
    log_variance: Array
    smallest: Array
    low: Array
    high: Array

    @classmethod
    def fit(cls, data: Observations, continuous: NDArray[np.bool_]) -> LocationScale:
        """Fit curves to rows with covariates."""
        assert data.given is not None
        x = data.given.numpy()
        found = {c: _knots(x[:, c]) for c in np.flatnonzero(continuous).tolist()}
        knots = {c: each for c, each in found.items() if each is not None}
        plain = _design(x, knots)
        change, sizes = _unit_penalties(x, knots, plain)
        w = (data.w - data.noise.mean()).numpy()
        variance = np.broadcast_to(data.noise.variance().numpy(), w.shape)
        seen = np.ones(w.shape, bool) if data.observed is None else data.observed.numpy()
        weights = np.ones(len(w)) if data.weights is None else data.weights.numpy()
        by_row = isinstance(data.noise, GaussianNoise)
        curves = []
        for d in range(w.shape[1]):
            use = seen[:, d]
            bends, design = _quadratic(x[use]), plain[use] @ change
            rows = w[use, d], variance[use, d], weights[use]
            curves.append(_curve(*rows, design, sizes, bends, by_row=by_row))
        mean, log_variance, smallest = (
            np.stack(each, axis=-1) for each in zip(*curves, strict=True)
        )
        return cls(knots, change @ mean, log_variance, smallest, x.min(0), x.max(0))

    def at(self, x: Array) -> tuple[Array, Array]:
        """Means and widths ``(N, D)`` at covariates ``(N, C)``."""
        logs = _quadratic(np.clip(x, self.low, self.high)) @ self.log_variance
        width = np.exp(0.5 * np.clip(logs, self.smallest, self.smallest + WIDEST))
        return _design(x, self.knots) @ self.mean, width

    def standardised(self, data: Observations) -> Observations:
        """Return the rows of ``z``, without covariates."""
        assert data.given is not None
        mean, width = (torch.from_numpy(each) for each in self.at(data.given.numpy()))
        data = replace(data, given=None)
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
        return replace(
            self, mean=self.mean[:, columns], log_variance=self.log_variance[:, columns],
            smallest=self.smallest[columns],
        )  # fmt: skip

    def state(self) -> dict[str, torch.Tensor]:
        """Return what is saved."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays |= {f"knots.{c}": knots for c, knots in self.knots.items()}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    @classmethod
    def from_state(cls, saved: dict[str, torch.Tensor]) -> LocationScale:
        """Take what :meth:`state` gave."""
        knots = {int(name[6:]): saved[name].numpy() for name in saved if name.startswith("knots.")}
        knots = {c: knots[c] for c in sorted(knots)}
        return cls(knots, *(saved[name].numpy() for name in ARRAYS))


def _knots(values: Array) -> Array | None:
    """Even in the covariate's quantiles; None for one of few values, which has a straight line."""
    count = len(np.unique(values))
    shares = np.linspace(0, 1, min(INTERVALS, count - 1) + 1)
    knots = np.unique(np.quantile(values, shares))
    return None if count < FEWEST_VALUES or len(knots) < 3 else knots


def _design(x: Array, knots: dict[int, Array]) -> Array:
    """A constant, the covariates, and the B-splines of those that have knots."""
    splines = [_b_splines(each, x[:, c]) for c, each in knots.items()]
    return np.column_stack([np.ones(len(x)), x, *splines])


def _unit_penalties(x: Array, knots: dict[int, Array], plain: Array) -> tuple[Array, list[int]]:
    """Directions in which the bends of a spline count as the square of the coefficient.

    Straight lines are taken out of the splines, since the covariates have their own.

    Returns
    -------
    change : array
        ``(P, Q)``, which makes the design of ``Q`` coefficients of the ``plain`` one.
    sizes : list of int
        Numbers of coefficients that share a penalty.
    """
    count = x.shape[1]
    blocks, sizes, first = [np.eye(plain.shape[1], 1 + count)], [count], 1 + count
    for c, each in knots.items():
        grid = np.linspace(each[0], each[-1], 400)
        splines = _b_splines(each, grid)
        bends = np.diff(splines, 2, axis=0) / (grid[1] - grid[0]) ** 2
        penalty, vectors = np.linalg.eigh(bends.T @ bends * (grid[1] - grid[0]))
        kept = penalty > 1e-8 * penalty[-1]
        last = first + splines.shape[1]
        block = np.zeros((plain.shape[1], kept.sum()))
        block[first:last] = vectors[:, kept] / np.sqrt(penalty[kept])
        block[[0, 1 + c]] = -np.linalg.lstsq(plain[:, [0, 1 + c]], plain @ block, rcond=None)[0]
        blocks.append(block)
        sizes.append(block.shape[1])
        first = last
    return np.column_stack(blocks), sizes


def _curve(
    w: Array, noise: Array, weights: Array, design: Array, sizes: list[int], bends: Array,
    *, by_row: bool,
) -> tuple[Array, Array, float]:  # fmt: skip
    """Coefficients of mean and log variance of one column, in turns, and the least of the latter.

    The width is the same for all rows unless it is to differ ``by_row``.
    """
    spread = float(np.average(np.square(w - np.average(w, weights=weights)), weights=weights))
    usual = float(np.average(noise, weights=weights)) or spread or 1.0
    smallest = float(np.log(NARROWEST * usual))
    variance = np.full(len(w), max(spread - usual, 0.05 * usual, NARROWEST * usual))
    b = np.zeros(bends.shape[1])
    free = bends.shape[1] if by_row else 1
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
    free = bends.shape[1] - 1
    b, ridge = np.zeros(free + 1), RIDGE
    b[0] = np.log(max(np.average(squares - noise, weights=weights), np.exp(smallest)))
    for _ in range(STEPS):
        own = np.exp(np.clip(bends @ b, smallest, smallest + WIDEST))
        total = noise + own
        penalty = np.r_[1e-6, np.full(free, ridge)]
        slope = bends.T @ (weights * 0.5 * own * (squares / total**2 - 1 / total)) - penalty * b
        curvature = bends.T @ (bends * (weights * 0.5 * (own / total) ** 2)[:, None])
        inverse = np.linalg.inv(curvature + np.diag(penalty))
        step = inverse @ slope
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        b = b + step
        b[0] = max(b[0], smallest)
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
