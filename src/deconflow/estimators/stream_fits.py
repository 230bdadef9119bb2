"""Fits of one mixture to rows beyond memory: to samples, then in passes over all rows."""

from __future__ import annotations

import numpy as np

from deconflow import ranks
from deconflow.estimators.streaming import Passing
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd import EMResult, FitSettings, StreamedRows, fit_everything, fit_samples

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

    def rows_in(units: Standardiser) -> StreamedRows:
        return StreamedRows(stream, overview, units, passing)

    return fit_everything(start, sample, rows_in, settings, passing.next)
