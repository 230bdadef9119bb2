r"""EM for mixtures of Gaussians that are nearest to tables of one-dimensional densities.

Near an end of its support a density takes few Gaussians if these are folded there: what a Gaussian
has beyond an end counts, mirrored, :math:`\sum_s \sum_j c_j N(R_s v; b_j, S_j)` over a point and
its mirror images. So even a density that is largest at its very end needs few.
"""

import numpy as np

from deconflow._types import Array
from deconflow.noise.base import Table

NUMBERS_AT_ONCE = 4_000_000
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
    pieces = [_fit_some(x[i : i + step], mass[i : i + step], parts) for i in range(0, len(x), step)]
    weights, means, variances = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return weights, means, variances


def _fit_some(x: Array, mass: Array, parts: int) -> Table:
    spread = x[:, -1:] - x[:, :1]
    means = np.stack([_quantiles(*table, parts) for table in zip(x, mass, strict=True)])
    variances = np.repeat((spread / (2 * parts)) ** 2, parts, axis=1)
    weights = np.full_like(means, 1 / parts)
    floor = (spread / 300) ** 2
    for _ in range(200):
        offset = x[:, :, None] - means[:, None]
        log_q = -0.5 * (offset**2 / variances[:, None] + np.log(variances[:, None]))
        log_q += np.log(weights[:, None] + 1e-300)
        q = np.exp(log_q - log_q.max(2, keepdims=True))
        q *= mass[:, :, None] / q.sum(2, keepdims=True)
        total = q.sum(1) + 1e-300
        weights = total / total.sum(1, keepdims=True)
        means = np.einsum("ngj,ng->nj", q, x) / total
        offset = x[:, :, None] - means[:, None]
        variances = np.maximum((q * offset**2).sum(1) / total, floor)
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
    sd = np.sqrt((mass * np.square(v - mean[:, None])).sum(1))
    low, high = (np.where(np.abs(end - mean) < FAR * sd, end, np.inf) for end in (low, high))
    kind = 2 * np.isfinite(low) + np.isfinite(high)
    table = np.empty((3, len(v), parts))
    for each in np.unique(kind):
        same = np.flatnonzero(kind == each)
        step = max(1, FOLDED_AT_ONCE // (3 * v.shape[1] * parts))
        for i in range(0, len(same), step):
            some = same[i : i + step]
            table[:, some] = _fit_folded(v[some], mass[some], low[some], high[some], parts)
    weights, means, variances = table
    return weights, means, variances


def _fit_folded(v: Array, mass: Array, low: Array, high: Array, parts: int) -> Table:
    """Fit laws that have the same ends; arrays are ``(J, S, U, G)``, quickest to add up."""
    x = images(v, low[:, None], high[:, None])
    mean = (mass * v).sum(1)
    variance = (mass * np.square(v - mean[:, None])).sum(1)
    shares = (np.arange(parts) + 0.5) / parts
    tables = zip(v, mass, strict=True)
    means = np.stack([np.interp(shares, np.cumsum(m), row) for row, m in tables], axis=1)
    variances = np.repeat(variance[None] / parts, parts, axis=0)
    weights = np.full_like(means, 1 / parts)
    for _ in range(STEPS):
        m, precision = means[:, None, :, None], 1 / variances[:, None, :, None]
        log_size = np.log(weights + 1e-300) - 0.5 * np.log(variances)
        log_q = log_size[:, None, :, None] - 0.5 * precision * np.square(x - m)
        q = np.exp(log_q - log_q.max((0, 1)))
        q *= mass / q.sum((0, 1))
        total = q.sum((1, 3)) + 1e-300
        weights = total / total.sum(0)
        means = (q * x).sum((1, 3)) / total
        spread = (q * np.square(x - means[:, None, :, None])).sum((1, 3)) / total
        variances = np.maximum(spread, NARROWEST**2 * variance)
    return weights.T, means.T, variances.T
