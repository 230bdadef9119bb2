r"""Minibatch gradients.

The E-step's sums are the gradients of the log-likelihood: ``u`` for means, ``G / 2`` for
covariances, hence ``G L`` for Cholesky factors ``L``, and ``q0 - n pi`` for log weights.

Starts for rows beyond memory: fits to samples that grow, and the curvature of the last one.

Several fits to rows beyond memory at once: every pass over the rows serves all of them.

Each fit leaves out a fold of the rows, told by a random number that belongs to a row's place in its
file: so no fit ever sees the rows that it is judged by, whatever the pass or number of processes.

References
----------
Ritchie and Murray (2019), "Scalable Extreme Deconvolution", https://arxiv.org/abs/1911.11663
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deconflow import ranks
from deconflow._types import Array, IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd.em import (
    EMResult,
    QuasiNewton,
    Stopping,
    inverse_curvature,
    steps,
)
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import FITTING, FitSettings, PreparedData, made_feasible, n_parameters
from deconflow.xd.layout import lay_out
from deconflow.xd.maximisation import Constraints, EMStatistics, one_pass, with_floor

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
        constraints, units = settings.constraints(prepared), prepared.rows.units
        begin = units.mixture_to_standard(prepared.start(settings, rng))
        return cls(made_feasible(begin, constraints), constraints, units)

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
    return float((rows.weights * sums.log_p).sum()) / rows.n_rows


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
    return EMResult(
        adam.restored, history[-1], history, has_settled(history, stopping.tol), batches.epochs
    )


#: Rows of the first sample, and how much larger the next one is.
FIRST_SAMPLE, GROWTH = 20_000, 10
#: Fits to samples are this much more exact than those to all rows: they are cheap, and what they
#: leave undone costs passes over everything.
SAMPLE_TOL = 0.01
#: Rows whose curvature is looked at, at most.
CURVATURE_ROWS = 100_000
#: Passes over everything that finding the curvature may cost in arithmetic; none of it reads.
CURVATURE_COST = 5.0


def fit_samples(
    sample: Observations,
    settings: FitSettings,
    n_init: int,
    rng: np.random.RandomState,
    begin: Callable[[int], None] = lambda n_rows: None,
) -> GaussianMixture:
    """Fit samples that grow, each from the last one's result; the first from several starts.

    ``begin`` is called with the number of rows of each sample before it is fitted.
    """
    tight = replace(settings.stopping, tol=SAMPLE_TOL * settings.stopping.tol)
    first, *larger = growing_sizes(len(sample))
    begin(first)
    start = PreparedData(sample[:first]).fit_from([None] * n_init, settings, rng)[0].mixture
    for size in larger:
        begin(size)
        exact = replace(settings, stopping=tight)
        start = PreparedData(sample[:size]).fit(exact, rng, start).mixture
    return start


def growing_sizes(n: int) -> list[int]:
    """Return the sizes of the samples, of which the last has all rows in memory.

    Examples
    --------
    >>> growing_sizes(1_000_000)
    [20000, 200000, 1000000]
    """
    sizes = [FIRST_SAMPLE]
    while sizes[-1] * GROWTH < n:
        sizes.append(sizes[-1] * GROWTH)
    return [*(size for size in sizes if size < n), n]


def quasi_newton(
    mixture: GaussianMixture,
    sample: PreparedData,
    n_rows: int,
    constraints: Constraints,
    stopping: Stopping,
) -> QuasiNewton | None:
    """Look at the curvature of a sample, where it is that of what is maximised; None for EM."""
    bound = constraints.fixed.any() or constraints.prior is not None
    parameters = n_parameters(mixture.n_components, mixture.dim)
    size = int(min(CURVATURE_ROWS, len(sample.data), CURVATURE_COST * n_rows / parameters))
    if bound or not stopping.accelerate or size < 2 * parameters:
        return None
    rows = lay_out(sample.data[:size], sample.rows.units)
    return QuasiNewton(constraints, inverse_curvature(mixture, rows, constraints, stopping.threads))


#: What makes whole numbers of random ones.
DIGITS = 2.0**53
#: Stands for the fold that a fit to all rows leaves out.
NO_FOLD = -1


def fold_numbers(numbers: Array, n_folds: int) -> IntArray:
    """Return the fold of each row, by its last digits: the first ones say who is in a sample."""
    return (numbers * DIGITS).astype(np.int64) % n_folds


@dataclass(frozen=True)
class Job:
    """A fit to all rows but those of a fold.

    Attributes
    ----------
    start : GaussianMixture
        Where to begin, in the user's units.
    settings : FitSettings
        How to fit.
    fold : int
        The fold that is left out.
    """

    start: GaussianMixture
    settings: FitSettings
    fold: int


class FoldedRows:
    """All rows of a stream, of all processes, in folds.

    Parameters
    ----------
    stream, overview
        The rows, and what a first pass has found.
    n_folds
        Number of folds.
    step
        Called after every chunk, with its number of rows.
    """

    def __init__(
        self,
        stream: RowStream,
        overview: Overview,
        n_folds: int,
        step: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.stream, self.seed, self.n_folds, self.step = stream, overview.seed, n_folds, step
        self.n_rows = overview.n_rows
        self.factor = overview.n_rows / overview.weight

    def pass_over(
        self,
        asked: Sequence[tuple[int, GaussianMixture]],
        units: Standardiser,
        threads: int | None,
    ) -> list[EMStatistics]:
        """Add up what EM needs to know for several mixtures, each without its fold."""
        found = ranks.together(lambda: self._own_pass(asked, units, threads))
        sums = ranks.total(*(np.asarray(part) for each in found for part in each.parts))
        width, answers = len(sums) // len(found), []  # all processes add up in one message
        for i in range(0, len(sums), width):
            n, *others = sums[i : i + width]
            weight, value, *arrays = (self.factor * part for part in others)
            answers.append(EMStatistics(int(n), float(weight), float(value), *arrays))
        return answers

    def _own_pass(
        self,
        asked: Sequence[tuple[int, GaussianMixture]],
        units: Standardiser,
        threads: int | None,
    ) -> list[EMStatistics]:
        """Add up over the rows of this process."""
        found = [EMStatistics.none(mixture) for _, mixture in asked]
        for data, numbers in self.stream.numbered_chunks(self.seed):
            fold = fold_numbers(numbers, self.n_folds)
            with self.stream.named_errors():
                parts = {f: lay_out(data[fold == f], units) for f in np.unique(fold)}
            for i, (left_out, mixture) in enumerate(asked):
                for f, rows in parts.items():
                    if f != left_out:
                        found[i] = found[i] + one_pass(mixture, rows, threads)
            self.step(len(data))
        return found


def fit_together(
    jobs: Sequence[Job],
    sample: Observations,
    rows: FoldedRows,
    threads: int | None,
    passed: Callable[[], None] = lambda: None,
    *,
    few_passes: bool = False,
) -> list[EMResult]:
    """Fit all jobs, pass by pass, until no likelihood rises; the answers are in the user's units.

    Parameters
    ----------
    jobs
        The fits.
    sample
        Some of the rows in memory, which say in which units to work and what floors mean.
    rows
        All rows.
    threads
        How many to use at most.
    passed
        Called after every pass.
    few_passes
        Whether to look at the curvature of the sample first, which saves passes.
    """
    prepared = PreparedData(sample)
    units = prepared.rows.units
    fits = []
    for job in jobs:
        constraints = job.settings.constraints(prepared)
        begin, faster = made_feasible(units.mixture_to_standard(job.start), constraints), None
        if few_passes:
            faster = quasi_newton(begin, prepared, rows.n_rows, constraints, job.settings.stopping)
        fits.append(steps(begin, constraints, job.settings.stopping, faster))
    del prepared
    asked = {i: next(fit) for i, fit in enumerate(fits)}
    ends: dict[int, EMResult] = {}
    while asked:
        found = rows.pass_over([(jobs[i].fold, each) for i, each in asked.items()], units, threads)
        passed()
        for i, sums in zip(list(asked), found, strict=True):
            try:
                asked[i] = fits[i].send(sums)
            except StopIteration as end:
                ends[i] = end.value
                del asked[i]
    for result in ends.values():
        result.mixture = units.mixture_from_standard(result.mixture)
    return [ends[i] for i in range(len(jobs))]
