"""Records: one JSON file a table and protocol, with every run that was made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from deconflow.files import replacing

Run = dict[str, Any]
Key = tuple[str, str, int]
FOLDER, WORK, KEPT = "reproduction", ".work", "draws"
PACKAGES = ("deconflow", "torch", "zuko", "scikit-learn", "numpy")


class Records:
    """The runs of one table by one protocol.

    Parameters
    ----------
    results
        The folder of all results.
    table, protocol
        Their names.
    """

    def __init__(self, results: Path, table: str, protocol: str) -> None:
        self.folder = results / FOLDER
        self.table, self.protocol = table, protocol
        self.path = self.folder / f"{table}-{protocol}.json"
        self.work = self.folder / WORK / protocol

    def runs(self) -> dict[Key, Run]:
        """Read all runs that were collected."""
        if not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text())
            return {key_of(run): run for run in content["runs"]}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected a whole record in {self.path}; got a damaged one ({error}). "
                "Restore it, or delete it to run everything again."
            ) from error

    def collect(self) -> dict[Key, Run]:
        """Take in what processes have finished, and return all runs."""
        finished = self._finished()
        new = [json.loads(path.read_text()) for path in finished]
        runs = self.runs()
        if new:
            runs |= {key_of(run): run for run in new if key_of(run) not in runs}
            self._write(runs.values())
        for path in finished:
            path.unlink()
        return runs

    def finished_path(self, stem: str) -> Path:
        """Return where a process leaves its record."""
        return self.work / f"{stem}.run.json"

    def draws_path(self, dataset: str, row: str) -> Path:
        """Return where the draws for the figures are kept."""
        return self.folder / KEPT / f"{self.table}-{self.protocol}-{dataset}-{row}.npz"

    def _finished(self) -> list[Path]:
        return sorted(self.work.glob(f"{self.table}.*.run.json"))

    def _write(self, runs: Iterable[Run]) -> None:
        ordered = sorted(runs, key=lambda run: (run["dataset"], run["row"], run["seed"]))
        content = {"table": self.table, "protocol": self.protocol, "runs": ordered}
        write_json(self.path, content)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the table for this process, or say that another is at work."""
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.work / f"{self.table}.lock").open("w") as handle:
            if not _locked(handle, wait=False):
                raise ValueError(
                    f"Expected no other process at work on {self.table} in {self.folder}; got one. "
                    "Wait for it, or choose another --results."
                )
            yield

    @contextmanager
    def turn(self, stem: str) -> Iterator[None]:
        """Wait for another process that is at the same run, left over from an earlier command."""
        path = self.work / f"{stem}.lock"
        with path.open("w") as handle:
            _locked(handle, wait=True)
            yield
            path.unlink(missing_ok=True)

    def has(self, key: Key, stem: str) -> bool:
        """Say whether a run is finished, collected or not."""
        return self.finished_path(stem).exists() or key in self.runs()


def key_of(run: Run) -> Key:
    """What tells a run from the others of its table."""
    return run["dataset"], run["row"], run["seed"]


def write_json(path: Path, content: Any) -> None:
    """Write JSON under another name, and move it."""
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n")


def keep_draws(path: Path, draws: dict[str, Any]) -> None:
    """Write draws in single precision, compressed."""
    with replacing(path) as part, part.open("wb") as handle:
        np.savez_compressed(handle, **{k: v.astype(np.float32) for k, v in draws.items()})


def versions() -> dict[str, str]:
    """Return the versions of what a run depends on."""
    known = {}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:  # run from a source tree
            known[package] = "not installed"
    return known


def machine() -> dict[str, Any]:
    """Describe the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        name = platform.processor()
    return {"processor": name, "cores": os.cpu_count()}


def _locked(handle: Any, *, wait: bool) -> bool:
    """Lock a file until it is closed; where the system has no locks, trust the user."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
