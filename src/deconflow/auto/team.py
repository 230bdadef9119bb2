"""Stacks of flows side by side: one process each, with one thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from deconflow.auto.member import Job, Member, train


def train_all(jobs: list[Job], n_jobs: int, *, progress: bool, what: str) -> list[list[Member]]:
    """Train every job's flows, at most ``n_jobs`` jobs at a time."""
    answers: Iterable[list[Member]]
    if n_jobs == 1 or len(jobs) == 1:
        answers = map(_train_alone, jobs)
    else:
        parallel = Parallel(n_jobs, return_as="generator")
        answers = parallel(delayed(_train_alone)(job) for job in jobs)
    return list(tqdm(answers, what, len(jobs), disable=not progress, unit="stack"))


def _train_alone(job: Job) -> list[Member]:
    """Train with one thread: more gain nothing on a flow's small products."""
    with _one_thread():
        return train(job)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
