"""What all formats of tables share: how they are read, named and written."""

from __future__ import annotations

import importlib
import re
import textwrap
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deconflow.extras import need
from deconflow.files import replacing
from deconflow.tables.packed import (
    PACKINGS,
    STANDARD,
    Content,
    TableError,
    size_of,
    standard_output,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Source(ABC):
    """A table on disk that is read in chunks.

    Attributes
    ----------
    name : str
        Name of the file, for messages.
    schema : pyarrow.Schema
        Names and types of the columns; a field's metadata may hold its unit and description.
    n_rows : int or None
        Number of rows, where that is known before reading them.
    n_bytes : int or None
        Size of the file, where that is known.
    """

    name: str
    schema: pa.Schema
    n_rows: int | None = None
    n_bytes: int | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows in order, at most ``size`` at once; some columns, or all."""
        with clear_read_errors(self.name):
            yield from self._chunks(size, self.names if columns is None else list(columns))

    @property
    def kept(self) -> list[str]:
        """Columns that go along where rows are written again with new columns."""
        return self.names

    @abstractmethod
    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Do so; whatever goes wrong may be raised as it is."""

    def typed(self) -> Self:
        """Return the same table with a type for each column; only text has none to begin with."""
        return self

    def unit(self, column: str) -> str | None:
        """Unit of a column, if the table says."""
        return about(self.schema.field(column), "unit")

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Parts that processes can share out, each with a name that lasts: files, row groups."""
        return [(self.name, self)]


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
    writer: str | None
    options: dict[str, str] = field(default_factory=dict)
    beginning: str | None = None
    """A pattern that only files of this format begin with."""

    def load(self, name: str) -> Any:
        """Return what reads or writes the format."""
        need("pyarrow")
        return getattr(importlib.import_module(f"deconflow.tables.{self.module}"), name)

    @property
    def is_text(self) -> bool:
        """Whether cells are written as they are read."""
        return self.writer == "write_text"


FORMATS = (
    Format("csv", (".csv",), "arrow_io", "TextSource", "write_text", {"delimiter": ","}),
    Format("tsv", (".tsv",), "arrow_io", "TextSource", "write_text", {"delimiter": "\t"}),
    Format(
        "parquet", (".parquet", ".pq"), "arrow_io", "ParquetSource", "write_parquet",
        beginning="PAR1",
    ),
    Format(
        "fits", (".fits", ".fit"), "astropy_io", "FitsSource", "write_fits", beginning="SIMPLE"
    ),
    Format(
        "ecsv", (".ecsv",), "astropy_io", "InMemorySource", "write_at_once", {"kind": "ecsv"},
        beginning="# %ECSV",
    ),
    Format(
        "votable", (".vot", ".votable", ".xml"), "astropy_io", "InMemorySource", "write_at_once",
        {"kind": "votable"}, beginning=r"\s*<(\?xml|VOTABLE)",
    ),
    Format("ascii", (".dat", ".txt"), "astropy_io", "InMemorySource", None, {"kind": "ascii"}),
)  # fmt: skip
ENDINGS = {ending: known for known in FORMATS for ending in known.endings}
WRITTEN = [ending for ending, known in ENDINGS.items() if known.writer]
UNREAD_PACKINGS = (".xz", ".zip", ".tar", ".tgz", ".7z", ".z", ".rar", ".lz4")


def open_content(content: Content, known: Format, part: str | None, *, typed: bool) -> Source:
    """Open a table whose format is known; of FITS files that ``part``, or the first."""
    options = known.options if part is None else {"part": part}
    with clear_read_errors(content.name):
        source: Source = known.load(known.reader)(content, **options)
        source.n_bytes = size_of(content.source)
        if len({*source.names}) < len(source.names):
            twice = Counter(source.names).most_common(1)[0][0]
            raise TableError(
                f"Expected each column of {source.name} once; got {twice!r} twice. Rename one."
            )
        return source.typed() if typed else source


@contextmanager
def writing(path: str | Path, schema: pa.Schema) -> Iterator[Sink]:
    """Write a table in the format of ``path``'s ending; it is there when it is complete.

    ``-`` is the standard output, in CSV.
    """
    known = format_of(path)
    if known.writer is None:
        raise ValueError(
            f"Expected an output that ends in {', '.join(WRITTEN)}; got {Path(path).name!r}."
        )
    write = known.load(known.writer)
    if Path(path) == STANDARD:
        with write(standard_output(), schema, **known.options) as sink:
            yield sink
        return
    packing = PACKINGS.get(Path(path).suffix.lower())
    with (
        replacing(path) as part,
        need("pyarrow").output_stream(str(part), compression=packing) as file,
        write(file, schema, **known.options) as sink,
    ):
        yield sink


@contextmanager
def clear_read_errors(name: str) -> Iterator[None]:
    """Say in one sentence that names the file whatever a reader raises about damaged bytes."""
    try:
        yield
    except (TableError, ModuleNotFoundError):
        raise
    except MemoryError as error:
        raise TableError(
            f"Expected {name} to fit into memory; got more, or a damaged file. Convert it to "
            ".parquet or .csv, which are read in parts."
        ) from error
    except Exception as error:  # readers raise what they like
        said = textwrap.shorten(str(error), 200, placeholder="...") or type(error).__name__
        raise TableError(
            f"Expected {name} to hold a table that can be read; got: {said.rstrip('.')}. It may "
            "be damaged, or of another format than its name says."
        ) from error


def format_of(path: str | Path) -> Format:
    """Find the format of a file by its ending; ``-`` is CSV.

    Examples
    --------
    >>> format_of("stars.parquet").name, format_of("Stars.FITS.gz").name
    ('parquet', 'fits')
    """
    name = Path(path).name.lower()
    if Path(path) == STANDARD:
        return FORMATS[0]
    for packing in PACKINGS:
        name = name.removesuffix(packing)
    ending = Path(name).suffix
    if ending in UNREAD_PACKINGS:
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
    packings = "|".join(map(re.escape, PACKINGS))
    pattern = rf"(.+\.fits?(?:{packings})?)\[([^\[\]]+)\]"
    found = re.fullmatch(pattern, str(path), re.IGNORECASE)
    if found is None or Path(path).exists():
        return Path(path), None
    return Path(found[1]), found[2]


def row_name(row: int) -> str:
    """Name a row of a table in a message; the first is row 0, as in Python."""
    return f"row {row} (the first is 0)"


def slices(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Cut a table into pieces of at most ``size`` rows; none if it has no rows."""
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def about(field: pa.Field, what: str) -> str | None:
    """Return the unit or the description of a column, if it is known."""
    return (field.metadata or {}).get(what.encode(), b"").decode() or None


def described(
    name: str, kind: pa.DataType, unit: str | None = None, description: str | None = None
) -> pa.Field:
    """Return a column with what is known of it; see :func:`about`."""
    known = {"unit": unit, "description": description}
    metadata = {what: text for what, text in known.items() if text}
    return need("pyarrow").field(name, kind, metadata=metadata or None)
