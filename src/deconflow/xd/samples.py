"""Which rows choose a model where there are many: samples that grow, each within the next."""

import numpy as np

from deconflow._types import IntArray
from deconflow.observations import Observations

#: So many choose all at once.
FEW_ROWS = 50_000
#: Rows of the samples that choose where there are more.
SAMPLES = (20_000, 100_000)
#: More rows than these are fitted by what a sample has chosen.
MOST_TO_CHOOSE = 150_000
#: The next sample, or all rows, has at least so many times as many.
LEAST_GROWTH = 2.0
#: A column that fewer rows of a sample measure gets as many, if there are.
LEAST_MEASURED = 200


def growing_samples(data: Observations, rng: np.random.RandomState) -> list[IntArray]:
    """Return the rows of each sample, in order; none if all rows choose at once."""
    sizes = sample_sizes(len(data))
    if not sizes:
        return []
    order = _with_rare_columns(rng.permutation(len(data)), data, sizes[0])
    return [np.sort(order[:size]) for size in sizes]


def sample_sizes(n_rows: int) -> list[int]:
    """Return how many rows the samples have.

    Examples
    --------
    >>> sample_sizes(50_000), sample_sizes(150_000), sample_sizes(1_000_000)
    ([], [20000], [20000, 100000])
    """
    if n_rows <= FEW_ROWS:
        return []
    return [size for size in SAMPLES if size * LEAST_GROWTH <= n_rows]


def _with_rare_columns(order: IntArray, data: Observations, size: int) -> IntArray:
    """Move rows to the front that measure columns of which a sample would have next to none."""
    if data.observed is None:
        return order
    seen = np.asarray(data.observed)[order]
    rare = np.flatnonzero(seen[:size].sum(0) < LEAST_MEASURED)
    if not len(rare):
        return order
    first = np.unique(np.concatenate([np.flatnonzero(seen[:, d])[:LEAST_MEASURED] for d in rare]))
    return np.concatenate([order[first], np.delete(order, first)])
