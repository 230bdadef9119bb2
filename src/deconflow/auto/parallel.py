"""Stacks of flows side by side: one process each, with one thread."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from deconflow.auto.training import Job, Member, train


def train_all(jobs: list[Job], n_jobs: int, *, progress: bool, what: str) -> list[list[Member]]:
    """Train every job's flows, at most ``n_jobs`` jobs at a time."""
    epochs = sum(job.plan.training.epochs for job in jobs)
    with _counting(epochs, what, shown=progress) as ticks:
        if n_jobs == 1 or len(jobs) == 1:
            return [_train_alone(job, ticks) for job in jobs]
        parallel = Parallel(n_jobs, return_as="generator")
        return list(parallel(delayed(_train_in_child)(job, ticks, os.getpid()) for job in jobs))


class Ticks:
    """Counts the epochs of one job in a file of all jobs, a byte for each, in any process."""

    def __init__(self, path: Path) -> None:
        self.path, self.counted = path, 0

    def __call__(self, epoch: int, history: Any) -> None:
        """Count the epochs so far; of a job that goes on from a checkpoint, also those before."""
        with self.path.open("ab") as file:
            file.write(b"." * (epoch + 1 - self.counted))
        self.counted = epoch + 1


@contextmanager
def _counting(total: int, what: str, *, shown: bool) -> Iterator[Path | None]:
    """Show how many epochs of all jobs are done, and how long the others will take."""
    if not shown:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="deconflow-") as folder,
        tqdm(total=total, desc=what, unit="epoch") as bar,
    ):
        ticks, done = Path(folder) / "epochs", threading.Event()
        ticks.touch()
        watch = threading.Thread(target=_follow, args=(bar, ticks, done), daemon=True)
        watch.start()
        try:
            yield ticks
        finally:
            done.set()
            watch.join()


def _follow(bar: tqdm, ticks: Path, done: threading.Event) -> None:
    while True:
        last = done.wait(0.5)
        bar.update(ticks.stat().st_size - bar.n)
        if last:
            return


def _train_in_child(job: Job, ticks: Path | None, parent: int) -> list[Member]:
    """Train in a process that does not outlive its parent, not even one that is killed."""
    if os.getppid() == parent:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its usual lock is one of processes, and outlives a kill
    return _train_alone(job, ticks)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _train_alone(job: Job, ticks: Path | None) -> list[Member]:
    """Train with one thread: more gain nothing on a flow's small products."""
    with _one_thread():
        return train(job, [] if ticks is None else [Ticks(ticks)])


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
