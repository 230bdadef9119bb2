"""Measurements that a fitted model expects, to compare with real ones."""

from collections.abc import Callable, Iterator

import numpy as np

from deconflow._types import Array
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng

#: Draws true values ``(n, D)``, given ``n`` and a seed.
Sampler = Callable[[int, int], Array]
#: True values drawn at a time; memory is bounded by that.
ROWS_AT_ONCE = 100_000


def simulate_like(
    sample: Sampler, data: Observations, seed: int = 0, times: int = 1
) -> Iterator[Array]:
    r"""Yield measurements ``(N, M)`` with the noise of these rows, missing where these are.

    .. math:: w'_i = R_i v'_i + n'_i, \quad v'_i \sim p(v), \quad n'_i \text{ as of row } i
    """
    rng, missing = np.random.default_rng(seed), np.isnan(data.measured())
    at_once = max(1, ROWS_AT_ONCE // len(data))
    for done in range(0, times, at_once):
        count = min(at_once, times - done)
        of_values, of_noise = rng.integers(2**31, size=2).tolist()  # to be independent
        v = sample(count * len(data), of_values).reshape(count, len(data), -1)
        with isolated_rng(of_noise):
            simulated = [np.asarray(data.remeasure(each).w) for each in v]
        yield from (np.where(missing, np.nan, each) for each in simulated)


def predictive_ranks(
    sample: Sampler, data: Observations, n_draws: int = 99, seed: int = 0
) -> Array:
    """Share of simulated measurements below each real one, ``(N, M)``, NaN where missing.

    Every row is compared with ``n_draws`` measurements of its own, with its own noise. If the model
    is right these shares are independent from row to row, and uniform between 0 and 1. Equal
    values, as of counts, are in a random order.
    """
    w = data.measured()
    below, equal = np.zeros(w.shape), np.zeros(w.shape)
    for simulated in simulate_like(sample, data, seed, n_draws):
        below += simulated < w
        equal += simulated == w
    u = np.random.default_rng([seed, 1]).uniform(size=w.shape)
    return np.where(np.isnan(w), np.nan, (below + u * (1 + equal)) / (n_draws + 1))
