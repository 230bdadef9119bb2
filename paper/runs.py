"""Runs: what one needs and leaves, records of all, and some at a time in their own processes."""

import fcntl
import json
import os
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.record import machine, versions
from benchmarks.runs import code_digest
from deconflow.files import replacing
from paper import data
from paper.data import Array, Sample
from paper.protocols import (
    Protocol,
    Task,
)

Run = dict[str, Any]
Key = tuple[str, str, int]
Runs = dict[Key, Run]


class Records:
    """The runs of one table by one protocol, in the folder of all results."""

    def __init__(self, results: Path, table: str, protocol: str) -> None:
        self.folder = results / "reproduction"
        self.table, self.protocol = table, protocol
        self.path = self.folder / f"{table}-{protocol}.json"
        self.work = self.folder / ".work" / protocol

    def runs(self) -> Runs:
        """Read all runs."""
        if not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text())
            return {_key(run): run for run in content["runs"]}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected a whole record in {self.path}; got a damaged one ({error}). "
                "Restore it, or delete it to run everything again."
            ) from error

    def add(self, run: Run) -> None:
        """Write the record anew, with one run more."""
        runs = sorted((self.runs() | {_key(run): run}).items())
        content = {
            "table": self.table, "protocol": self.protocol, "runs": [run for _, run in runs],
        }  # fmt: skip
        write(self.path, json.dumps(content, indent=1) + "\n")

    def draws_path(self, dataset: str, row: str) -> Path:
        """Return where the draws for the figures are kept."""
        return self.folder / "draws" / f"{self.table}-{self.protocol}-{dataset}-{row}.npz"

    def keep_draws(self, dataset: str, row: str, draws: dict[str, Any]) -> None:
        """Write draws in single precision, compressed."""
        single = {name: values.astype(np.float32) for name, values in draws.items()}
        buffer = BytesIO()
        np.savez_compressed(buffer, **single)
        write(self.draws_path(dataset, row), buffer.getvalue())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the table for this process, or say that another is at work."""
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.work / f"{self.table}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ValueError(
                    f"Expected no other process at work on {self.table} in {self.folder}; got one. "
                    "Wait for it, or choose another --results."
                ) from error
            yield


def write(path: Path, content: str | bytes) -> None:
    """Write a file under another name, and move it."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def _key(run: Run) -> Key:
    return run["dataset"], run["row"], run["seed"]


LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}
#: The runs of this seed leave draws for the figures.
KEPT_SEED = 0


@dataclass(frozen=True)
class Job:
    """One run with all that it needs: folders of results and wines, settings by the search."""

    task: Task
    protocol: Protocol
    results: Path
    data: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of the fit, and of a wine's split."""
        return self.task.seed

    @property
    def records(self) -> Records:
        """Where its record goes."""
        return Records(self.results, self.task.table, self.protocol.name)

    def checkpoint(self, part: str = "fit") -> Path:
        """Return where an interrupted part of the run goes on from."""
        return self.records.work / f"{self.task.stem}.{part}.checkpoint"

    def clear(self) -> None:
        """Remove what the run needs only until it is done."""
        for path in self.records.work.glob(f"{self.task.stem}.*.checkpoint"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def toy(self) -> Sample:
        """Draw the toy, the same for all seeds: training with validation rows, and test rows."""
        rows = self.protocol.train_rows + self.protocol.validation_rows
        return data.toy(rows, self.protocol.test_rows)

    def wine(self) -> Sample:
        """Split and blur the wine of this run."""
        sample = data.wine(self.task.dataset, self.seed, self.data)
        return Sample(sample.train[: self.protocol.wine_rows], sample.test, sample.noise)


@dataclass(frozen=True)
class Outcome:
    """A fitted model's scores, the settings it was fitted with, and what else is recorded.

    ``draws`` of prior and posterior are kept for the figures.
    """

    scores: dict[str, float | None]
    settings: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)
    draws: dict[str, Array] = field(default_factory=dict)


def make(job: Job) -> Run:
    """Make a run in this process, and return its record."""
    from paper.fits import fitted

    task = job.task
    start, core_start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(action="ignore"):
        outcome = fitted(job)
    seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
    if outcome.draws and task.seed == KEPT_SEED:
        job.records.keep_draws(task.dataset, task.row.name, outcome.draws)
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
        "code": code_digest(),
        "versions": versions(),
        "machine": machine(),
    }


def make_all(jobs: Sequence[Job], at_once: int) -> Generator[tuple[Job, Run | str], None, None]:
    """Make runs in processes of their own; yield each record, or the reason of a failure."""
    waiting = list(jobs)
    running: dict[Any, tuple[Any, Job]] = {}
    try:
        while waiting or running:
            while len(running) < at_once and (job := _next(waiting, running.values())):
                waiting.remove(job)
                pipe, process = _started(job)
                running[pipe] = process, job
            for pipe in wait(list(running)):
                process, job = running.pop(pipe)
                yield job, _answer(pipe, process)
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _next(waiting: Sequence[Job], running: Iterable[tuple[Any, Job]]) -> Job | None:
    """Return the first job whose needed run is done, or was given up."""
    left = {job.task.key for job in [*waiting, *(job for _, job in running)]}
    tasks = ((job, job.task) for job in waiting)
    return next((job for job, t in tasks if (t.dataset, t.row.needs, t.seed) not in left), None)


def _started(job: Job) -> tuple[Any, Any]:
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, sender))
    with patch.dict(os.environ, ONE_THREAD):  # read when the process loads its libraries
        process.start()
    sender.close()
    return receiver, process


def _answer(pipe: Any, process: Any) -> Run | str:
    try:
        answer = pipe.recv()
    except EOFError:
        answer = None
    process.join()
    return answer or f"the process ended with code {process.exitcode}."


def _work(job: Job, pipe: Connection) -> None:
    """Make a run in a process that ends with its parent, and send what came out of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, which is interrupted too, ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        pipe.send(make(job))
    except Exception as error:
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _end_with_parent() -> None:
    """Never be a second process at the same checkpoint: leave when nobody waits any more."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
