"""Commands that write a table again with new columns, for each file of a folder."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import typer

from deconflow._types import Array
from deconflow._version import __version__
from deconflow.program.messages import note, speaks
from deconflow.program.model_folder import ModelFolder
from deconflow.program.output_folder import Outcome, Piece, output_folder
from deconflow.program.streaming import (
    NewColumn,
    all_fields,
    refuse_useless,
    rows_bar,
    with_fields,
    write_columns,
)
from deconflow.tables import RowReader, Rows, format_of, is_many, open_many

if TYPE_CHECKING:
    from deconflow.tables import ShardedSource

MOST_REASONS = 3
"""Files whose errors are told; of more, only the names."""


class Job(Protocol):
    """What is computed for one file."""

    def __call__(self, rows: Rows) -> Array:
        """Compute the new columns of some rows."""

    def watch(self, values: Array) -> None:
        """See the new columns of a chunk, NaN for unusable rows."""

    def figures(self) -> dict[str, Any]:
        """Return what the end of the command needs, as JSON can hold it."""


@dataclass(frozen=True)
class ManyFiles:
    """A command for all files of a folder.

    Attributes
    ----------
    saved : ModelFolder
        The model.
    table, output : Path
        The folder, or a pattern; and the folder for the output.
    command : dict
        The command's name and options, by which a run knows its own output again.
    """

    saved: ModelFolder
    table: Path
    output: Path
    command: Mapping[str, Any]
    prefix: str
    chunk: int
    resume: bool
    progress: bool

    @cached_property
    def source(self) -> ShardedSource:
        """The files, if nothing is wrong that would fail for all of them."""
        columns = self.saved.columns
        if columns is not None and columns.how.id is not None:
            raise ValueError(
                "Expected one table for the output of a model of draws by --id, since files may "
                f"share an object; got the folder {self.output}. Name a table: {self.output}.csv"
            )
        if self.table.is_dir() and self.output.resolve().is_relative_to(self.table.resolve()):
            raise ValueError(
                f"Expected an output outside {self.table}, all of which is read; got {self.output}."
            )
        source = open_many(self.table)
        format_of(source.shards[0][0]).check_written(source.shards[0][0])
        return source

    @cached_property
    def reader(self) -> RowReader:
        """What reads the files."""
        return self.saved.reader(self.source)

    def write(self, columns: Sequence[NewColumn], job: Callable[[str], Job]) -> Outcome:
        """Write all files that can be, and return what was counted for each.

        Parameters
        ----------
        columns
            The new columns.
        job
            Given the path of a file in the folder, what computes them.
        """
        source = self.source
        fields = all_fields(columns, self.output / source.shards[0][0], self.prefix)
        with_fields(self.reader.source, fields)  # refused before anything runs
        shards = dict(source.shards)
        pieces = [Piece(name, _stamp(shard.path)) for name, shard in source.shards]
        shown = self.progress and speaks()
        with (
            output_folder(self.output, self._identity(), resume=self.resume) as folder,
            rows_bar(source.n_rows, shown) as bar,
        ):

            def work(name: str) -> dict[str, Any]:
                reader, task = self.saved.reader(shards[name].as_written), job(name)
                counts = write_columns(
                    reader, self.output / name, fields, task,
                    chunk=self.chunk, bar=bar, watch=task.watch,
                )  # fmt: skip
                return {"rows": dict(counts), **task.figures()}

            found = folder.write_all(pieces, work)
        broken = {name: str(error) for name, error in source.damaged.items()}
        return Outcome(found.figures, broken | found.failed)

    def _identity(self) -> dict[str, Any]:
        about = {"table": str(self.table.absolute()), "model": self.saved.digest}
        return {**self.command, "prefix": self.prefix, "chunk": self.chunk, **about,
                "deconflow": __version__}  # fmt: skip


def is_for_many(table: Path, output: Path | None) -> bool:
    """Whether a command is to write a folder of files: that is, not one table with all rows."""
    return output is not None and is_many(table) and not _is_table(output)


def refuse_resume(resume: bool) -> None:
    """Raise if a command that writes one table is to go on with it."""
    if resume:
        raise ValueError(
            "Expected --resume where a folder of files is written, one by one; got one table, "
            "which is written whole or not at all. Leave it out."
        )


def _is_table(output: Path) -> bool:
    if output.is_dir():
        return False
    try:
        format_of(output)
    except ValueError:
        return False
    return True


def seed_of(seed: int, name: str) -> int:
    """Return a seed for a file: the same in every run and process, and another for each file."""
    mixed = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)
    return int(mixed[0] >> 1)


def counts_of(outcome: Outcome, table: Path) -> Counter[str]:
    """Count rows by their status, over all files."""
    counts: Counter[str] = Counter()
    for figures in outcome.figures.values():
        counts.update(figures["rows"])
    if not outcome.failed:
        refuse_useless(counts, str(table))
    return counts


def end_of(outcome: Outcome, output: Path) -> None:
    """End the command with one line, and an exit code, if files have failed."""
    failed, done = outcome.failed, len(outcome.figures)
    if not failed:
        return
    told = [f"{name} ({why.rstrip('.')})" for name, why in list(failed.items())[:MOST_REASONS]]
    told += list(failed)[MOST_REASONS:]
    note(
        f"deconflow: Expected {done + len(failed)} files that can be used; got {len(failed)} that "
        f"cannot: {', '.join(told)}. The others are in {output}; correct these, and give the same "
        "command with --resume."
    )
    raise typer.Exit(1)


def _stamp(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]
