"""The two ends of a stream of rows; between them go tables of pyarrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Source(ABC):
    """A table on disk that is read in chunks.

    Attributes
    ----------
    name : str
        Name of the file, for messages.
    schema : pyarrow.Schema
        Names and types of the columns; a field's metadata may hold its unit.
    n_rows : int or None
        Number of rows, where that is known before reading them.
    """

    name: str
    schema: pa.Schema
    n_rows: int | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @abstractmethod
    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows in order, at most ``size`` at once; some columns, or all."""

    def unit(self, column: str) -> str | None:
        """Unit of a column, if the table says."""
        metadata = self.schema.field(column).metadata or {}
        return metadata[b"unit"].decode() if b"unit" in metadata else None


class Sink(ABC):
    """A table that is being written."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Append rows."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left, once the last rows have come."""

    @abstractmethod
    def discard(self) -> None:
        """Let go of all files, after a failure."""


def slices(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Cut tables into pieces of at most ``size`` rows, leaving empty ones out."""
    for table in tables:
        for start in range(0, table.num_rows, size):
            yield table.slice(start, size)


def refuse_twice(names: Sequence[str], table: str) -> None:
    """Raise if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"Expected each column of {table} once; got {name!r} twice. Rename one."
            )
        seen.add(name)
