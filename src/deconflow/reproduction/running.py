"""Runs as processes of their own, some at a time, with one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from deconflow.reproduction.jobs import Job
from deconflow.reproduction.records import Key, Records, Run, write_json

ONE_THREAD = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
}
PAUSE = 0.2
Say = Callable[[str], None]


@dataclass
class _Process:
    job: Job
    handle: subprocess.Popen[bytes]
    log: Path


class Runner:
    """Make runs that are not there yet.

    Parameters
    ----------
    records
        Where they go.
    at_once
        Processes at a time.
    say
        What to do with a line about a run.
    progress
        Whether to show a progress bar.
    """

    def __init__(
        self, records: Records, *, at_once: int, say: Say = print, progress: bool = False
    ) -> None:
        self.records, self.at_once, self.say, self.progress = records, at_once, say, progress
        self._running: list[_Process] = []
        self._failed: dict[Key, str] = {}

    def run(self, jobs: Sequence[Job]) -> dict[Key, Run]:
        """Run what is missing, and return all runs of the table; a finished run is left alone."""
        runs = self.records.collect()
        waiting = [job for job in jobs if job.task.key not in runs]
        self._failed = {}
        done = len(jobs) - len(waiting)
        options = {"total": len(jobs), "initial": done, "unit": "run", "disable": not self.progress}
        try:
            with tqdm(desc=self.records.table, **options) as bar:
                while waiting or self._running:
                    self._start_some(waiting)
                    if ended := self._take_ended():
                        bar.update(ended)
                    time.sleep(PAUSE)
        finally:
            self._stop()
        self._raise_for_failures()
        return self.records.collect()

    def _start_some(self, waiting: list[Job]) -> None:
        while len(self._running) < self.at_once:
            ready = [job for job in waiting if self._is_ready(job, waiting)]
            if not ready:
                return
            waiting.remove(ready[0])
            self._running.append(self._started(ready[0]))

    def _is_ready(self, job: Job, waiting: Sequence[Job]) -> bool:
        """Say whether the run that this one needs is done, or was given up."""
        task = job.task
        needed = (task.dataset, task.row.needs, task.seed)
        others = [*waiting, *(process.job for process in self._running)]
        return all(other.task.key != needed for other in others)

    def _started(self, job: Job) -> _Process:
        stem = self.records.work / job.task.stem
        description, log = stem.with_name(f"{stem.name}.job"), stem.with_name(f"{stem.name}.log")
        results = str(self.records.folder.parent.resolve())
        write_json(description, {"job": job.as_dict(), "results": results})
        command = [sys.executable, "-m", "deconflow.reproduction.work", str(description)]
        with log.open("wb") as output:
            handle = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **ONE_THREAD},
            )  # fmt: skip
        return _Process(job, handle, log)

    def _take_ended(self) -> int:
        """Collect what has ended; return how many that were."""
        ended = [process for process in self._running if process.handle.poll() is not None]
        for process in ended:
            self._running.remove(process)
            runs = self.records.collect()
            key = process.job.task.key
            if key in runs:
                self._tell(in_words(runs[key]))
                process.log.unlink(missing_ok=True)
                process.log.with_suffix(".job").unlink(missing_ok=True)
            else:
                self._failed[key] = _last_line(process)
                self._tell(f"{process.job.task.stem} failed: {self._failed[key]}")
        return len(ended)

    def _tell(self, line: str) -> None:
        """Say a line above the progress bar."""
        with tqdm.external_write_mode(file=sys.stderr):
            self.say(line)

    def _stop(self) -> None:
        """End what this runner started; checkpoints keep what was done."""
        for process in self._running:
            with suppress(OSError):
                process.handle.terminate()
        for process in self._running:
            process.handle.wait()
        self._running = []

    def _raise_for_failures(self) -> None:
        if self._failed:
            names, why = list(self._failed), next(iter(self._failed.values()))
            raise ChildProcessError(
                f"Expected every run to succeed; got {len(names)} that did not, the first "
                f"{' '.join(map(str, names[0]))}: {why} Run the same command to try again."
            )


def in_words(run: Run) -> str:
    """Say what a run found."""
    scores = [
        f"-log p({letter}) {run[f'minus_log_p_{letter}']:.3f}"
        for letter in ("v", "w")
        if run.get(f"minus_log_p_{letter}") is not None
    ]
    name = f"{run['table']} {run['dataset']} {run['row']} seed {run['seed']}"
    return f"{name}: {', '.join(scores)} ({run['core_seconds']:.0f} core seconds)"


def _last_line(process: _Process) -> str:
    lines = process.log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with code {process.handle.returncode}."
