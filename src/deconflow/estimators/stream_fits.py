"""How a mixture is fitted to rows beyond memory: samples, passes, and what is kept of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deconflow import ranks
from deconflow.estimators.saved_values import joined, parted
from deconflow.estimators.streaming import Passing
from deconflow.estimators.xd_settings import is_auto, several
from deconflow.fitting import Checkpoint
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd import EMResult, FitSettings, StreamedRows, Watch, fit_everything, fit_samples

SAMPLES = "fitting samples"


def refuse_for_streams(model: Any) -> None:
    """Raise for settings of XDGMM that need all rows in memory."""
    if is_auto(model):
        return
    for name, plain in (("n_average", 1), ("method", "anderson")):
        value = getattr(model, name)
        if value != plain and not (name == "method" and value == "em"):
            raise ValueError(
                f"Expected {name}={plain!r} with rows beyond memory; got {value!r}. Leave it out."
            )
    if len(several(model.floor)) > 1:
        raise ValueError(
            f"Expected one floor with rows beyond memory; got {list(model.floor)}. Choose it by a "
            "fit to a sample."
        )


def fit_stream(
    stream: RowStream,
    overview: Overview,
    sample: Observations,
    settings: FitSettings,
    *,
    n_init: int,
    rng: np.random.RandomState,
    seed: object,
    progress: Progress,
    checkpoint: str | Path | None,
) -> EMResult:
    """Fit samples that grow, then pass over everything; an interrupted fit goes on where it was."""
    stopping = replace(settings.stopping, threads=None)  # the answer does not depend on them
    said = replace(settings, complete=None, stopping=stopping)  # a function has no lasting name
    rows = f"{stream.identity()} {overview.digest}"
    passes = KeptPasses(checkpoint, f"{said} {n_init} {seed} {rows}")
    start = passes.mixture
    if start is None:
        progress.begin(SAMPLES)
        watch = Watch(sample=lambda n: progress.advance(0, f"{n:,} rows"))
        start = fit_samples(sample, settings, n_init, rng, watch)
    left = max(1, settings.stopping.max_iter - len(passes.before))
    settings = replace(settings, stopping=replace(settings.stopping, max_iter=left))
    passing = Passing(progress, -(-overview.n_rows // ranks.world()))

    def rows_in(units: Standardiser) -> StreamedRows:
        return StreamedRows(stream, overview, units, passing)

    def kept(mixture: GaussianMixture, result: EMResult) -> None:
        passing.next()
        passes.keep(mixture, result.history)

    result = fit_everything(start, sample, rows_in, settings, Watch(kept=kept))
    before = len(passes.before)
    return replace(result, history=passes.before + result.history, n_iter=before + result.n_iter)


class KeptPasses:
    """The mixture after each pass, kept in a file if there is a path; the first process has it."""

    def __init__(self, path: str | Path | None, said: str) -> None:
        self._file = None
        if path is not None and ranks.is_first():
            self._file = Checkpoint(path, hashlib.sha256(said.encode()).hexdigest())
        state = ranks.from_first(ranks.together(self._load))
        self.before: list[float] = list(state.get("history", []))
        self.mixture: GaussianMixture | None = None
        if state:
            sizes = [len(state["weights"])]
            self.mixture = parted(state, sizes, state["means"].shape[1])[0]

    def _load(self) -> dict[str, Any]:
        return {} if self._file is None else self._file.load() or {}

    def keep(self, mixture: GaussianMixture, history: list[float]) -> None:
        """Keep where a fit is after one more pass."""
        if self._file is not None:
            self._file.save({"history": self.before + history, **joined([mixture])})
