"""Fits of one mixture to rows beyond memory: to samples, then in passes over all rows."""

from __future__ import annotations

import numpy as np

from deconflow import ranks
from deconflow.estimators.streaming import Passing
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.streams import Overview, RowStream
from deconflow.xd import NO_FOLD, EMResult, FitSettings, FoldedRows, Job, fit_samples, fit_together

SAMPLES = "fitting samples"


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
    passing = Passing(progress, -(-overview.n_rows // ranks.world()))
    rows = FoldedRows(stream, overview, 1, passing)
    job, threads = Job(start, settings, NO_FOLD), settings.stopping.threads
    return fit_together([job], sample, rows, threads, passing.next, few_passes=True)[0]
