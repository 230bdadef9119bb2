r"""The few Gaussians that are nearest to a density with ends, folded at these.

What a Gaussian has beyond an end counts, mirrored: :math:`\sum_s \sum_j c_j N(R_s v; b_j, S_j)`
over a point and its mirror images is near to the density. So even one that is largest at its very
end needs few. They are fitted by EM, in which each point may stand for any of its images.
"""

import numpy as np

from deconflow._types import Array
from deconflow.noise.gaussian_parts import Table

STEPS = 300
#: Narrowest Gaussian, in units of the law's standard deviation.
NARROWEST = 0.03
#: Ends so many standard deviations from a law's mean make no image.
FAR = 5.0
NUMBERS_AT_ONCE = 200_000


def images(v: Array, low: Array, high: Array) -> Array:
    """Return points ``(U, G)`` and their images ``(S, U, G)`` at ends ``(U,)``, infinite if none.

    An end that none of them has makes no image.
    """
    ends = [end[:, None] for end in (low, high) if np.isfinite(end).any()]
    return np.stack([v, *(2 * end - v for end in ends)])


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
        step = max(1, NUMBERS_AT_ONCE // (3 * v.shape[1] * parts))
        for i in range(0, len(same), step):
            some = same[i : i + step]
            table[:, some] = _fit_some(v[some], mass[some], low[some], high[some], parts)
    weights, means, variances = table
    return weights, means, variances


def _fit_some(v: Array, mass: Array, low: Array, high: Array, parts: int) -> Table:
    """Fit laws that have the same ends; arrays are ``(J, S, U, G)``, quickest to add up."""
    x = images(v, low, high)
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
