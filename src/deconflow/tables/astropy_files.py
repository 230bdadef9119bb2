"""Tables that astropy reads and writes: FITS, ECSV, VOTable and text with spaces.

FITS files are mapped into memory and may be larger than it; the others are read at once, and all
are written at once.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from deconflow._types import AnyArray, BoolArray
from deconflow.extras import need
from deconflow.tables.arrow_files import as_written, common_schema
from deconflow.tables.formats import Format, Source, TableError, about, clear_read_errors, described


class AstropySource(Source):
    """A table that astropy reads.

    Parameters
    ----------
    path
        The file.
    known
        Its format.
    name
        Name for messages.
    part
        Name or number of the table in a FITS file; otherwise the first is read.
    """

    def __init__(self, path: Path, known: Format, name: str, part: str | None = None) -> None:
        self.name = name if part is None else f"{name}[{part}]"
        self.files, self.n_bytes = (path,), path.stat().st_size
        with clear_read_errors(self.name):
            self._table = _read(path, known, name, part)
            self.schema = self._as_arrow(slice(1), self._table.colnames).schema
        self.n_rows = len(self._table)

    def _tables(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, len(self._table), size):
            yield self._as_arrow(slice(start, start + size), columns)

    def _as_arrow(self, rows: slice, columns: Sequence[str]) -> pa.Table:
        some, arrays, fields = self._table[rows], [], []
        for name in columns:
            column, info = some[name], some[name].info
            mask = getattr(column, "mask", None)
            values = np.asarray(column.filled() if mask is not None else column)
            arrays.append(_as_arrow(values, None if mask is None else np.asarray(mask)))
            unit = str(info.unit) if info.unit else None
            fields.append(described(name, arrays[-1].type, unit, info.description))
        return pa.table(arrays, schema=pa.schema(fields))


class Many(Source):
    """Several tables as one."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name, self.sources = name, list(sources)
        self.schema = common_schema([(each.name, each.schema) for each in sources])
        self.n_rows = sum(each.n_rows or 0 for each in sources)
        self.files = tuple(file for each in sources for file in each.files)

    def _tables(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        for source in self.sources:
            for table in source.chunks(size, columns):
                yield table.cast(schema)

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """The tables."""
        return [(source.name.partition("/")[2], source) for source in self.sources]


def _read(path: Path, known: Format, name: str, part: str | None) -> Any:
    """Read a table; FITS files are mapped into memory."""
    options: dict[str, Any] = {}
    if known.name == "fits":
        options = {"hdu": _choose(path, name, part), "memmap": True, "mask_invalid": False}
    elif known.name == "votable":
        _refuse_links(path)
        options = {"use_names_over_ids": True}
    with warnings.catch_warnings(action="ignore"):
        return need("astropy.table").Table.read(path, format=known.name, **options)


def _choose(path: Path, name: str, part: str | None) -> int:
    """Choose a table of a FITS file, and name the others if none was asked for."""
    fits = need("astropy.io.fits")
    kinds = fits.BinTableHDU | fits.TableHDU
    with fits.open(path) as hdus:
        tables = {str(i): hdu.name for i, hdu in enumerate(hdus) if isinstance(hdu, kinds)}
    names = ", ".join(each or number for number, each in tables.items())
    if not tables:
        raise TableError(f"Expected a table in {name}; got images only.")
    if part is None and len(tables) > 1:
        warnings.warn(
            f"{name} has the tables {names}; the first is taken. Name another as {name}[NAME].",
            stacklevel=2,
        )
    for number, each in tables.items():
        if part in (None, number) or str(part).upper() == each.upper():
            return int(number)
    raise TableError(f"Expected a table in {name}: {names}; got {part!r}.")


def _refuse_links(path: Path) -> None:
    """Raise for a VOTable with its rows in another file, which astropy would open."""
    with need("astropy.utils.data").get_readable_fileobj(path, encoding="binary") as file:
        link = re.search(rb"<[^<>]*STREAM[^<>]*href[^<>]*>", file.read())
    if link is not None:
        raise TableError(
            f"Expected the rows of {path.name} in the file itself; got a link: "
            f"{link[0].decode(errors='replace')}. Download that, and convert it to .parquet."
        )


@contextmanager
def astropy_writer(
    file: IO[bytes], schema: pa.Schema, known: Format
) -> Iterator[Callable[[pa.Table], None]]:
    """Keep all rows in memory until they are written."""
    for name in schema.names if known.name == "fits" else ():
        if not (name.isascii() and name.isprintable()):
            raise ValueError(
                f"Expected names of columns in ASCII for a FITS file; got {name!r}. Write "
                ".parquet, .ecsv or .vot instead."
            )
    parts = [schema.empty_table()]
    yield lambda table: parts.append(table.cast(schema))
    rows, table = pa.concat_tables(parts), need("astropy.table").Table()
    for field, column in zip(schema, rows.columns, strict=True):
        table[field.name] = _as_numpy(column)
        table[field.name].unit = about(field, "unit")
        table[field.name].description = about(field, "description")
    with warnings.catch_warnings(action="ignore"):
        if known.name == "ascii.ecsv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            table.write(text, format=known.name)
            text.detach()
        else:
            if known.name == "fits":
                table.convert_unicode_to_bytestring()
            written = io.BytesIO()
            table.write(written, format=known.name)
            file.write(written.getvalue())


def _as_arrow(values: AnyArray, mask: BoolArray | None = None) -> pa.Array:
    """Turn a column of numpy into one of pyarrow; arrays in cells become lists."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    elif values.dtype.kind == "c":  # which pyarrow does not know
        values = values.astype(str)
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    if values.ndim == 1:
        return pa.array(values, mask=mask)
    width = math.prod(values.shape[1:])
    flat = values.reshape(len(values), width)  # more than two dimensions are flattened
    if values.dtype.kind == "U" or width == 0:
        return pa.array([str(row.tolist()) for row in flat], pa.string())
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), width)


def _as_numpy(column: pa.ChunkedArray) -> Any:
    """Turn a column of pyarrow into one of numpy, masked where integers are null."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return np.asarray(column.combine_chunks().flatten()).reshape(-1, kind.list_size)
    if pa.types.is_floating(kind):
        return column.fill_null(float("nan")).to_numpy()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        missing, empty = column.is_null().to_numpy(), pa.scalar(0).cast(kind)
        values = column.fill_null(empty).to_numpy()
        if missing.any():
            least = None if kind == pa.bool_() else np.iinfo(values.dtype).min
            return np.ma.array(values, mask=missing, fill_value=least)
        return values
    return np.array([str(as_written(cell)) for cell in column.to_pylist()], dtype=str)
