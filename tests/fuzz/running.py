"""Calls in processes of their own, with a watch on them."""

import faulthandler
import os
import resource
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from .judge import LIMIT, Outcome, call_of, judge

#: Seconds on the clock after which a process that says nothing ends itself.
PATIENCE = 6 * LIMIT
#: Bytes of address space: a call that wants more gets a MemoryError.
MEMORY = 12 * 2**30
#: The process of each thread, in a pool of one.
OWN = threading.local()


def run_all(seeds: Iterable[int], jobs: int) -> Iterator[dict[str, Any]]:
    """Run the calls of these numbers in so many processes; yield the outcomes in their order."""
    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(run, seeds)


def run(seed: int) -> dict[str, Any]:
    """Run the call of a number; a process that hangs or dies is replaced."""
    if not hasattr(OWN, "pool"):
        OWN.pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=quiet)
    start = time.monotonic()
    try:
        outcome = OWN.pool.submit(serve, seed).result()
    except BrokenProcessPool:
        del OWN.pool
        hung = time.monotonic() - start > PATIENCE
        outcome = Outcome("hang", "no answer") if hung else Outcome("crash", "the process ended")
    return asdict(outcome) | {"seed": seed, "subject": call_of(seed).subject}


def quiet() -> None:
    """Begin a process that says nothing and takes no more memory than it may."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)


def serve(seed: int) -> Outcome:
    """Judge the call of a number, or end the process."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    outcome = judge(call_of(seed))
    faulthandler.cancel_dump_traceback_later()
    return outcome
