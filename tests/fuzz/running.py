"""Calls in processes of their own, with a watch on them."""

import os
import resource
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from .judge import LIMIT, Outcome, call_of, judge

PATIENCE = 6 * LIMIT
"""Seconds on the clock after which a process that says nothing is ended."""
MEMORY = 12 * 2**30
"""Bytes of address space: a call that wants more gets a MemoryError."""
PROCESSES = get_context("spawn")


class Worker:
    """A process that runs one call after another."""

    def __init__(self) -> None:
        self.ours, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, seed: int) -> dict[str, Any]:
        """Run the call of a number; a process that hangs or dies is replaced."""
        self.ours.send(seed)
        ready = self.ours.poll(PATIENCE)
        with suppress(EOFError):
            if ready:
                return self.ours.recv()
        self.process.kill()
        self.process.join()
        kind, detail = "hang", "no answer"
        if ready:
            kind, detail = "crash", f"ended with {self.process.exitcode}"
        self.__init__()  # type: ignore[misc]
        return Outcome(kind, detail).as_dict() | about(seed)


def run_all(seeds: Iterable[int], jobs: int) -> Iterator[dict[str, Any]]:
    """Run the calls of these numbers in so many processes; yield the outcomes in their order."""
    free: SimpleQueue[Worker] = SimpleQueue()
    for _ in range(jobs):
        free.put(Worker())

    def one(seed: int) -> dict[str, Any]:
        worker = free.get()
        try:
            return worker.run(seed)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(one, seeds)


def about(seed: int) -> dict[str, Any]:
    """Say which call it is."""
    call = call_of(seed)
    return {"seed": seed, "subject": call.subject}


def serve(connection: Connection) -> None:
    """Be a worker: numbers come in, outcomes go out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    while True:
        seed = connection.recv()
        connection.send(judge(call_of(seed)).as_dict() | about(seed))
