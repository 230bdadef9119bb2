"""Runs of a benchmark in one file: written after each, never repeated, told apart by their code.

A run knows the digest of the library's code that made it. One that other code has made does not
count as done: it is made again, and replaced.
"""

import ast
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record

ROOT = Path(__file__).resolve().parents[1]
DATA_VARIABLE = "DECONFLOW_DATA"
DATA = Path(os.environ.get(DATA_VARIABLE) or ROOT.parent / "shared" / "data")

Run = dict[str, Any]

_NO_PART_OF_A_FIT = (
    "program", "plots", "tables", "__main__.py", "_version.py", "cli.py", "compat.py", "demo.py",
)  # fmt: skip
#: Settings of the program's own, which fits by ``--method`` have.
_BUT_FOR = ("methods.py",)


@cache
def code_digest() -> str:
    """Return a digest of the library's code that fits depend on, without words or layout.

    Comments, docstrings and line breaks do not change it; any statement does.
    """
    import deconflow

    root = Path(deconflow.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] not in _NO_PART_OF_A_FIT or name.parts[-1] in _BUT_FOR:
            digest.update(f"{name}: {statements(path.read_text())}\n".encode())
    return digest.hexdigest()[:12]


def statements(source: str) -> str:
    """Return what a module does, without its docstrings, comments and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is only a text: a docstring, or one below an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class Runs:
    """The runs of one file.

    Parameters
    ----------
    path
        A JSON file, made at the first run.
    keys
        Names of what tells one run from another.
    keep
        Whether runs of other code count as done.
    """

    def __init__(self, path: Path, keys: Sequence[str], *, keep: bool = False) -> None:
        self.path, self.keys, self.keep = path, tuple(keys), keep
        self.content: dict[str, Any] = {}
        if path.is_file():
            self.content = json.loads(path.read_text())
        self.runs: list[Run] = known(self.content.pop("runs", []))

    def done(self, task: Mapping[str, Any]) -> bool:
        """Whether a run is there, made by this code."""
        return any(self._key(run) == self._key(task) for run in self.current())

    def current(self) -> list[Run]:
        """Return the runs of this code; all, if those of other code are kept."""
        return [run for run in self.runs if self.keep or run.get("code") == code_digest()]

    def add(self, run: Mapping[str, Any]) -> None:
        """Take a run in the place of an older one of the same name, and write the file.

        What other processes have written to it meanwhile stays.
        """
        new = plain({**run, "code": code_digest()})
        with locked(self.path.parent):
            if self.path.is_file():
                self.runs = known(json.loads(self.path.read_text())["runs"])
            self.runs = [old for old in self.runs if self._key(old) != self._key(new)] + [new]
            self._write()

    def say(self, **content: Any) -> None:
        """Put something about all runs beside them, and write the file."""
        self.content |= content
        with locked(self.path.parent):
            self._write()

    def _write(self) -> None:
        record.write(
            self.path.stem, folder=self.path.parent, show=False, **self.content, runs=self.runs
        )

    def _key(self, run: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(run.get(key) for key in self.keys)


def known(runs: list[Run]) -> list[Run]:
    """Return the runs that say which code made them."""
    return [run for run in runs if "code" in run]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder for a moment."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and with it the lock


def plain(run: Mapping[str, Any]) -> Run:
    """Return a run as JSON has it: numpy's numbers and arrays become Python's."""
    return json.loads(json.dumps(run, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else float(value)
