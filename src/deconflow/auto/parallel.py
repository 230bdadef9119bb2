"""Stacks of flows side by side: one process each, with one thread, on every machine of a group."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from tqdm.auto import tqdm

from deconflow import ranks
from deconflow._limits import threads_at_most
from deconflow.auto.candidates import Resources
from deconflow.auto.training import Job, Member, train
from deconflow.progress import Progress


def train_all(jobs: list[Job], resources: Resources) -> list[list[Member]]:
    """Train every job's flows; of a group of processes each trains some, and all get all."""
    return ranks.spread(lambda mine: _train_here(mine, resources), jobs)


def _train_here(jobs: list[Job], resources: Resources) -> list[list[Member]]:
    """Train flows in this process and its children, as many jobs at a time as it may have."""
    n_jobs = resources.n_jobs if resources.device == "cpu" else 1  # a GPU serves one at a time
    with _counting(resources.progress) as ticks:
        if n_jobs == 1 or len(jobs) <= 1:
            return [_train_alone(job, ticks) for job in jobs]
        parallel = Parallel(n_jobs, return_as="generator")
        children = (delayed(_train_in_child)(job, ticks, os.getpid()) for job in jobs)
        return list(_warned(parallel(children)))


def _warned(answers: Iterable[tuple[list[Member], list[Warning]]]) -> Iterator[list[Member]]:
    """Hand on what children have trained, and what they have warned of."""
    for members, found in answers:
        for warning in found:
            warnings.warn(warning, stacklevel=2)
        yield members


class Ticks:
    """Counts the epochs of one job in a file of all jobs, a byte for each, in any process."""

    def __init__(self, path: Path) -> None:
        self.path, self.counted = path, 0

    def __call__(self, epoch: int, history: Any) -> None:
        """Count an epoch; of a job that goes on from a checkpoint, those before too."""
        with self.path.open("ab") as file:
            file.write(b"." * (epoch + 1 - self.counted))
        self.counted = epoch + 1


@contextmanager
def _counting(progress: Progress) -> Iterator[Path | None]:
    """Tell how many epochs of all jobs are done."""
    if not progress.shown:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="deconflow-") as folder:
        ticks, done = Path(folder) / "epochs", threading.Event()
        ticks.touch()
        watch = threading.Thread(target=_follow, args=(progress, ticks, done), daemon=True)
        watch.start()
        try:
            yield ticks
        finally:
            done.set()
            watch.join()


def _follow(progress: Progress, ticks: Path, done: threading.Event) -> None:
    with ticks.open("rb") as file:
        last = False
        while not last:
            last = done.wait(0.5)
            progress.advance(len(file.read()))


def _train_in_child(
    job: Job, ticks: Path | None, parent: int
) -> tuple[list[Member], list[Warning]]:
    """Train in a process that does not outlive its parent, not even one that is killed."""
    if os.getppid() == parent:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its usual lock is one of processes, and outlives a kill
    with warnings.catch_warnings(record=True) as found:
        members = _train_alone(job, ticks)
    return members, [each.message for each in found if isinstance(each.message, Warning)]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _train_alone(job: Job, ticks: Path | None) -> list[Member]:
    """Train with one thread: more gain nothing on a flow's small products."""
    with threads_at_most(1):
        return train(job, [] if ticks is None else [Ticks(ticks)])
