"""Settings of one run: random numbers, threads and progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.utils import check_random_state

from deconflow import ranks
from deconflow.progress import SILENT, Progress
from deconflow.randomness import RandomState
from deconflow.streams import Overview, RowStream

_SHOWN: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def shown_by(progress: Progress) -> Iterator[None]:
    """Let fits inside the block count their steps with ``progress``."""
    token = _SHOWN.set(progress)
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def progress_of(verbose: bool) -> Iterator[Progress]:
    """Give the progress of a fit: the one that is shown already, or a new one if ``verbose``."""
    shown = _SHOWN.get()
    if shown is not None or not (verbose and ranks.is_first()):
        yield shown or SILENT
        return
    with Progress() as progress:
        yield progress


@dataclass
class Run:
    """Settings of one fit that are no part of the model.

    Attributes
    ----------
    random_state
        Seed or generator of the estimator.
    n_jobs
        Its number of threads, None or -1 for one per processor.
    progress
        Counts steps.
    beyond : tuple of RowStream and Overview, or None
        Rows beyond memory, of which the rows that are fitted are a sample.
    """

    random_state: RandomState = 0
    n_jobs: int | None = None
    progress: Progress = SILENT
    beyond: tuple[RowStream, Overview] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads; None for one per processor."""
        return self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None

    def generator(self) -> np.random.RandomState:
        """Return the estimator's own random numbers."""
        return check_random_state(self.random_state)

    def rng(self) -> np.random.RandomState:
        """Return random numbers for what is done before a fit."""
        return np.random.RandomState(self.generator().randint(2**30))

    @cached_property
    def reducing(self) -> np.random.RandomState:
        """Random numbers that the reductions of true values share."""
        return self.rng()

    def stream_seed(self) -> int:
        """Return a seed for a sample that is the same on all processes."""
        return ranks.from_first(int(self.rng().randint(2**30)))
