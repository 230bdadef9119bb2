"""Several fits to rows beyond memory at once: every pass over the rows serves all of them.

Each fit leaves out a fold of the rows, told by a random number that belongs to a row's place in its
file: so no fit ever sees the rows that it is judged by, whatever the pass or number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow import ranks
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd.em import EMResult, em
from deconflow.xd.em_statistics import EMStatistics, one_pass
from deconflow.xd.fit import FitSettings, PreparedData
from deconflow.xd.layout import KernelRows, lay_out

DIGITS = 2.0**53
"""What makes whole numbers of random ones."""
NO_FOLD = -1
"""Stands for the fold that a fit to all rows leaves out."""


def fold_numbers(numbers: Array, n_folds: int) -> NDArray[np.int64]:
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
        return [each.times(self.factor) for each in _of_all_ranks(found)]

    def _own_pass(
        self,
        asked: Sequence[tuple[int, GaussianMixture]],
        units: Standardiser,
        threads: int | None,
    ) -> list[EMStatistics]:
        """Add up over the rows of this process."""
        found = [EMStatistics.none(mixture) for _, mixture in asked]
        for data, numbers in self.stream.numbered_chunks(self.seed):
            with self.stream.named_errors():
                parts = self._folds_of(data, numbers, units)
            for i, (left_out, mixture) in enumerate(asked):
                for fold, rows in parts:
                    if fold != left_out:
                        found[i] = found[i] + one_pass(mixture, rows, threads)
            self.step(len(data))
        return found

    def _folds_of(
        self, data: Observations, numbers: Array, units: Standardiser
    ) -> list[tuple[int, KernelRows]]:
        """Lay a chunk out, fold by fold."""
        if self.n_folds == 1:
            return [(0, lay_out(data, units))]
        fold = torch.from_numpy(fold_numbers(numbers, self.n_folds))
        masks = [(f, fold == f) for f in range(self.n_folds)]
        return [(f, lay_out(data[mask], units)) for f, mask in masks if mask.any()]


class StreamedRows(FoldedRows):
    """All rows of a stream, of all processes, as one fit by EM sees them.

    Parameters
    ----------
    stream, overview
        The rows, and what a first pass has found.
    units
        The change of units that all chunks are given.
    step
        Called after every chunk, with its number of rows.
    """

    def __init__(
        self,
        stream: RowStream,
        overview: Overview,
        units: Standardiser,
        step: Callable[[int], None] = lambda n: None,
    ) -> None:
        super().__init__(stream, overview, 1, step)
        self.units, self.dim, self.total_weight = units, len(units.scale), float(overview.n_rows)

    def one_pass(self, mixture: GaussianMixture, threads: int | None) -> EMStatistics:
        """Add up over all rows what EM needs of them."""
        return self.pass_over([(NO_FOLD, mixture)], self.units, threads)[0]


def _of_all_ranks(found: list[EMStatistics]) -> list[EMStatistics]:
    """Add up over processes, all in one message."""
    sums = ranks.total(*(np.asarray(part) for each in found for part in each.parts))
    width = len(sums) // len(found)
    answers = []
    for i in range(len(found)):
        n, weight, value, *arrays = sums[width * i : width * (i + 1)]
        answers.append(EMStatistics(int(n), float(weight), float(value), *arrays))
    return answers


class _Seat:
    """All rows but a fold, as one fit sees them: it waits until all have asked for a pass."""

    def __init__(self, number: int, rows: FoldedRows, dim: int, asked: SimpleQueue) -> None:
        self.number, self.asked, self.dim = number, asked, dim
        self.answers: SimpleQueue[EMStatistics | BaseException] = SimpleQueue()
        self.n_rows, self.total_weight = rows.n_rows, float(rows.n_rows)

    def one_pass(self, mixture: GaussianMixture, threads: int | None) -> EMStatistics:
        """Ask for a pass, and wait for its sums."""
        self.asked.put((self.number, mixture))
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        self.n_rows, self.total_weight = answer.n_rows, answer.weight
        return answer


def fit_together(
    jobs: Sequence[Job],
    sample: Observations,
    rows: FoldedRows,
    threads: int | None,
    kept: Callable[[], None] = lambda: None,
) -> list[EMResult]:
    """Fit all jobs, pass by pass; the answers are in the user's units.

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
    kept
        Called after every pass.
    """
    prepared = PreparedData(sample)
    units = prepared.rows.units
    asked: SimpleQueue[tuple[int, GaussianMixture | None]] = SimpleQueue()
    seats = [_Seat(i, rows, sample.latent_dim, asked) for i in range(len(jobs))]
    constraints = [job.settings.constraints(prepared) for job in jobs]
    begins = [prepared.begin(job.start, c) for job, c in zip(jobs, constraints, strict=True)]
    del prepared

    def work(i: int) -> EMResult:
        try:
            return em(begins[i], seats[i], constraints[i], jobs[i].settings.stopping)
        finally:
            asked.put((i, None))

    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        running = [pool.submit(work, i) for i in range(len(jobs))]
        _serve(jobs, seats, asked, lambda each: rows.pass_over(each, units, threads), kept)
        results = [each.result() for each in running]
    for result in results:
        result.mixture = units.mixture_from_standard(result.mixture)
    return results


def _serve(
    jobs: Sequence[Job],
    seats: Sequence[_Seat],
    asked: SimpleQueue[tuple[int, GaussianMixture | None]],
    pass_over: Callable[[list[tuple[int, GaussianMixture]]], list[EMStatistics]],
    kept: Callable[[], None],
) -> None:
    """Pass over the rows whenever all fits that still run have asked for it."""
    running, waiting = set(range(len(jobs))), dict[int, GaussianMixture]()
    while running:
        number, mixture = asked.get()
        if mixture is None:
            running.discard(number)
        else:
            waiting[number] = mixture
        if not waiting or len(waiting) < len(running):
            continue
        order = sorted(waiting)
        answers: Sequence[EMStatistics | BaseException]
        try:
            answers = pass_over([(jobs[i].fold, waiting[i]) for i in order])
            kept()
        except BaseException as error:  # the fits must end, too, or nobody ever would
            answers = [error] * len(order)
        waiting.clear()
        for i, answer in zip(order, answers, strict=True):
            seats[i].answers.put(answer)
