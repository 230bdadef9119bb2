"""Stacks of flows side by side: one process each, with one thread."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator

from joblib import Parallel, delayed
from tqdm.auto import tqdm

from deconflow._limits import threads_at_most
from deconflow.auto.training import Job, Member, train


def train_all(jobs: list[Job], n_jobs: int, *, progress: bool, what: str) -> list[list[Member]]:
    """Train every job's flows, at most ``n_jobs`` jobs at a time."""
    answers: Iterable[list[Member]]
    if n_jobs == 1 or len(jobs) == 1:
        answers = map(_train_alone, jobs)
    else:
        parallel = Parallel(n_jobs, return_as="generator")
        answers = _warned(parallel(delayed(_train_in_child)(job, os.getpid()) for job in jobs))
    return list(tqdm(answers, what, len(jobs), disable=not progress, unit="stack"))


def _warned(answers: Iterable[tuple[list[Member], list[Warning]]]) -> Iterator[list[Member]]:
    """Hand on what children have trained, and what they have warned of."""
    for members, found in answers:
        for warning in found:
            warnings.warn(warning, stacklevel=2)
        yield members


def _train_in_child(job: Job, parent: int) -> tuple[list[Member], list[Warning]]:
    """Train in a process that does not outlive its parent, not even one that is killed."""
    if os.getppid() == parent:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its usual lock is one of processes, and outlives a kill
    with warnings.catch_warnings(record=True) as found:
        members = _train_alone(job)
    return members, [each.message for each in found if isinstance(each.message, Warning)]


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _train_alone(job: Job) -> list[Member]:
    """Train with one thread: more gain nothing on a flow's small products."""
    with threads_at_most(1):
        return train(job)
