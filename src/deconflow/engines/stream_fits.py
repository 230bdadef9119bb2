"""Fits to rows beyond memory: samples choose and start, passes over all rows fit."""

from dataclasses import replace

import numpy as np

from deconflow import ranks
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd import (
    NO_FOLD,
    EMResult,
    Everything,
    FitSettings,
    Fold,
    FoldedRows,
    Job,
    fit_samples,
    fit_together,
    fold_numbers,
    numbered_folds,
)

SAMPLES, PASSES = "fitting samples", "passing over all rows"


class Passing:
    """Progress of passes over rows: each is a stage, whose steps are rows.

    Parameters
    ----------
    progress
        Counts the rows.
    n_rows
        How many rows all processes have together.
    """

    def __init__(self, progress: Progress, n_rows: int) -> None:
        self.progress, self.number = progress, 0
        self.n_rows = -(-n_rows // ranks.world())
        self.next()

    def __call__(self, n: int) -> None:
        """Count the rows of a chunk."""
        self.progress.advance(n)

    def next(self) -> None:
        """Begin the next pass."""
        self.number += 1
        self.progress.begin(f"{PASSES}, pass {self.number}", "rows", self.n_rows)


def fit_stream(
    stream: RowStream,
    overview: Overview,
    sample: Observations,
    settings: FitSettings,
    *,
    n_init: int,
    rng: np.random.RandomState,
    progress: Progress,
) -> EMResult:
    """Fit samples that grow, then pass over everything."""
    progress.begin(SAMPLES)
    start = fit_samples(sample, settings, n_init, rng, lambda n: progress.advance(0, f"{n:,} rows"))
    passing = Passing(progress, overview.n_rows)
    rows = FoldedRows(stream, overview, 1, passing)
    job, threads = Job(start, settings, NO_FOLD), settings.stopping.threads
    return fit_together([job], sample, rows, threads, passing.next, few_passes=True)[0]


def in_memory(overview: Overview) -> bool:
    """Whether the sample has all rows of a stream that can be used."""
    return overview.n_rows <= len(overview.sample_numbers)


def folds_of_sample(overview: Overview, n_folds: int) -> list[Fold]:
    """Return the folds of a sample's rows: those that they have at every pass over all rows.

    Rows without weight are no rows of the sample any more.
    """
    numbers, weights = overview.sample_numbers, overview.sample.weights
    if weights is not None:
        numbers = numbers[weights > 0]
    return numbered_folds(fold_numbers(numbers, n_folds), n_folds)


def everything_of(
    stream: RowStream,
    overview: Overview,
    sample: Observations,
    n_folds: int,
    *,
    threads: int | None,
    progress: Progress,
    units: Standardiser | None = None,
) -> Everything:
    """Return what fits mixtures to all rows of a stream.

    Parameters
    ----------
    stream, overview
        The rows, and what a first pass has found.
    sample
        Rows of that pass, in the user's units.
    n_folds
        Number of folds.
    threads, progress
        How many threads to use, and what counts the rows of each pass.
    units
        The units of the mixtures; None for the user's.
    """

    def fit(jobs: list[Job]) -> list[EMResult]:
        passing = Passing(progress, overview.n_rows)
        rows = FoldedRows(stream, overview, n_folds, passing)
        jobs = ranks.from_first(jobs)
        if units is not None:
            jobs = [replace(job, start=units.mixture_from_standard(job.start)) for job in jobs]
        results = fit_together(jobs, sample, rows, threads, passing.next)
        if units is not None:
            for result in results:
                result.mixture = units.mixture_to_standard(result.mixture)
        return results

    return Everything(overview.n_rows, fit)
