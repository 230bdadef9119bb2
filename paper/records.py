"""Records: one JSON file per table and protocol, with every run that was made."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from deconflow.files import replacing

Run = dict[str, Any]
Key = tuple[str, str, int]
Runs = dict[Key, Run]


class Records:
    """The runs of one table by one protocol, in the folder of all results."""

    def __init__(self, results: Path, table: str, protocol: str) -> None:
        self.folder = results / "reproduction"
        self.table, self.protocol = table, protocol
        self.path = self.folder / f"{table}-{protocol}.json"
        self.work = self.folder / ".work" / protocol

    def runs(self) -> Runs:
        """Read all runs."""
        if not self.path.exists():
            return {}
        try:
            content = json.loads(self.path.read_text())
            return {_key(run): run for run in content["runs"]}
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected a whole record in {self.path}; got a damaged one ({error}). "
                "Restore it, or delete it to run everything again."
            ) from error

    def add(self, run: Run) -> None:
        """Write the record anew, with one run more."""
        runs = sorted((self.runs() | {_key(run): run}).items())
        content = {
            "table": self.table, "protocol": self.protocol, "runs": [run for _, run in runs],
        }  # fmt: skip
        write(self.path, json.dumps(content, indent=1) + "\n")

    def draws_path(self, dataset: str, row: str) -> Path:
        """Return where the draws for the figures are kept."""
        return self.folder / "draws" / f"{self.table}-{self.protocol}-{dataset}-{row}.npz"

    def keep_draws(self, dataset: str, row: str, draws: dict[str, Any]) -> None:
        """Write draws in single precision, compressed."""
        single = {name: values.astype(np.float32) for name, values in draws.items()}
        buffer = BytesIO()
        np.savez_compressed(buffer, **single)
        write(self.draws_path(dataset, row), buffer.getvalue())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the table for this process, or say that another is at work."""
        self.work.mkdir(parents=True, exist_ok=True)
        with (self.work / f"{self.table}.lock").open("w") as handle:
            if not _locked(handle):
                raise ValueError(
                    f"Expected no other process at work on {self.table} in {self.folder}; got one. "
                    "Wait for it, or choose another --results."
                )
            yield


def write(path: Path, content: str | bytes) -> None:
    """Write a file under another name, and move it."""
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def _key(run: Run) -> Key:
    return run["dataset"], run["row"], run["seed"]


def _locked(handle: Any) -> bool:
    """Lock a file until it is closed, if no other process has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
