r"""Minibatch gradients, for data that do not fit in memory.

The E-step's sums are the gradients of the log-likelihood: ``u`` for means, ``G / 2`` for
covariances, hence ``G L`` for Cholesky factors ``L``, and ``q0 - n pi`` for log weights.

References
----------
Ritchie and Murray (2019), "Scalable Extreme Deconvolution", https://arxiv.org/abs/1911.11663
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow.observations import Observations
from deconflow.xd.em import EMResult, mean_log_likelihood
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.maximisation import Rules, raised
from deconflow.xd.mixture import Mixture
from deconflow.xd.rows import lay_out
from deconflow.xd.units import Units

Array = NDArray[np.float64]


@dataclass
class Adam:
    """Adam for a mixture's log weights, means and log-Cholesky factors.

    Attributes
    ----------
    mixture : Mixture
        In the units of the rows.
    rules : Rules
        Floor, and what is fixed.
    learning_rate : float
        Largest change of a coordinate in one step, about.
    """

    mixture: Mixture
    rules: Rules
    learning_rate: float = 0.01
    steps: int = 0
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)

    def step(self, sums: Sums, n: float, rate: float | None = None) -> None:
        """Climb along the gradient of the mean log-likelihood of a batch of weight ``n``."""
        gradients = self._gradients(sums, n)
        if not self.first:
            self.first = [np.zeros_like(g) for g in gradients]
            self.second = [np.zeros_like(g) for g in gradients]
        self.steps += 1
        rate = self.learning_rate if rate is None else rate
        moves = []
        for a, b, g in zip(self.first, self.second, gradients, strict=True):
            a += 0.1 * (g - a)
            b += 0.001 * (g**2 - b)
            mean, square = a / (1 - 0.9**self.steps), b / (1 - 0.999**self.steps)
            moves.append(rate * mean / (np.sqrt(square) + 1e-8))
        self.mixture = self._moved(*moves)

    def _gradients(self, sums: Sums, n: float) -> list[Array]:
        """Gradients by log weights, means in units of their component, and log-Cholesky."""
        L = np.linalg.cholesky(self.mixture.covariances)
        half = np.linalg.solve(L, sums.vgv)  # L' G V
        inner = np.tril(np.linalg.solve(L, np.swapaxes(half, 1, 2)))  # L' G L: V = L (I + A) ...
        means = np.linalg.solve(L, sums.vu[..., None])[..., 0]  # L' u
        return [(sums.q0 - n * self.mixture.weights) / n, means / n, inner / n]

    def _moved(self, log_weights: Array, means: Array, inner: Array) -> Mixture:
        old, rules = self.mixture, self.rules
        L = np.linalg.cholesky(old.covariances)
        weights = old.weights * np.exp(log_weights)
        fixed = rules.fixed_weights
        left = max(0.0, 1.0 - float(old.weights[fixed].sum()))
        free = max(float(weights[~fixed].sum()), 1e-300)
        weights = np.where(fixed, old.weights, weights / free * left)
        shifts = np.einsum("kij,kj->ki", L, means)
        i = np.arange(old.dim)
        growth = np.tril(inner, -1)
        growth[:, i, i] = np.exp(inner[:, i, i])
        factors = L @ growth
        covariances = raised(factors @ np.swapaxes(factors, 1, 2), rules.floor)
        keep = rules.fixed_covariances
        covariances[keep] = old.covariances[keep]
        shifts[rules.fixed_means] = 0.0
        return Mixture(weights, old.means + shifts, covariances)


def climb(adam: Adam, data: Observations, units: Units, rate: float | None = None) -> float:
    """Take one step on a batch; return its mean log-likelihood before the step."""
    rows = lay_out(data, units)
    sums = expectation(adam.mixture, rows)
    adam.step(sums, rows.total_weight, rate)
    return mean_log_likelihood(sums.log_p, rows)


def fit_minibatch(
    adam: Adam,
    data: Observations,
    units: Units,
    *,
    epochs: int,
    batch_size: int,
    rng: np.random.RandomState,
) -> EMResult:
    """Climb for some epochs, with a learning rate that falls to zero along a cosine."""
    history: list[float] = []
    per_epoch = -(-len(data) // batch_size)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(data)))
        values = []
        for batch in order.split(batch_size):
            share = adam.steps / (epochs * per_epoch)
            rate = adam.learning_rate * 0.5 * (1 + np.cos(np.pi * min(share, 1.0)))
            values.append(climb(adam, data[batch], units, rate))
        history.append(float(np.mean(values)))
    return EMResult(adam.mixture, history[-1], history, True, epochs)
