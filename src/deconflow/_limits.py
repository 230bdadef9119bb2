"""How much to do at once: processors, and rows per piece of work."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

#: Numbers that one piece of work may hold: 32 MB in double precision.
NUMBERS_AT_ONCE = 4_000_000


def cpus(n_jobs: int | None = None) -> int:
    """Return ``n_jobs``; for None or -1 as many processors as this process was allowed.

    That is what the system grants it and joblib grants its workers, and no more than
    ``OMP_NUM_THREADS``.

    Examples
    --------
    >>> cpus(2)
    2
    >>> cpus(-1) == cpus() >= 1
    True
    """
    if n_jobs is not None and n_jobs != -1:
        return n_jobs
    from joblib import effective_n_jobs

    allowed = re.match(r"\s*([1-9]\d*)", os.environ.get("OMP_NUM_THREADS", ""))
    granted = effective_n_jobs(-1)
    return min(granted, int(allowed[1])) if allowed else granted


@contextmanager
def threads_at_most(n_jobs: int | None) -> Iterator[None]:
    """Keep torch, if it is in use, and scikit-learn to ``n_jobs`` threads in this thread.

    None or -1 leave them as they are, and no number gives them more than they have.
    """
    if n_jobs is None or n_jobs == -1:
        yield
        return
    torch = sys.modules.get("torch")
    before = (
        [each["num_threads"] for each in _thread_pools(False).select(user_api="openmp").info()]
        if torch is None
        else [torch.get_num_threads()]
    )
    most = min([n_jobs, *before])
    with ExitStack() as until_the_end:
        until_the_end.enter_context(openmp_threads(most))
        if torch is not None and _threads_of_products() > most:
            until_the_end.callback(torch.set_num_threads, before[0])
            torch.set_num_threads(most)  # the only way after the program has called it
        yield


def openmp_threads(count: int) -> AbstractContextManager[object]:
    """Give OpenMP so many threads, where this thread alone calls it."""
    return _thread_pools("torch" in sys.modules).limit(limits=count, user_api="openmp")


@cache
def _thread_pools(with_torch: bool) -> ThreadpoolController:
    return ThreadpoolController()


def _threads_of_products() -> int:
    """Threads of torch's matrix products, which have a number of their own with MKL."""
    import torch

    said = re.search(r"mkl_get_max_threads\(\) : (\d+)", torch.__config__.parallel_info())
    return int(said[1]) if said else 1


def rows_at_once(numbers_per_row: int) -> int:
    """Return how many rows, of so many numbers each, make one piece of work.

    Examples
    --------
    >>> rows_at_once(1000), rows_at_once(10**9)
    (4000, 1)
    """
    return max(1, NUMBERS_AT_ONCE // max(1, numbers_per_row))


def row_slices(n_rows: int, numbers_per_row: int) -> Iterator[slice]:
    """Walk through rows, of so many numbers each, in pieces of work.

    Examples
    --------
    >>> [*row_slices(10, 1_000_000)]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """
    step = rows_at_once(numbers_per_row)
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))
