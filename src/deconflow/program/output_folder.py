"""A folder of output files, each written whole, that remembers which are finished.

What it remembers is in a hidden folder inside: the command, and a line of JSON for every file that
is finished, by the process that has written it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconflow import ranks
from deconflow.files import clear_write_errors, locked_folder, replacing
from deconflow.program.messages import note

RECORD, COMMAND = ".deconflow", "command.json"
WORDS = {
    "command": "command",
    "model": "model",
    "table": "table",
    "deconflow": "version of deconflow",
}
"""What an entry of the command is called that is no option."""


@dataclass(frozen=True)
class Piece:
    """One file to be written.

    Attributes
    ----------
    name : str
        Its path in the folder.
    stamp : list
        What tells whether its input is still the same, as JSON can hold it.
    """

    name: str
    stamp: list[int]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells a piece, with the same input, from all others."""
        return self.name, *self.stamp


@dataclass(frozen=True)
class Outcome:
    """What became of the pieces.

    Attributes
    ----------
    figures : dict
        What each finished piece was counted with, by its name, in order.
    failed : dict
        What was wrong with the others.
    """

    figures: dict[str, dict[str, Any]]
    failed: dict[str, str]


class OutputFolder:
    """A folder whose files are written one by one; make it with :func:`output_folder`."""

    def __init__(self, path: Path) -> None:
        self.path, self._record = path, path / RECORD

    def write_all(self, pieces: list[Piece], work: Callable[[str], dict[str, Any]]) -> Outcome:
        """Do the work for all pieces that are not finished; processes take them by turns.

        A piece that cannot be done, by a ``ValueError``, does not keep the others from it.
        """
        kept = ranks.from_first(self._finished())
        done = {
            piece.name: kept[piece.key]
            for piece in pieces
            if piece.key in kept and (self.path / piece.name).is_file()
        }
        left = [piece for piece in pieces if piece.name not in done]
        failed = {}
        with ranks.own_work():
            for piece in left[ranks.rank() :: ranks.world()]:
                try:
                    done[piece.name] = work(piece.name)
                except ValueError as error:
                    failed[piece.name] = " ".join(str(error).split())
                else:
                    self._remember(piece, done[piece.name])
        found: dict[str, dict[str, Any]] = {}
        wrong: dict[str, str] = {}
        for theirs, errors in ranks.gathered((done, failed)):
            found |= theirs
            wrong |= errors
        in_order = {piece.name: found[piece.name] for piece in pieces if piece.name in found}
        return Outcome(in_order, wrong)

    def _finished(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Read what is finished; a line that was cut short is that of a piece to do again."""
        found = {}
        for path in sorted(self._record.glob("finished-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                    found[entry["name"], *entry["stamp"]] = entry["figures"]
                except (ValueError, KeyError, TypeError):
                    continue
        return found

    def _remember(self, piece: Piece, figures: dict[str, Any]) -> None:
        entry = {"name": piece.name, "stamp": piece.stamp, "figures": figures}
        path = self._record / f"finished-{ranks.rank()}.jsonl"
        with clear_write_errors(path), path.open("a") as file:
            file.write(f"\n{json.dumps(entry)}\n")  # below whatever was cut short
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def output_folder(
    path: Path, command: Mapping[str, Any], *, resume: bool
) -> Iterator[OutputFolder]:
    """Make an empty folder for the output of a command, or go on with one of the same command."""
    if not ranks.is_first():
        ranks.from_first(None)
        yield OutputFolder(path)
        return
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"Expected a folder for the output; got the file {path}.")
    record = path / RECORD
    begun = _check_state(path, resume)
    with clear_write_errors(path), locked_folder(record) as ours:
        if not ours:
            raise FileExistsError(
                f"Expected {path} for this command alone; got another that is writing there."
            )
        if begun:
            _refuse_another(json.loads((record / COMMAND).read_text()), command, path)
        else:
            for old in record.iterdir():
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            with replacing(record / COMMAND) as part:
                part.write_text(json.dumps(dict(command)))
        ranks.from_first(None)
        yield OutputFolder(path)


def _check_state(path: Path, resume: bool) -> bool:
    """Return whether there is something to go on with; raise if other files are in the way."""
    visible = path.is_dir() and any(not each.name.startswith(".") for each in path.iterdir())
    begun = (path / RECORD / COMMAND).is_file()
    if visible and not begun:
        raise FileExistsError(
            f"Expected an empty folder for the output; got {path} with other files. Choose another."
        )
    if visible and not resume:
        raise FileExistsError(
            f"Expected an empty folder for the output; got {path}, to which an earlier run has "
            "written. Go on with --resume, or choose another."
        )
    if resume and not begun:
        note(f"deconflow: note: nothing to resume in {path}; starting anew")
    return begun and resume


def _refuse_another(kept: Mapping[str, Any], command: Mapping[str, Any], path: Path) -> None:
    for name in {**command, **kept}:
        if kept.get(name) != command.get(name):
            what = WORDS.get(name, f"--{name}")
            raise ValueError(
                f"Expected --resume with the command that {path} was begun with; got another "
                f"{what}. Give the same, or another output."
            )
