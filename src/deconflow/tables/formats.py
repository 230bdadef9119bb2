"""Formats of tables by their endings, and what all tables that are read have in common."""

import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deconflow.checks import refuse_if
from deconflow.extras import need

if TYPE_CHECKING:
    import pyarrow as pa

#: Stands for the standard input or output, in CSV.
STANDARD = Path("-")
PACKINGS = {".gz": "gzip", ".bz2": "bz2"}
UNREAD_PACKINGS = (".xz", ".zst", ".zip", ".tar", ".tgz", ".7z", ".z", ".rar", ".lz4")


class TableError(ValueError):
    """A problem with a table, in a sentence that names its file."""


@dataclass(frozen=True)
class Format:
    """A format of tables.

    Attributes
    ----------
    name : str
        What the library that reads it calls it.
    endings : tuple of str
        Endings of its files.
    by_arrow : bool
        Whether pyarrow reads it; otherwise astropy does.
    delimiter : str
        Between the cells of text that pyarrow reads.
    written : bool
        Whether it is written, too.
    """

    name: str
    endings: tuple[str, ...]
    by_arrow: bool = False
    delimiter: str = ""
    written: bool = True


FORMATS = (
    Format("csv", (".csv",), by_arrow=True, delimiter=","),
    Format("csv", (".tsv",), by_arrow=True, delimiter="\t"),
    Format("parquet", (".parquet", ".pq"), by_arrow=True),
    Format("feather", (".feather", ".arrow"), by_arrow=True),
    Format("fits", (".fits", ".fit")),
    Format("ascii.ecsv", (".ecsv",)),
    Format("votable", (".vot", ".votable", ".xml")),
    Format("ascii", (".dat", ".txt"), written=False),
)
ENDINGS = {ending: known for known in FORMATS for ending in known.endings}
WRITTEN = [ending for ending, known in ENDINGS.items() if known.written]


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
        Size of the files, where that is known.
    files : tuple of Path
        The files.
    kept : list of str or None
        Columns that are written again with new columns; None for all.
    """

    name: str
    schema: "pa.Schema"
    n_rows: int | None = None
    n_bytes: int | None = None
    files: tuple[Path, ...] = ()
    kept: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @property
    def pieces(self) -> "list[tuple[str, Source]]":
        """Parts of the table that can be read separately, each with a name that lasts."""
        return [(self.name, self)]

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> "Iterator[pa.Table]":
        """Walk through the rows in order, at most ``size`` at once; some columns, or all."""
        with clear_read_errors(self.name):
            for table in self._tables(size, self.names if columns is None else list(columns)):
                for start in range(0, table.num_rows, size):
                    yield table.slice(start, size)

    @abstractmethod
    def _tables(self, size: int, columns: Sequence[str]) -> "Iterator[pa.Table]":
        """Walk through the rows in tables of any size; errors may be raised as they are."""

    def unit(self, column: str) -> str | None:
        """Unit of a column, if the table has it."""
        return about(self.schema.field(column), "unit")


@contextmanager
def clear_read_errors(name: str) -> Iterator[None]:
    """Turn any error of a reader into one sentence that names the file."""
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
        if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
            raise TableError(
                f"Expected text in UTF-8 in {name}; got other bytes. Convert it, for example: "
                f"iconv -f latin1 -t utf-8 {name}"
            ) from error
        words = textwrap.shorten(str(error), 200, placeholder="...") or type(error).__name__
        raise TableError(
            f"Expected {name} to hold a table that can be read; got: {words.rstrip('.')}. It may "
            "be damaged, or of another format than its name says."
        ) from error


def format_of(path: str | Path) -> Format:
    """Find the format of a file by its ending; ``-`` is CSV.

    Examples
    --------
    >>> format_of("stars.parquet").name, format_of("Stars.FITS.gz").name
    ('parquet', 'fits')
    """
    if Path(path) == STANDARD:
        return FORMATS[0]
    ending = ending_of(path)
    refuse_if(
        ending not in ENDINGS,
        f"Expected a file that ends in {', '.join(ENDINGS)}; got {Path(path).name!r}. "
        "Rename or convert it.",
    )
    return ENDINGS[ending]


def ending_of(path: str | Path) -> str:
    """Return the ending of a file in small letters, before that of a packing which can be read."""
    name = Path(path).name.lower()
    for packing in PACKINGS:
        name = name.removesuffix(packing)
    refuse_if(
        name.endswith(UNREAD_PACKINGS),
        f"Expected a table; got {Path(path).name!r}, which is packed. Unpack it.",
    )
    return Path(name).suffix


def split_part(path: str | Path) -> tuple[Path, str | None]:
    """Split a FITS file from the table in it that is named, by name or number.

    Examples
    --------
    >>> split_part("stars.fits[2]")
    (PosixPath('stars.fits'), '2')
    >>> split_part("stars.csv")
    (PosixPath('stars.csv'), None)
    """
    found = re.fullmatch(r"(.+\.fits?(?:\.gz|\.bz2)?)\[([^\[\]]+)\]", str(path), re.IGNORECASE)
    if found is None or Path(path).exists():
        return Path(path), None
    return Path(found[1]), found[2]


def row_name(row: int) -> str:
    """Name a row of a table in a message; the first is row 0, as in Python."""
    return f"row {row} (the first is 0)"


def about(field: "pa.Field", what: str) -> str | None:
    """Return the unit or the description of a column, if it is known."""
    return (field.metadata or {}).get(what.encode(), b"").decode() or None


def described(
    name: str, kind: "pa.DataType", unit: str | None = None, description: str | None = None
) -> "pa.Field":
    """Return a column with its unit and description; see :func:`about`."""
    known = {"unit": unit, "description": description}
    metadata = {what: text for what, text in known.items() if text}
    return need("pyarrow").field(name, kind, metadata=metadata or None)


def is_list(kind: "pa.DataType") -> bool:
    """Whether cells of a column are lists."""
    types = need("pyarrow").types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
