r"""EM for the Gaussians of each row's draws, compiled: row by row, each until it gains no more."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from deconflow._types import Array


def _compiled(function: Callable) -> Any:
    """Compile without the GIL, once per machine if a cache can be written."""
    make: Any = njit
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return make(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to write to
        return make(**options)(function)


@_compiled
def fit_rows(
    u: Array, weight: Array, size: Array, share: Array, steps: int, gain: float
) -> tuple[Array, Array, Array, Array]:
    r"""Fit ``J`` Gaussians to white draws ``(n, K, D)`` from shares ``(n, K, J)``, which change.

    A little of the row's own covariance goes into each Gaussian, :math:`I / J^{2/D}` with the
    weight of one draw (Fraley and Raftery 2007), so that none shrinks to a point; and each is as
    wide as its mean is uncertain, too. Returns weights, means, covariances and the mean log
    density of each row, but for its constant.
    """
    n, _, dim = u.shape
    parts = share.shape[2]
    weights, means = np.empty((n, parts)), np.empty((n, parts, dim))
    covariances = np.empty((n, parts, dim, dim))
    level = np.full(n, -np.inf)
    factors = np.empty((parts, dim, dim))
    log_top = np.empty(parts)
    for i in range(n):
        for _ in range(steps):
            _maximise(u[i], weight[i], size[i], share[i], weights[i], means[i], covariances[i])
            for j in range(parts):
                log_top[j] = np.log(weights[i, j]) - _inverse_factor(covariances[i, j], factors[j])
            now = _expect(u[i], weight[i], means[i], factors, log_top, share[i])
            gained = now - level[i]
            level[i] = now
            if gained < gain:
                break
    return weights, means, covariances, level


@_compiled
def _maximise(
    u: Array, weight: Array, size: float, share: Array, weights: Array, means: Array, cov: Array
) -> None:
    """Weights, means and covariances of a row's parts, from the shares of its draws."""
    n_draws, dim = u.shape
    parts = share.shape[1]
    for j in range(parts):
        total = 1e-12
        means[j] = 0.0
        cov[j] = 0.0
        for k in range(n_draws):
            q = weight[k] * share[k, j]
            total += q
            for a in range(dim):
                means[j, a] += q * u[k, a]
        means[j] /= total
        for k in range(n_draws):
            q = weight[k] * share[k, j]
            if q > 0.0:
                for a in range(dim):
                    for b in range(a + 1):
                        cov[j, a, b] += q * (u[k, a] - means[j, a]) * (u[k, b] - means[j, b])
        count = total * size
        grown = (count + 1.0) / count**2
        for a in range(dim):
            for b in range(a + 1):
                cov[j, a, b] *= size * grown
                cov[j, b, a] = cov[j, a, b]
            cov[j, a, a] += grown / parts ** (2.0 / dim)
        weights[j] = total


@_compiled
def _inverse_factor(cov: Array, inverse: Array) -> float:
    """Inverse of the Cholesky factor, in place; returns the log determinant of the factor."""
    dim = len(cov)
    factor = np.zeros((dim, dim))
    log_det = 0.0
    for a in range(dim):
        for b in range(a + 1):
            total = cov[a, b]
            for c in range(b):
                total -= factor[a, c] * factor[b, c]
            factor[a, b] = np.sqrt(max(total, 1e-12)) if a == b else total / factor[b, b]
        log_det += np.log(factor[a, a])
    inverse[:] = 0.0
    for a in range(dim):
        inverse[a, a] = 1.0 / factor[a, a]
        for b in range(a):
            total = 0.0
            for c in range(b, a):
                total -= factor[a, c] * inverse[c, b]
            inverse[a, b] = total / factor[a, a]
    return log_det


@_compiled
def _expect(
    u: Array, weight: Array, means: Array, inverse: Array, log_top: Array, share: Array
) -> float:
    """Shares of a row's draws, in place; returns their mean log density."""
    n_draws, dim = u.shape
    parts = len(log_top)
    mean = 0.0
    log_p = np.empty(parts)
    for k in range(n_draws):
        if weight[k] == 0.0:
            continue
        top = -np.inf
        for j in range(parts):
            square = 0.0
            for a in range(dim):
                white = 0.0
                for b in range(a + 1):
                    white += inverse[j, a, b] * (u[k, b] - means[j, b])
                square += white * white
            log_p[j] = log_top[j] - 0.5 * square
            top = max(top, log_p[j])
        total = 0.0
        for j in range(parts):
            log_p[j] = np.exp(log_p[j] - top)
            total += log_p[j]
        for j in range(parts):
            share[k, j] = log_p[j] / total
        mean += weight[k] * (top + np.log(total))
    return mean
