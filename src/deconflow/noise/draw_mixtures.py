r"""A few Gaussians for each row's weighted draws, and how many.

All in coordinates in which a row's draws have mean zero and unit covariance.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numba import njit
from scipy.special import logsumexp
from scipy.stats import chi2

from deconflow._types import Array, BoolArray, IntArray

MOST_PARTS = 4
#: Steps of EM for a row end when it gains less than this, in nats per draw.
STEPS, GAIN = 100, 3e-4
#: Of EM for how common each number of Gaussians is.
ROUNDS = 100
#: Rows whose skewness and kurtosis have larger p-values stay with one Gaussian.
LOOKS_GAUSSIAN = 0.1
#: Effective number of draws for each Gaussian, at least.
DRAWS_PER_PART = 10


def fit_mixtures(
    chunks: Iterable[tuple[IntArray, Array, Array]], size: Array, factor: Array, covariance: Array
) -> tuple[Array, ...] | None:
    """Weights, means and covariances of ``mean - v``; None if one Gaussian is enough for all rows.

    Parameters
    ----------
    chunks
        Numbers of some rows with their white draws ``(n, K, D)`` and weights ``(n, K)``.
    size
        ``(N,)``: effective numbers of draws.
    factor, covariance
        ``(N, D, D)``: what white draws are multiplied by, and the covariances of rows that have one
        Gaussian. Rows with fewer Gaussians than others have idle ones.
    """
    evidence = np.empty((len(size), MOST_PARTS))
    found = []
    for some, u, weight in chunks:
        evidence[some], fits = _try_parts(u, weight, size[some])
        found += [(some[rows], fit) for rows, fit in fits]
    number = _choose(evidence)
    if number.max() == 1:
        return None
    n, dim = factor.shape[:2]
    weights, means = np.zeros((n, MOST_PARTS)), np.zeros((n, MOST_PARTS, dim))
    covariances = np.repeat(covariance[:, None], MOST_PARTS, 1)
    weights[:, 0] = 1.0
    for rows, fit in found:
        j = fit[0].shape[1]
        used = number[rows] == j
        at = rows[used]
        L = factor[at][:, None]
        weight, mean, own = (each[used] for each in fit)
        weights[at, :j] = weight / weight.sum(1, keepdims=True)
        means[at, :j] = -(L @ mean[..., None])[..., 0]
        covariances[at, :j] = L @ own @ L.swapaxes(-1, -2)
    return tuple(each[:, : number.max()] for each in (weights, means, covariances))


def _try_parts(
    u: Array, weight: Array, size: Array
) -> tuple[Array, list[tuple[IntArray, list[Array]]]]:
    """Fit two to four Gaussians to white draws ``(n, K, D)`` of weights ``(n, K)``.

    ``size`` is the effective number of each row's draws. Returns the marginal log-likelihood of
    each number of Gaussians by Schwarz's approximation, ``(n, 4)``, relative to that of one and
    minus infinity where not tried; and the Gaussians of the rows tried, for each number.
    """
    n, _, dim = u.shape
    evidence = np.full((n, MOST_PARTS), -np.inf)
    evidence[:, 0] = 0.0
    found = []
    rows = np.flatnonzero(_looks_odd(u, weight, size))
    for parts in range(2, MOST_PARTS + 1):
        rows = rows[size[rows] >= DRAWS_PER_PART * parts]
        *fit, level = _best_fit(u[rows], weight[rows], size[rows], parts)
        more = (parts - 1) * (1 + dim + dim * (dim + 1) / 2)
        gain = size[rows] * (level + 0.5 * dim)  # one Gaussian: the mean of -|u|^2 / 2
        evidence[rows, parts - 1] = gain - 0.5 * more * np.log(size[rows])
        found.append((rows, fit))
        # where one more does not help, two more hardly ever do
        rows = rows[evidence[rows, parts - 1] > evidence[rows, parts - 2]]
    return evidence, found


def _choose(evidence: Array) -> IntArray:
    """Choose the number of Gaussians of each row, from ``(N, 4)`` marginal log-likelihoods.

    How common each number is among all rows is their prior: in a table of Gaussian rows a single
    one needs much to be told from chance, in a table of skewed rows little.
    """
    share = np.full(MOST_PARTS, 1 / MOST_PARTS)
    for _ in range(ROUNDS):
        log_p = evidence + np.log(share + 1e-300)
        share = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)).mean(0)
    return log_p.argmax(1) + 1


def _looks_odd(u: Array, weight: Array, size: Array) -> BoolArray:
    """Whether skewness, or kurtosis in any direction, differ from a Gaussian's (Mardia 1970)."""
    dim = u.shape[-1]
    skewness = np.square(_skew(u, weight)).sum(-1) / (2 * (dim + 2))
    skewed = size * skewness > chi2.isf(LOOKS_GAUSSIAN, dim)
    kurtosis = np.linalg.eigvalsh(_fourth(u, weight)) - (dim + 2)
    return skewed | (size * np.square(kurtosis).max(1) / 24 > chi2.isf(LOOKS_GAUSSIAN, 1))


def _skew(u: Array, weight: Array) -> Array:
    return ((weight * np.square(u).sum(-1))[..., None] * u).sum(1)


def _fourth(u: Array, weight: Array) -> Array:
    return np.einsum("nk,nki,nkj->nij", weight * np.square(u).sum(-1), u, u, optimize=True)


def _best_fit(u: Array, weight: Array, size: Array, parts: int) -> list[Array]:
    """Fit from two starts, and take each row's better one; with its mean log density."""
    skew, fourth = _skew(u, weight), _fourth(u, weight)
    # Draws may fall apart where they are most skewed, or where their tails are shortest, as of two
    # humps.
    skewed = np.where(np.linalg.norm(skew, axis=1, keepdims=True) > 0, skew, 1.0)
    fits = [
        _fit_rows(u, weight, size, _split_along(u, weight, axis, parts), STEPS, GAIN)
        for axis in (skewed, np.linalg.eigh(fourth)[1][..., 0])
    ]
    second = fits[1][3] > fits[0][3]
    return [
        np.where(second.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(*fits, strict=True)
    ]


def _split_along(u: Array, weight: Array, axis: Array, parts: int) -> Array:
    """Put draws into parts of equal weight along a direction: shares ``(n, K, parts)``."""
    order = np.einsum("nkd,nd->nk", u, axis).argsort(1)
    mass = np.take_along_axis(weight, order, 1)
    below = np.cumsum(mass, 1) - 0.5 * mass
    which = np.empty(order.shape, int)
    np.put_along_axis(which, order, np.minimum((below * parts).astype(int), parts - 1), 1)
    return (which[..., None] == np.arange(parts)).astype(float)


# -- EM, compiled: row by row, each until it gains no more ---------------------------------------


def _compiled(function: Callable) -> Any:
    """Compile without the GIL, once per machine if a cache can be written."""
    make: Any = njit
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return make(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to write to
        return make(**options)(function)


@_compiled
def _fit_rows(
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
    inverse = np.empty((parts, dim, dim))
    log_top = np.empty(parts)
    for i in range(n):
        for _ in range(steps):
            _maximise(u[i], weight[i], size[i], share[i], weights[i], means[i], covariances[i])
            for j in range(parts):
                factor = np.linalg.cholesky(covariances[i, j])
                log_top[j] = np.log(weights[i, j]) - np.log(np.diag(factor)).sum()
                inverse[j] = np.linalg.inv(factor)
            now = _expect(u[i], weight[i], means[i], inverse, log_top, share[i])
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
        q = weight * share[:, j]
        total = q.sum() + 1e-12
        means[j] = q @ u / total
        cov[j] = 0.0
        for k in range(n_draws):
            for a in range(dim):
                for b in range(a + 1):
                    cov[j, a, b] += q[k] * (u[k, a] - means[j, a]) * (u[k, b] - means[j, b])
        count = total * size
        grown = (count + 1.0) / count**2
        for a in range(dim):
            cov[j, a, a] += 1.0 / (size * parts ** (2.0 / dim))
            cov[j, :a, a] = cov[j, a, :a]
        cov[j] *= size * grown
        weights[j] = total


@_compiled
def _expect(
    u: Array, weight: Array, means: Array, inverse: Array, log_top: Array, share: Array
) -> float:
    """Shares of a row's draws, in place; returns their mean log density."""
    n_draws, dim = u.shape
    parts = len(log_top)
    mean = 0.0
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
            share[k, j] = log_top[j] - 0.5 * square
            top = max(top, share[k, j])
        total = 0.0
        for j in range(parts):
            share[k, j] = np.exp(share[k, j] - top)
            total += share[k, j]
        share[k] /= total
        mean += weight[k] * (top + np.log(total))
    return mean
