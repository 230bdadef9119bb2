"""Calls in processes of their own, with a watch on them."""

import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .judge import LIMIT, Outcome, call_of, judge

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 6 * LIMIT
"""Seconds on the clock after which a process that says nothing is ended."""
MEMORY = 12 * 2**30
"""Bytes of address space: a call that wants more gets a MemoryError."""


class Worker:
    """A process that runs one call after another."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--worker"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, seed: int) -> dict[str, Any]:
        """Run the call of a number; a process that hangs or dies is replaced."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.kill()
        code = self.process.wait()
        self._start()
        kind, detail = ("crash", f"ended with {code}") if ready else ("hang", "no answer")
        return Outcome(kind, detail).as_dict()

    def end(self) -> None:
        """Let the process go."""
        self.process.kill()
        self.process.wait()


def run_all(seeds: Iterable[int], jobs: int, take: Callable[[int, dict[str, Any]], None]) -> None:
    """Run the calls of these numbers in so many processes, and hand each outcome over."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    lock = threading.Lock()

    def work() -> None:
        worker = Worker()
        try:
            while True:
                seed = waiting.get_nowait()
                outcome = worker.run(seed)
                with lock:
                    take(seed, outcome)
        except queue.Empty:
            return
        finally:
            worker.end()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serve() -> None:
    """Be a worker: numbers come in, outcomes go out, and nothing else."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a call prints is not an outcome
    for line in sys.stdin:
        call = call_of(int(line))
        outcome = judge(call).as_dict() | {"subject": call.subject, "question": call.question}
        out.write(json.dumps(outcome) + "\n")
        out.flush()
