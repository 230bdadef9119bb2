r"""What each of several densities should get of an average, judged by rows that none has seen."""

import numpy as np
from scipy.special import logsumexp

from deconflow._types import Array

BOOTSTRAPS = 500
EVEN_SHARE = 0.1
#: Nats that a parameter must gain in all rows together.
PRICE = 0.25
ROWS_AT_ONCE = 100_000
#: Rows that are drawn anew one by one; more are drawn in so many blocks of neighbours, whose sums
#: vary as those of their rows do.
MOST_DRAWN = 50_000
#: What has less of an average is left out: it would cost more time than it gains.
SMALLEST_SHARE = 0.03
#: Of the way from how often each is the best to the average that is: where rows can tell they do
#: so in these steps, and where they cannot next to nothing happens in them.
STEPS = 100


def paired(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """How far each of ``(C, N)`` log-likelihoods is behind the best, and the standard error."""
    means = np.average(rows_p, axis=1, weights=weights)
    difference = rows_p[means.argmax()] - rows_p
    behind = means.max() - means
    spread = np.square(weights * (difference - behind[:, None])).sum(axis=1)
    return behind, np.sqrt(spread) / weights.sum()


def wins(rows_p: Array, weights: Array, price: Array, rng: np.random.RandomState) -> Array:
    r"""How often each of ``(C, N)`` log-likelihoods is the best when the rows are drawn anew.

    .. math:: P\Bigl(\sum_i e_i \ell_{ci} - c_c \ge \sum_i e_i \ell_{di} - c_d
              \;\forall d\Bigr), \qquad e_i \sim \mathrm{Exp}(1)

    The Bayesian bootstrap, after the ``price`` ``(C,)`` of each, in nats of all rows together.

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
    distributions", https://arxiv.org/abs/1704.02030
    """
    centred, weights = _in_blocks(rows_p - rows_p.mean(0), weights)
    counts = np.zeros(len(rows_p))
    for _ in range(BOOTSTRAPS):
        drawn = weights * rng.standard_exponential(len(weights))
        drawn *= weights.sum() / drawn.sum()
        counts[np.argmax(centred @ drawn - price)] += 1
    return counts / BOOTSTRAPS


def _in_blocks(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """Return means of blocks of rows, and their weights; the rows themselves if they are few."""
    size = -(-len(weights) // MOST_DRAWN)
    if size <= 1:
        return rows_p, weights
    first = np.arange(0, len(weights), size)
    total = np.maximum(np.add.reduceat(weights, first), 1e-300)
    return np.add.reduceat(rows_p * weights, first, axis=1) / total, total


def log_average(rows_p: Array, shares: Array) -> Array:
    """Log-likelihoods ``(N,)`` of the average of densities ``(C, N)`` by their shares."""
    used = shares > 0
    answer = np.empty(rows_p.shape[1])
    for first in range(0, len(answer), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        answer[part] = logsumexp(rows_p[used, part], axis=0, b=shares[used, None])
    return answer


def stacked(rows_p: Array, weights: Array, start: Array, steps: int = STEPS) -> Array:
    r"""Take EM steps towards the shares whose average gives ``(C, N)`` rows the most.

    .. math:: a_c' = \frac{1}{N} \sum_i \frac{a_c \, p_{ci}}{\sum_d a_d \, p_{di}}

    Few steps stay near the start where the rows cannot tell: there all the way would be chance.
    """
    p = np.exp(rows_p - rows_p.max(0))
    shares = start / start.sum()
    for _ in range(steps):
        shares = shares * (p @ (weights / (shares @ p))) / weights.sum()
    return shares


def shares_of(
    rows_p: Array,
    weights: Array,
    parameters: Array,
    rng: np.random.RandomState,
) -> Array:
    """Share out an average: from how often each is the best, some way to the best average.

    Where rows cannot tell, those of fewer ``parameters`` ``(C,)`` win more often: what noisy rows
    do not see of the others' details is mostly chance.
    """
    often = wins(rows_p, weights, PRICE * parameters, rng)
    start = (1 - EVEN_SHARE) * often + EVEN_SHARE / len(often)
    return _without_small(stacked(rows_p, weights, start))


def even_shares(rows_p: Array, weights: Array) -> Array:
    """Share out an average of densities of which any may be the best: evenly, unless rows object.

    Where rows are many, sizes that they cannot tell apart err in different places, and an even
    average is nearer to the truth than any of them (moons of 10^6 rows: .006 from .009 to .010).
    """
    return _without_small(stacked(rows_p, weights, np.ones(len(rows_p))))


def _without_small(shares: Array) -> Array:
    shares = np.where(shares >= min(SMALLEST_SHARE, shares.max()), shares, 0.0)
    return shares / shares.sum()
