"""What engines share: checks of rows, and fits to rows beyond memory.

Of rows beyond memory samples choose and start, and passes over all rows fit.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from deconflow import ranks
from deconflow.core import Run
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.standardising import Standardiser
from deconflow.streams import Overview
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


class Engine:
    """Settings of an estimator, by which an engine fits plain observations; it needs no draws.

    Its ``fit(rows, run)`` returns a solution for checked rows, all of positive weight.
    """

    name: str
    takes: frozenset[str]
    fit: Callable[[Any, Run], Any]
    samples = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings


def refuse_rows(rows: Observations, least: int, otherwise: str = "") -> None:
    """Raise unless rows are enough, and the same in all processes: they are divided here."""
    digest = b"" if ranks.world() == 1 else hashlib.sha256(np.asarray(rows.w).tobytes()).digest()
    if len(set(ranks.gathered(digest))) > 1:
        raise ValueError(
            f"Expected the same w in all {ranks.world()} processes; got different ones. Give each "
            "of them all rows: they are divided among them here."
        )
    if len(rows) < least:
        raise ValueError(
            f"Expected at least {least} rows in w to fit a density; got n_samples = {len(rows)}."
            f"{otherwise}"
        )


def _passes(progress: Progress, n_rows: int) -> Callable[[], None]:
    """Begin the progress of a first pass over rows, and return what begins that of the next."""
    numbers, own_rows = count(1), -(-n_rows // ranks.world())

    def begin() -> None:
        progress.begin(f"{PASSES}, pass {next(numbers)}", "rows", own_rows)

    begin()
    return begin


def fit_stream(
    sample: Observations, settings: FitSettings, n_init: int, rng: np.random.RandomState, run: Run
) -> EMResult:
    """Fit samples that grow, then pass over all rows of the run's stream."""
    assert run.beyond is not None
    (stream, overview), progress = run.beyond, run.progress
    progress.begin(SAMPLES)
    start = fit_samples(sample, settings, n_init, rng, lambda n: progress.advance(0, f"{n:,} rows"))
    passed = _passes(progress, overview.n_rows)
    rows = FoldedRows(stream, overview, 1, progress.advance)
    job, threads = Job(start, settings, NO_FOLD), settings.stopping.threads
    return fit_together([job], sample, rows, threads, passed, few_passes=True)[0]


def folds_of_sample(overview: Overview, n_folds: int) -> list[Fold]:
    """Return the folds of a sample's rows: those that they have at every pass over all rows.

    Rows without weight are no rows of the sample any more.
    """
    numbers, weights = overview.sample_numbers, overview.sample.weights
    if weights is not None:
        numbers = numbers[weights > 0]
    return numbered_folds(fold_numbers(numbers, n_folds), n_folds)


def beyond_sample(
    sample: Observations, n_folds: int, run: Run, units: Standardiser | None = None
) -> dict[str, Any]:
    """Return options of fits of mixtures to all rows of a stream; none if the sample has them all.

    Parameters
    ----------
    sample
        Rows of a first pass, in the user's units.
    n_folds
        Number of folds.
    run
        The stream, and what a first pass has found; threads, and what counts the rows of each pass.
    units
        The units of the mixtures; None for the user's.
    """
    if run.beyond is None or run.beyond[1].n_rows <= len(run.beyond[1].sample_numbers):
        return {}
    stream, overview = run.beyond

    def fit(jobs: list[Job]) -> list[EMResult]:
        passed = _passes(run.progress, overview.n_rows)
        rows = FoldedRows(stream, overview, n_folds, run.progress.advance)
        jobs = ranks.from_first(jobs)
        if units is not None:
            jobs = [replace(job, start=units.mixture_from_standard(job.start)) for job in jobs]
        results = fit_together(jobs, sample, rows, run.threads, passed)
        if units is not None:
            for result in results:
                result.mixture = units.mixture_to_standard(result.mixture)
        return results

    return {
        "folds": folds_of_sample(overview, n_folds),
        "everything": Everything(overview.n_rows, fit),
    }
