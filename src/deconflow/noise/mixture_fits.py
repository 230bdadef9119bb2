r"""EM for mixtures of Gaussians that are nearest to tables of one-dimensional densities.

Near an end of its support a density takes few Gaussians if these are folded there: what a Gaussian
has beyond an end counts, mirrored, :math:`\sum_s \sum_j c_j N(R_s v; b_j, S_j)` over a point and
its mirror images. So even a density that is largest at its very end needs few.
"""

import numpy as np

from deconflow._types import Array
from deconflow.noise.base import Table

NUMBERS_AT_ONCE = 4_000_000
#: Of fits without ends: steps, and the narrowest Gaussian in units of the table's length.
STEPS_OF_TABLES, NARROWEST_OF_TABLES = 200, 1 / 300
#: Of folded fits: steps, the narrowest Gaussian in units of the law's standard deviation, and how
#: many of these lie between its mean and an end that makes no image.
STEPS, NARROWEST, FAR = 300, 0.03, 5.0
FOLDED_AT_ONCE = 200_000


def fit_scales(x: Array, mass: Array, parts: int) -> Table:
    """EM for a symmetric density on the half line: a mixture of centred Gaussians."""
    square = x**2
    variances = _quantiles(square, mass, parts) + 1e-6
    weights = np.full(parts, 1 / parts)
    for _ in range(1500):
        log_q = np.log(weights) - 0.5 * (np.log(variances) + square[:, None] / variances)
        q = np.exp(log_q - log_q.max(1, keepdims=True))
        q *= mass[:, None] / q.sum(1, keepdims=True)
        weights = q.sum(0) / q.sum()
        variances = (q.T @ square) / q.sum(0)
    return weights, np.zeros(parts), variances


def fit_tables(x: Array, mass: Array, parts: int) -> Table:
    """EM for many one-dimensional densities, each a table of points and masses."""
    step = max(1, NUMBERS_AT_ONCE // (x.shape[1] * parts))
    table = np.empty((3, len(x), parts))
    for i in range(0, len(x), step):
        v, length = x[i : i + step], np.ptp(x[i : i + step], axis=1)
        start, floor = (length / (2 * parts)) ** 2, (NARROWEST_OF_TABLES * length) ** 2
        table[:, i : i + step] = _fit_images(
            v[None], mass[i : i + step], start, floor, parts, STEPS_OF_TABLES
        )
    weights, means, variances = table
    return weights, means, variances


def _quantiles(x: Array, mass: Array, parts: int) -> Array:
    return np.interp((np.arange(parts) + 0.5) / parts, np.cumsum(mass), x)


# -- folded at ends -------------------------------------------------------------------------------


def images(v: Array, low: Array, high: Array) -> Array:
    """Return points ``(...)`` and their images ``(S, ...)`` at ends, infinite if there are none.

    An end that none of them has makes no image.
    """
    return np.stack([v, *(2 * end - v for end in (low, high) if np.isfinite(end).any())])


def fit_folded(v: Array, mass: Array, low: Array, high: Array, parts: int) -> Table:
    """Fit tables of points and masses ``(U, G)``, with ends ``(U,)``, infinite for none.

    Returns weights, means and variances, ``(U, J)``.
    """
    mass = mass / mass.sum(1, keepdims=True)
    mean = (mass * v).sum(1)
    variance = (mass * np.square(v - mean[:, None])).sum(1)
    near = FAR * np.sqrt(variance)
    low, high = (np.where(np.abs(end - mean) < near, end, np.inf) for end in (low, high))
    kind = 2 * np.isfinite(low) + np.isfinite(high)
    table = np.empty((3, len(v), parts))
    for each in np.unique(kind):
        same = np.flatnonzero(kind == each)
        step = max(1, FOLDED_AT_ONCE // (3 * v.shape[1] * parts))
        for i in range(0, len(same), step):
            some = same[i : i + step]
            x = images(v[some], low[some, None], high[some, None])
            start, floor = variance[some] / parts, NARROWEST**2 * variance[some]
            table[:, some] = _fit_images(x, mass[some], start, floor, parts, STEPS)
    weights, means, variances = table
    return weights, means, variances


def _fit_images(x: Array, mass: Array, start: Array, floor: Array, parts: int, steps: int) -> Table:
    """Fit laws at their points and the images of these ``(S, U, G)``, that have as many.

    Variances start at ``start``, ``(U,)``, and stay above ``floor``. Arrays are ``(J, S, U, G)``,
    quickest to add up.
    """
    tables = zip(x[0], mass, strict=True)
    means = np.stack([_quantiles(*table, parts) for table in tables], axis=1)
    variances = np.repeat(start[None], parts, axis=0)
    weights = np.full_like(means, 1 / parts)
    for _ in range(steps):
        m, precision = means[:, None, :, None], 1 / variances[:, None, :, None]
        log_size = np.log(weights + 1e-300) - 0.5 * np.log(variances)
        log_q = log_size[:, None, :, None] - 0.5 * precision * np.square(x - m)
        q = np.exp(log_q - log_q.max((0, 1)))
        q *= mass / q.sum((0, 1))
        total = q.sum((1, 3)) + 1e-300
        weights = total / total.sum(0)
        means = (q * x).sum((1, 3)) / total
        spread = (q * np.square(x - means[:, None, :, None])).sum((1, 3)) / total
        variances = np.maximum(spread, floor)
    return weights.T, means.T, variances.T
