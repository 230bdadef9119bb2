"""Opening and writing a table, whatever its format."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deconflow.files import replacing

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

    def typed(self) -> Self:
        """Return the same table with a type for each column; only text has none to begin with."""
        return self

    def unit(self, column: str) -> str | None:
        """Unit of a column, if the table says."""
        metadata = self.schema.field(column).metadata or {}
        return metadata[b"unit"].decode() if b"unit" in metadata else None


@dataclass(frozen=True)
class Sink:
    """A table that is being written; ``write`` appends rows."""

    write: Callable[[pa.Table], None]


@dataclass(frozen=True)
class Format:
    """A format, with the class that reads it and the context manager that writes it.

    These are named and not imported: pyarrow and astropy are slow, and they are optional.
    """

    name: str
    endings: tuple[str, ...]
    module: str
    reader: str
    writer: str
    options: dict[str, str] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """Return what reads or writes the format."""
        need("pyarrow")
        return getattr(importlib.import_module(f"deconflow.tables.{self.module}"), name)


FORMATS = (
    Format("csv", (".csv",), "arrow_io", "TextSource", "write_text", {"delimiter": ","}),
    Format("tsv", (".tsv",), "arrow_io", "TextSource", "write_text", {"delimiter": "\t"}),
    Format("parquet", (".parquet", ".pq"), "arrow_io", "ParquetSource", "write_parquet"),
    Format("fits", (".fits", ".fit"), "astropy_io", "FitsSource", "write_fits"),
    Format(
        "ecsv", (".ecsv",), "astropy_io", "InMemorySource", "write_at_once", {"kind": "ecsv"},
    ),
    Format(
        "votable", (".vot", ".votable", ".xml"), "astropy_io", "InMemorySource", "write_at_once",
        {"kind": "votable"},
    ),
)  # fmt: skip
ENDINGS = {ending: known for known in FORMATS for ending in known.endings}
PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar", ".tgz")


def open_table(path: str | Path, *, typed: bool = True) -> Source:
    """Open a CSV, TSV, Parquet, FITS, ECSV or VOTable file for reading.

    Parameters
    ----------
    path
        The file; its ending says the format. ``file.fits[NAME]`` or ``file.fits[2]`` is one of
        several tables in a FITS file.
    typed
        Whether the columns of a text file shall get types, by one more pass through it. False
        hands its cells on to another text file as they are written.
    """
    path, part = split_part(path)
    known = format_of(path)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"Expected a table at {path}; got {got}.")
    options = known.options if part is None else {"part": part}
    source: Source = known.load(known.reader)(path, **options)
    _refuse_duplicates(source.names, source.name)
    return source.typed() if typed else source


@contextmanager
def writing(path: str | Path, schema: pa.Schema) -> Iterator[Sink]:
    """Write a table in the format of ``path``'s ending; it is there when it is complete."""
    known = format_of(path)
    write = known.load(known.writer)
    with replacing(path) as part, write(part, schema, **known.options) as sink:
        yield sink


def format_of(path: str | Path) -> Format:
    """Find the format of a file by its ending.

    Examples
    --------
    >>> format_of("stars.parquet").name, format_of("Stars.FITS").name
    ('parquet', 'fits')
    """
    ending = Path(path).suffix.lower()
    if ending in PACKED:
        raise ValueError(f"Expected a table; got {Path(path).name!r}, which is packed. Unpack it.")
    if ending not in ENDINGS:
        raise ValueError(
            f"Expected a file that ends in {', '.join(ENDINGS)}; got {Path(path).name!r}. "
            "Rename or convert it."
        )
    return ENDINGS[ending]


def split_part(path: str | Path) -> tuple[Path, str | None]:
    """Part a FITS file from the table in it that is named, by name or number.

    Examples
    --------
    >>> split_part("stars.fits[2]")
    (PosixPath('stars.fits'), '2')
    >>> split_part("stars.csv")
    (PosixPath('stars.csv'), None)
    """
    found = re.fullmatch(r"(.+\.fits?)\[([^\[\]]+)\]", str(path), re.IGNORECASE)
    if found is None or Path(path).exists():
        return Path(path), None
    return Path(found[1]), found[2]


def need(module: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected {module.split('.')[0]} to be installed, because tables need it; got none. "
            "Run: pip install 'deconflow[tables]'",
            name=module,
        ) from error


def row_name(row: int) -> str:
    """Name a row of a table in a message; the first is row 0, as in Python."""
    return f"row {row} (the first is 0)"


def slices(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Cut a table into pieces of at most ``size`` rows; none if it has no rows."""
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def _refuse_duplicates(names: Sequence[str], table: str) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(
                f"Expected each column of {table} once; got {name!r} twice. Rename one."
            )
