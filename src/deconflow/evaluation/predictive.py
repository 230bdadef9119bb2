"""What a fitted model says that measurements should look like, to hold against real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import kstest

from deconflow._types import Array
from deconflow.noise import Noise
from deconflow.randomness import isolated_rng


def simulate_like(model: Any, w: Array, noise: Noise, random_state: int = 0) -> Array:
    r"""Draw measurements ``(N, D)`` with the noise of these rows, missing where these are.

    .. math:: w'_i = v'_i + n'_i, \quad v'_i \sim p(v), \quad n'_i \text{ by the law of row } i
    """
    with isolated_rng(random_state):
        blur = noise.bind(len(w)).sample(1)[0].double().numpy()
    truth = model.sample(len(w), random_state=random_state)
    return np.where(np.isnan(w), np.nan, truth + blur)


def predictive_ranks(
    model: Any, w: Array, noise: Noise, *, n_draws: int = 99, random_state: int = 0
) -> Array:
    """Share of simulated measurements below each real one, ``(N, D)``, NaN where missing.

    Every row is held against ``n_draws`` measurements with its own noise. If the model is right
    these shares are uniform between 0 and 1, column by column.
    """
    rng = np.random.default_rng(random_state)
    truth = model.sample(max(2000, n_draws), random_state=random_state)
    below = np.zeros(w.shape)
    with isolated_rng(random_state):
        bound = noise.bind(len(w))
        for _ in range(n_draws):
            v = truth[rng.integers(len(truth), size=len(w))]
            below += v + bound.sample(1)[0].double().numpy() < w
    shares = (below + rng.uniform(size=w.shape)) / (n_draws + 1)
    return np.where(np.isnan(w), np.nan, shares)


def rank_gaps(ranks: Array) -> tuple[Array, Array]:
    """Largest gap between each column's ranks and uniform ones, with its p-value, each ``(D,)``."""
    tests = [kstest(column[~np.isnan(column)], "uniform") for column in ranks.T]
    return np.array([t.statistic for t in tests]), np.array([t.pvalue for t in tests])
