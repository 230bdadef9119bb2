"""Randomness that comes from ``random_state`` alone and leaves no trace outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state

_lock = threading.RLock()
"""torch's generator belongs to the process: threads take turns."""

RandomState = int | np.random.RandomState | None


@contextmanager
def isolated_rng(random_state: RandomState) -> Iterator[None]:
    """Seed torch inside the block, and give the outer generator back afterwards.

    ``torch.distributions`` and dropout draw from torch's process-wide generator, so the
    only way to a reproducible fit without a side effect is to borrow that generator.

    Parameters
    ----------
    random_state
        As everywhere in scikit-learn: an integer, a ``RandomState``, or None.
    """
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    with _lock, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
