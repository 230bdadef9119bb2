"""Fits to rows beyond memory: samples choose and start, passes over all rows fit."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

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


def _passes(progress: Progress, n_rows: int) -> Callable[[], None]:
    """Begin the progress of a first pass over rows, and return what begins that of the next."""
    numbers, own_rows = count(1), -(-n_rows // ranks.world())

    def begin() -> None:
        progress.begin(f"{PASSES}, pass {next(numbers)}", "rows", own_rows)

    begin()
    return begin


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
    passed = _passes(progress, overview.n_rows)
    rows = FoldedRows(stream, overview, 1, progress.advance)
    job, threads = Job(start, settings, NO_FOLD), settings.stopping.threads
    return fit_together([job], sample, rows, threads, passed, few_passes=True)[0]


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
        passed = _passes(progress, overview.n_rows)
        rows = FoldedRows(stream, overview, n_folds, progress.advance)
        jobs = ranks.from_first(jobs)
        if units is not None:
            jobs = [replace(job, start=units.mixture_from_standard(job.start)) for job in jobs]
        results = fit_together(jobs, sample, rows, threads, passed)
        if units is not None:
            for result in results:
                result.mixture = units.mixture_to_standard(result.mixture)
        return results

    return Everything(overview.n_rows, fit)
