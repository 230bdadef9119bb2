"""What a fitted model says that measurements should look like, to hold against real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deconflow._types import Array
from deconflow.noise import Noise
from deconflow.randomness import isolated_rng

ROWS_AT_ONCE = 100_000
"""How many rows are simulated at a time; memory is bounded by that."""


def simulate_like(model: Any, w: Array, noise: Noise, random_state: int = 0) -> Array:
    r"""Draw measurements ``(N, D)`` with the noise of these rows, missing where these are.

    .. math:: w'_i = v'_i + n'_i, \quad v'_i \sim p(v), \quad n'_i \text{ by the law of row } i
    """
    bound = noise.bind(len(w))
    simulated = _simulated(model, w, bound, 1, np.random.default_rng(random_state))[0]
    return np.where(np.isnan(w), np.nan, simulated)


def predictive_ranks(
    model: Any, w: Array, noise: Noise, *, n_draws: int = 99, random_state: int = 0
) -> Array:
    """Share of simulated measurements below each real one, ``(N, D)``, NaN where missing.

    Every row is held against ``n_draws`` measurements of its own, with its own noise. If the model
    is right these shares are independent from row to row, and uniform between 0 and 1. Equal
    values, as of counts, stand in a random order.
    """
    rng = np.random.default_rng(random_state)
    bound = noise.bind(len(w))
    below, equal = np.zeros(w.shape), np.zeros(w.shape)
    at_once = max(1, ROWS_AT_ONCE // len(w))
    for done in range(0, n_draws, at_once):
        count = min(at_once, n_draws - done)
        simulated = _simulated(model, w, bound, count, rng)
        below += (simulated < w).sum(0)
        equal += (simulated == w).sum(0)
    shares = (below + rng.uniform(size=w.shape) * (1 + equal)) / (n_draws + 1)
    return np.where(np.isnan(w), np.nan, shares)


def _simulated(model: Any, w: Array, noise: Noise, count: int, rng: np.random.Generator) -> Array:
    """Draw ``(count, N, D)``; truth and noise have seeds of their own, to be independent."""
    if noise.flags is not None:
        raise ValueError("Expected noise without limits to simulate rows; got some. Use p_values.")
    of_truth, of_noise = rng.integers(2**31, size=2).tolist()
    if not noise.additive:
        truth = torch.from_numpy(model.sample(count * len(w), random_state=of_truth))
        location = torch.from_numpy(np.nan_to_num(w))
        with isolated_rng(of_noise):
            measured = [noise.measure(v, location)[0] for v in truth.reshape(count, *w.shape)]
        return torch.stack(measured).numpy()
    with isolated_rng(of_noise):
        blur = noise.sample(count).double().numpy()
    truth = model.sample(blur.shape[0] * blur.shape[1], random_state=of_truth)
    return truth.reshape(blur.shape) + blur
