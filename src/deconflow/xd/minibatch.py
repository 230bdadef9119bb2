r"""Minibatch gradients.

The E-step's sums are the gradients of the log-likelihood: ``u`` for means, ``G / 2`` for
covariances, hence ``G L`` for Cholesky factors ``L``, and ``q0 - n pi`` for log weights.

References
----------
Ritchie and Murray (2019), "Scalable Extreme Deconvolution", https://arxiv.org/abs/1911.11663
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.standardising import Standardiser
from deconflow.xd.em import EMResult, Stopping, mean_log_likelihood
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import FITTING, FitSettings, PreparedData
from deconflow.xd.layout import lay_out
from deconflow.xd.maximisation import Constraints, with_floor

#: Gain per epoch in mean log-likelihood that cannot be told from the noise of batches.
SMALLEST_GAIN = 1e-4


@dataclass(frozen=True)
class Minibatches:
    """Size and number of the steps of :func:`fit_minibatch`."""

    batch_size: int = 1000
    epochs: int = 20
    learning_rate: float = 0.02


@dataclass
class Adam:
    """Adam for a mixture's log weights, means and log-Cholesky factors.

    Attributes
    ----------
    mixture : GaussianMixture
        In the units of the rows.
    constraints : Constraints
        Floor, and what is fixed.
    units : Standardiser
        The change of units that every batch goes through.
    """

    mixture: GaussianMixture
    constraints: Constraints
    units: Standardiser
    steps: int = 0
    first: Array | float = 0.0
    second: Array | float = 0.0

    @classmethod
    def start(cls, data: Observations, settings: FitSettings, rng: np.random.RandomState) -> "Adam":
        """Start at a mixture that is made from these rows, or given by the settings."""
        prepared = PreparedData(data)
        constraints = settings.constraints(prepared)
        begin = prepared.begin(prepared.start(settings, rng), constraints)
        return cls(begin, constraints, prepared.rows.units)

    @property
    def restored(self) -> GaussianMixture:
        """The mixture in the user's units."""
        return self.units.mixture_from_standard(self.mixture)

    def step(self, sums: Sums, n: float, rate: float) -> None:
        """Move along the gradient of the mean log-likelihood of a batch of weight ``n``.

        Coordinates are log weights, means in units of their component, and log-Cholesky factors;
        a step changes each by about ``rate`` at most.
        """
        old, (K, D) = self.mixture, self.mixture.means.shape
        L = np.linalg.cholesky(old.covariances)
        half = np.linalg.solve(L, sums.vgv)  # L' G V
        inner = np.tril(np.linalg.solve(L, np.swapaxes(half, 1, 2)))  # L' G L: V = L (I + A) ...
        means = np.linalg.solve(L, sums.vu[..., None])  # L' u
        slopes = np.concatenate([sums.q0 - n * old.weights, means.ravel(), inner.ravel()]) / n
        self.steps += 1
        self.first = self.first + 0.1 * (slopes - self.first)
        self.second = self.second + 0.001 * (slopes**2 - self.second)
        mean, square = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        moves = np.split(rate * mean / (np.sqrt(square) + 1e-8), np.cumsum([K, K * D]))
        inner, i = moves[2].reshape(K, D, D), np.arange(D)
        growth = np.tril(inner, -1)
        growth[:, i, i] = np.exp(inner[:, i, i])
        factors = L @ growth
        covariances = with_floor(factors @ np.swapaxes(factors, 1, 2), self.constraints.floor)
        shifts = np.einsum("kij,kj->ki", L, moves[1].reshape(K, D))
        weights = old.weights * np.exp(moves[0])
        self.mixture = self.constraints.kept(old, weights, old.means + shifts, covariances)


def has_settled(history: Sequence[float], tol: float) -> bool:
    """Whether the last quarter of the epochs is at most ``tol`` per epoch above the one before.

    Means over quarters smooth the noise of batches; a gain of 1e-4 counts as none. A single epoch
    tells nothing.

    Examples
    --------
    >>> has_settled([0.0, 1.0, 1.5, 1.7], 0.1), has_settled([0.0, 1.5, 1.6, 1.6], 0.1)
    (False, True)
    """
    quarter = -(-len(history) // 4)
    if len(history) < 2 * quarter or len(history) < 2:
        return False
    last, before = history[-quarter:], history[-2 * quarter : -quarter]
    return float(np.mean(last) - np.mean(before)) <= max(tol, SMALLEST_GAIN) * quarter


def step_on_batch(adam: Adam, data: Observations, rate: float, threads: int | None = None) -> float:
    """Take one step on a batch; return its mean log-likelihood before the step."""
    rows = lay_out(data, adam.units)
    sums = expectation(adam.mixture, rows, threads=threads)
    adam.step(sums, rows.total_weight, rate)
    return mean_log_likelihood(sums.log_p, rows)


def fit_minibatch(
    adam: Adam,
    data: Observations,
    stopping: Stopping,
    batches: Minibatches,
    rng: np.random.RandomState,
    progress: Progress = SILENT,
) -> EMResult:
    """Take some epochs of steps, with a learning rate that falls to zero along a cosine.

    The history has the mean log-likelihood of all rows in each epoch, each before the step of its
    batch: it may fall, as the gradients of batches are noisy.
    """
    progress.begin(FITTING, "epochs", batches.epochs)
    history: list[float] = []
    n_steps = batches.epochs * -(-len(data) // batches.batch_size)
    for _ in range(batches.epochs):
        order, total = rng.permutation(len(data)), 0.0
        for first in range(0, len(data), batches.batch_size):
            batch = data[order[first : first + batches.batch_size]]
            rate = batches.learning_rate * 0.5 * (1 + np.cos(np.pi * adam.steps / n_steps))
            total += len(batch) * step_on_batch(adam, batch, rate, stopping.threads)
        history.append(total / len(data))
        progress.advance()
    settled = has_settled(history, stopping.tol)
    return EMResult(adam.restored, history[-1], history, settled, batches.epochs)
