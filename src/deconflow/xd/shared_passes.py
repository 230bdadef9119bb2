"""Several fits to rows beyond memory at once: every pass over the rows serves all of them.

Each fit leaves out a fold of the rows, told by a random number that belongs to a row's place in its
file: so no fit ever sees the rows that it is judged by, whatever the pass or number of processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deconflow import ranks
from deconflow._types import Array, IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd.em import EMResult, steps
from deconflow.xd.em_statistics import EMStatistics, one_pass
from deconflow.xd.fit import FitSettings, PreparedData
from deconflow.xd.layout import KernelRows, lay_out
from deconflow.xd.many_rows import quasi_newton

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
        fold = fold_numbers(numbers, self.n_folds)
        masks = [(f, fold == f) for f in range(self.n_folds)]
        return [(f, lay_out(data[mask], units)) for f, mask in masks if mask.any()]


def _of_all_ranks(found: list[EMStatistics]) -> list[EMStatistics]:
    """Add up over processes, all in one message."""
    sums = ranks.total(*(np.asarray(part) for each in found for part in each.parts))
    width = len(sums) // len(found)
    answers = []
    for i in range(len(found)):
        n, weight, value, *arrays = sums[width * i : width * (i + 1)]
        answers.append(EMStatistics(int(n), float(weight), float(value), *arrays))
    return answers


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
        begin, faster = prepared.begin(job.start, constraints), None
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
