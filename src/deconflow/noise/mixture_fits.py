"""EM for mixtures of Gaussians that are nearest to tables of one-dimensional densities."""

import numpy as np

from deconflow._types import Array
from deconflow.noise.gaussian_parts import Table

NUMBERS_AT_ONCE = 4_000_000


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
