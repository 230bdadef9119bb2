r"""The few Gaussians that are nearest to a density with ends, folded at these.

What a Gaussian has beyond an end counts, mirrored: :math:`\sum_s \sum_j c_j N(R_s v; b_j, S_j)`
over a point and its mirror images is near to the density. So even one that is largest at its very
end needs few. They are fitted by EM, in which each point may stand for any of its images.
"""

from __future__ import annotations

import numpy as np

from deconflow.noise.catalogue import Array
from deconflow.noise.gaussian_parts import Table

STEPS = 300
NARROWEST = 0.03
"""Narrowest Gaussian, in units of the law's standard deviation."""
NUMBERS_AT_ONCE = 2_000_000


def images(v: Array, low: Array, high: Array) -> Array:
    """Return points ``(U, G)`` and their images ``(U, S, G)`` at ends ``(U,)``, infinite if none.

    An end that none of them has makes no image.
    """
    ends = [end[:, None] for end in (low, high) if np.isfinite(end).any()]
    return np.stack([v, *(2 * end - v for end in ends)], axis=1)


def fit_folded(v: Array, mass: Array, low: Array, high: Array, parts: int) -> Table:
    """Fit tables of points and masses ``(U, G)``, with ends ``(U,)``, infinite for none.

    Returns weights, means and variances, ``(U, J)``.
    """
    step = max(1, NUMBERS_AT_ONCE // (3 * v.shape[1] * parts))
    pieces = [
        _fit_some(*(array[i : i + step] for array in (v, mass, low, high)), parts)
        for i in range(0, len(v), step)
    ]
    weights, means, variances = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return weights, means, variances


def _fit_some(v: Array, mass: Array, low: Array, high: Array, parts: int) -> Table:
    mass = mass / mass.sum(1, keepdims=True)
    x = images(v, low, high)
    count, missing = x.shape[1], ~np.isfinite(x)
    x = np.where(missing, 0.0, x).reshape(len(v), -1)
    mean = (mass * v).sum(1, keepdims=True)
    variance = (mass * np.square(v - mean)).sum(1, keepdims=True)
    shares = (np.arange(parts) + 0.5) / parts
    means = np.stack([np.interp(shares, np.cumsum(m), row) for row, m in zip(v, mass, strict=True)])
    variances = np.repeat(variance / parts, parts, axis=1)
    weights = np.full_like(means, 1 / parts)
    for _ in range(STEPS):
        log_q = np.log(weights + 1e-300) - 0.5 * np.log(variances)
        log_q = log_q[:, None] - 0.5 * np.square(x[..., None] - means[:, None]) / variances[:, None]
        log_q = np.where(missing[..., None], -np.inf, log_q.reshape(len(v), count, -1, parts))
        q = np.exp(log_q - log_q.max((1, 3), keepdims=True))
        q *= mass[:, None, :, None] / q.sum((1, 3), keepdims=True)
        q = q.reshape(len(v), -1, parts)
        total = q.sum(1) + 1e-300
        weights = total / total.sum(1, keepdims=True)
        means = (q * x[..., None]).sum(1) / total
        offset = np.square(x[..., None] - means[:, None])
        variances = np.maximum((q * offset).sum(1) / total, NARROWEST**2 * variance)
    return weights, means, variances
