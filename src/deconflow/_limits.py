"""How much to do at once: processors, and rows per piece of work."""

from __future__ import annotations

import os

NUMBERS_AT_ONCE = 4_000_000
"""Numbers that one piece of work may hold: 32 MB in double precision."""


def cpus(n_jobs: int | None = None) -> int:
    """Return ``n_jobs``; for None or -1 the number of processors this process may run on.

    Examples
    --------
    >>> cpus(2)
    2
    >>> cpus(-1) == cpus() >= 1
    True
    """
    if n_jobs is not None and n_jobs != -1:
        return n_jobs
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def rows_at_once(numbers_per_row: int) -> int:
    """Return how many rows, of so many numbers each, make one piece of work.

    Examples
    --------
    >>> rows_at_once(1000), rows_at_once(10**9)
    (4000, 1)
    """
    return max(1, NUMBERS_AT_ONCE // max(1, numbers_per_row))
