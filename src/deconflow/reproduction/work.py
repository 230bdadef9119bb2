"""One run, in a process of its own: ``python -m deconflow.reproduction.work JOB.json``."""

from __future__ import annotations

import json
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from deconflow.fitting import UnusableCheckpointError
from deconflow.reproduction.fits import FITS
from deconflow.reproduction.jobs import Job, Outcome
from deconflow.reproduction.records import Records, keep_draws, machine, versions, write_json

KEPT_SEED = 0
"""The runs of this seed leave draws for the figures."""


def main(path: Path) -> None:
    """Make the run that a file describes, and leave its record."""
    description = json.loads(path.read_text())
    job = Job.from_dict(description["job"])
    records = Records(Path(description["results"]), job.task.table, job.protocol.name)
    with records.turn(job.task.stem):
        if not records.has(job.task.key, job.task.stem):
            _make(job, records)


def _make(job: Job, records: Records) -> None:
    outcome, seconds, core_seconds = _timed(job)
    task = job.task
    if outcome.draws and task.seed == KEPT_SEED:
        keep_draws(records.draws_path(task.dataset, task.row.name), outcome.draws)
    record = _record(job, outcome, seconds, core_seconds)
    write_json(records.finished_path(task.stem), record)
    _clear(job)


def _timed(job: Job) -> tuple[Outcome, float, float]:
    torch.set_num_threads(1)
    start, core_start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(action="ignore"):
        outcome = _fitted(job)
    return outcome, time.perf_counter() - start, time.process_time() - core_start


def _fitted(job: Job) -> Outcome:
    """Fit, from the start if what an earlier attempt left is of other settings or code."""
    try:
        return FITS[job.task.row.fit](job)
    except UnusableCheckpointError:
        _clear(job)
        return FITS[job.task.row.fit](job)


def _record(job: Job, outcome: Outcome, seconds: float, core_seconds: float) -> dict[str, Any]:
    task = job.task
    return {
        "table": task.table,
        "dataset": task.dataset,
        "row": task.row.name,
        "seed": task.seed,
        "protocol": job.protocol.name,
        **outcome.scores,
        "settings": outcome.settings,
        "details": outcome.details,
        "seconds": round(seconds, 1),
        "core_seconds": round(core_seconds, 1),
        "versions": versions(),
        "machine": machine(),
    }


def _clear(job: Job) -> None:
    """Remove what the run needed only until it was done."""
    for path in job.work.glob(f"{job.task.stem}.*.checkpoint"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
