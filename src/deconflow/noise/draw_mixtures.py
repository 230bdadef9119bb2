r"""A few Gaussians for each row's weighted draws, and how many.

All in coordinates in which a row's draws have mean zero and unit covariance.
"""

from dataclasses import dataclass

import numpy as np
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


@dataclass(frozen=True)
class Parts:
    """Gaussians of some rows: ``weights (n, J)``, ``means (n, J, D)`` and ``covariances``."""

    rows: IntArray
    weights: Array
    means: Array
    covariances: Array


def try_parts(u: Array, weight: Array, size: Array) -> tuple[Array, list[Parts]]:
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
        fit, level = _best_fit(u[rows], weight[rows], size[rows], parts)
        more = (parts - 1) * (1 + dim + dim * (dim + 1) / 2)
        gain = size[rows] * (level + 0.5 * dim)  # one Gaussian: the mean of -|u|^2 / 2
        evidence[rows, parts - 1] = gain - 0.5 * more * np.log(size[rows])
        found.append(Parts(rows, *fit))
        # where one more does not help, two more hardly ever do
        rows = rows[evidence[rows, parts - 1] > evidence[rows, parts - 2]]
    return evidence, found


def choose(evidence: Array) -> IntArray:
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


def _best_fit(
    u: Array, weight: Array, size: Array, parts: int
) -> tuple[tuple[Array, Array, Array], Array]:
    """Fit from two starts, and take each row's better one; with its mean log density."""
    from deconflow.noise.draw_passes import fit_rows  # numba takes a second to import

    fits = [
        fit_rows(u, weight, size, _split_along(u, weight, axis, parts), STEPS, GAIN)
        for axis in _axes(u, weight)
    ]
    second = fits[1][3] > fits[0][3]
    best = [
        np.where(second.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(*fits, strict=True)
    ]
    return (best[0], best[1], best[2]), best[3]


def _axes(u: Array, weight: Array) -> tuple[Array, Array]:
    """Two directions ``(n, D)`` along which a row's draws may fall apart.

    That in which they are most skewed, and that in which their tails are shortest, as of two
    humps.
    """
    skew = _skew(u, weight)
    length = np.linalg.norm(skew, axis=1, keepdims=True)
    shortest = np.linalg.eigh(_fourth(u, weight))[1][..., 0]
    return np.where(length > 0, skew, 1.0), shortest


def _split_along(u: Array, weight: Array, axis: Array, parts: int) -> Array:
    """Put draws into parts of equal weight along a direction: shares ``(n, K, parts)``."""
    order = np.einsum("nkd,nd->nk", u, axis).argsort(1)
    mass = np.take_along_axis(weight, order, 1)
    below = np.cumsum(mass, 1) - 0.5 * mass
    which = np.empty(order.shape, int)
    np.put_along_axis(which, order, np.minimum((below * parts).astype(int), parts - 1), 1)
    return (which[..., None] == np.arange(parts)).astype(float)
