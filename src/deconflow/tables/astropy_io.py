"""FITS, ECSV, VOTable and text with spaces by astropy.

FITS is read by slices of the mapped file, and may be larger than memory; so may FITS output. The
others are read and written at once.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deconflow.tables.arrow_io import ParquetSource, write_parquet
from deconflow.tables.io import Sink, Source, about, described, need, slices
from deconflow.tables.packed import Content, TableError, TemporaryFile

ASTROPY_FORMATS = {"ecsv": "ascii.ecsv", "votable": "votable", "ascii": "ascii"}
READ_OPTIONS = {"votable": {"use_names_over_ids": True}}
"""Names as people gave them, not as XML wants them."""
FITS_NUMBERS = {
    pa.int8(): pa.int16(), pa.int16(): pa.int16(), pa.int32(): pa.int32(), pa.int64(): pa.int64(),
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(), pa.float32(): pa.float32(), pa.float64(): pa.float64(),
}  # fmt: skip
"""Which of FITS's types holds a type of numbers."""
FITS_FORMS = {
    pa.int16(): "I", pa.int32(): "J", pa.int64(): "K", pa.float32(): "E", pa.float64(): "D",
}  # fmt: skip
BLOCK = 2880
LONGEST_NAME, MOST_COLUMNS = 68, 999
"""What a FITS header has room for."""
ASTROPY_COLUMNS = "--BEGIN-ASTROPY-SERIALIZED-COLUMNS--"
"""Below this comment astropy keeps descriptions in a FITS header; others keep them as TCOMM."""
MOST_AT_ONCE = 2**31
"""Bytes that a packed file may hold to be read at once: astropy needs several times as much."""
ROWS_AT_ONCE = 50_000


class FitsSource(Source):
    """A table of a FITS file: that of a name or number, or the first."""

    def __init__(self, content: Content, part: str | None = None) -> None:
        self.content, self._which = content.unpacked(), part
        self.name = content.name if part is None else f"{content.name}[{part}]"
        with self._table() as hdu:
            self._check_size(hdu)
            self.n_rows: int = hdu.header["NAXIS2"]
            descriptions = _fits_descriptions(hdu)
            first = _fits_rows(hdu, 0, 1)
            self.schema = pa.schema([
                described(column.name, _fits_cells(first, column).type, column.unit, words)
                for column, words in zip(hdu.columns, descriptions, strict=True)
            ])  # fmt: skip

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        schema = pa.schema([self.schema.field(name) for name in columns])
        with self._table() as hdu:
            for start in range(0, self.n_rows, size):
                rows = _fits_rows(hdu, start, start + size)
                arrays = [_fits_cells(rows, hdu.columns[name]) for name in columns]
                yield pa.table(arrays, schema=schema)

    @contextmanager
    def _table(self) -> Iterator[Any]:
        fits = need("astropy.io.fits")
        with fits.open(self.content.path, memmap=True) as file:
            kinds = fits.BinTableHDU | fits.TableHDU
            tables = {str(i): hdu for i, hdu in enumerate(file) if isinstance(hdu, kinds)}
            if not tables:
                raise TableError(f"Expected a table in {self.name}; got images only.")
            yield self._choose(tables)

    def _check_size(self, hdu: Any) -> None:
        """Hold the header against the file, before astropy believes it."""
        header, size = hdu.header, self.content.path.stat().st_size
        if not 0 <= header["TFIELDS"] <= MOST_COLUMNS:
            raise TableError(
                f"Expected up to {MOST_COLUMNS} columns in {self.name}; got {header['TFIELDS']}."
            )
        width, rows = header["NAXIS1"], header["NAXIS2"]
        there = (size - hdu.fileinfo()["datLoc"]) // max(width, 1)
        if rows < 0 or there < rows:
            raise TableError(
                f"Expected {rows} rows in {self.name}, as its header says; got {max(there, 0)}. It "
                "was cut short: get it again."
            )

    def _choose(self, tables: dict[str, Any]) -> Any:
        """Choose by name or number; the first, with a word about the others, if none is said."""
        names = ", ".join(hdu.name or number for number, hdu in tables.items())
        if self._which is None:
            if len(tables) > 1 and not hasattr(self, "schema"):  # once
                warnings.warn(
                    f"{self.name} has the tables {names}; the first is taken. Name another as "
                    f"{self.name}[NAME].",
                    stacklevel=2,
                )
            return next(iter(tables.values()))
        for number, hdu in tables.items():
            if self._which == number or self._which.upper() == hdu.name.upper():
                return hdu
        file = self.content.name
        raise TableError(f"Expected a table in {file}: {names}; got {self._which!r}.")


class InMemorySource(Source):
    """A table that astropy reads at once: ECSV, VOTable, or text with spaces."""

    def __init__(self, content: Content, kind: str) -> None:
        self.name = content.name
        self._table = _as_pyarrow(_read(content, kind))
        self.schema = self._table.schema
        self.n_rows = self._table.num_rows

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        return slices(self._table.select(list(columns)), size)


@contextmanager
def write_at_once(file: IO[bytes], schema: pa.Schema, kind: str) -> Iterator[Sink]:
    """Keep all rows in memory until they are written, as ECSV or VOTable."""
    parts = [schema.empty_table()]
    yield Sink(lambda table: parts.append(table.cast(schema)))
    table = _as_astropy(pa.concat_tables(parts))
    with warnings.catch_warnings(action="ignore"):
        if kind == "votable":
            table.write(file, format=kind)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        table.write(text, format=ASTROPY_FORMATS[kind])
        text.detach()


@contextmanager
def write_fits(file: IO[bytes], schema: pa.Schema, folder: Path) -> Iterator[Sink]:
    """Write a binary table; memory holds one chunk of it.

    The header comes first but needs what only the last row tells: the number of rows, the width
    of texts, whether integers are missing. So rows wait, encoded, in a Parquet file in
    ``folder``.
    """
    _refuse_names(schema.names)
    encoded = pa.schema([(f.name, _encode(pa.chunked_array([], f.type)).type) for f in schema])
    widths, with_nulls = dict.fromkeys(schema.names, 1), set()
    waiting = TemporaryFile(folder)
    with write_parquet(waiting.file, encoded) as rows:

        def write(table: pa.Table) -> None:
            columns = [_encode(column) for column in table.columns]
            for name, column, before in zip(schema.names, columns, table.columns, strict=True):
                if before.null_count:
                    with_nulls.add(name)
                if pa.types.is_binary(column.type) and len(column):
                    width = pc.max(pc.binary_length(column)).as_py()
                    widths[name] = max(widths[name], width)
            rows.write(pa.table(columns, schema=encoded))

        yield Sink(write)
    waiting.file.flush()
    content = Content(waiting.path, "the rows that wait", scratch=waiting)
    _write_binary_table(file, ParquetSource(content), schema, widths, with_nulls)


def _write_binary_table(
    file: IO[bytes], rows: ParquetSource, schema: pa.Schema, widths: dict[str, int], nulls: set[str]
) -> None:
    """Write headers by astropy, then the rows, byte by byte as the header says."""
    fits = need("astropy.io.fits")
    columns, dtypes = [], []
    for field, kind in zip(schema, rows.schema.types, strict=True):
        form, dtype = _layout(kind, widths[field.name])
        null = _least(kind) if pa.types.is_integer(kind) and field.name in nulls else None
        form = "L" if pa.types.is_boolean(field.type) else form
        columns.append(fits.Column(field.name, form, unit=_fits_unit(field), null=null))
        dtypes.append(dtype)
    header = fits.BinTableHDU.from_columns(columns, nrows=0).header
    header["NAXIS2"] = rows.n_rows
    _describe_columns(header, schema)
    primary = fits.PrimaryHDU().header
    primary["EXTEND"] = True
    record = np.dtype([(f"f{i}", dtype) for i, dtype in enumerate(dtypes)])
    file.write((primary.tostring() + header.tostring()).encode("ascii"))
    for table in rows.chunks(ROWS_AT_ONCE):
        packed = np.zeros(table.num_rows, record)
        for i, column in enumerate(table.columns):
            text = pa.types.is_binary(column.type)
            packed[f"f{i}"] = column.to_pylist() if text else _as_numpy(column)
        file.write(packed.tobytes())
    file.write(b"\0" * (-(rows.n_rows or 0) * record.itemsize % BLOCK))


def _describe_columns(header: Any, schema: pa.Schema) -> None:
    """Put descriptions into a FITS header, for astropy and for others; FITS has ASCII only."""
    words = [(about(field, "description") or "").encode("ascii", "replace") for field in schema]
    texts = [" ".join(word.decode().split()) for word in words]
    if not any(texts):
        return
    for number, text in enumerate(texts, start=1):
        if text:
            header[f"TCOMM{number}"] = text
    fields = [described(f.name, pa.int16(), None, t) for f, t in zip(schema, texts, strict=True)]
    file = io.BytesIO()
    _as_astropy(pa.schema(fields).empty_table()).write(file, format="fits")
    file.seek(0)
    for line in need("astropy.io.fits").getheader(file, 1)["COMMENT"]:
        header.add_comment(line)


def _fits_descriptions(hdu: Any) -> list[str | None]:
    """Find what a FITS header says of its columns, in its own way or in astropy's."""
    header = hdu.header
    found = [header.get(f"TCOMM{number}") for number in range(1, len(hdu.columns) + 1)]
    if ASTROPY_COLUMNS not in header.get("COMMENT", ()):
        return found
    # What astropy adds is a note: a table without it, or with a damaged one, is as good.
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        bare = header.copy()
        bare["NAXIS2"] = bare["PCOUNT"] = 0
        empty = need("astropy.io.fits").BinTableHDU.fromstring(bare.tostring().encode())
        table = need("astropy.table").Table.read(empty)
        known = {column.info.name: column.info.description for column in table.itercols()}
        found = [a or known.get(c.name) for a, c in zip(found, hdu.columns, strict=True)]
    return found


def _fits_unit(field: pa.Field) -> str | None:
    """Write a unit in ASCII."""
    unit = about(field, "unit")
    if unit is None or (unit.isascii() and unit.isprintable()):
        return unit
    with suppress(ValueError):
        return str(need("astropy.units").Unit(unit).to_string("fits"))
    raise ValueError(
        f"Expected the unit of {field.name!r} in ASCII for a FITS file; got {unit!r}. "
        "Write .parquet, .ecsv or .vot instead."
    )


def _encode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turn cells into what FITS has: big enough numbers, or bytes; nothing is null afterwards."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return pc.if_else(column, pa.scalar(b"T"), pa.scalar(b"F")).fill_null(b"\0")
    if kind in FITS_NUMBERS:
        number = FITS_NUMBERS[kind]
        return column.cast(number).fill_null(_least(number))
    if pa.types.is_fixed_size_list(kind) and kind.value_type in FITS_NUMBERS:
        return column.cast(pa.list_(FITS_NUMBERS[kind.value_type], kind.list_size))
    if pa.types.is_string(kind):
        return column.cast(pa.binary()).fill_null(b"")
    return pa.chunked_array([[_text(cell).encode() for cell in column.to_pylist()]], pa.binary())


def _least(number: pa.DataType) -> float:
    """Return what stands for a missing number."""
    return float("nan") if pa.types.is_floating(number) else -(2 ** (number.bit_width - 1))


def _layout(kind: pa.DataType, width: int) -> tuple[str, Any]:
    """Return FITS's name of an encoded type, and numpy's."""
    if pa.types.is_binary(kind):
        return f"{width}A", f"S{width}"
    if pa.types.is_fixed_size_list(kind):
        form, dtype = _layout(kind.value_type, width)
        return f"{kind.list_size}{form}", (dtype, (kind.list_size,))
    return FITS_FORMS[kind], np.dtype(kind.to_pandas_dtype()).newbyteorder(">")


def _refuse_names(names: Sequence[str]) -> None:
    advice = "Write .parquet, .ecsv or .vot instead, or rename it."
    for name in names:
        if not (name.isascii() and name.isprintable()):
            raise ValueError(
                f"Expected columns named in ASCII for a FITS file; got {name!r}. {advice}"
            )
        if len(name) > LONGEST_NAME:
            raise ValueError(
                f"Expected names of at most {LONGEST_NAME} characters for a FITS file; got "
                f"{name!r}. {advice}"
            )
    if len(names) > MOST_COLUMNS:
        raise ValueError(
            f"Expected up to {MOST_COLUMNS} columns for a FITS file; got {len(names)}. Write "
            ".parquet instead."
        )


def _fits_rows(hdu: Any, start: int, stop: int) -> Any:
    """Cut rows out, once for all columns: astropy makes every column anew; None without data."""
    return None if hdu.data is None else hdu.data[start:stop]


def _fits_cells(rows: Any, column: Any) -> pa.Array:
    if rows is None:
        return _as_arrow(np.empty(0, column.dtype))
    values = np.asarray(rows[column.name])
    if column.null is None or values.dtype.kind not in "iu":
        return _as_arrow(values)
    return _as_arrow(values, values == column.null)


def _read(content: Content, kind: str) -> Any:
    unpacked = content.unpacked()
    size = unpacked.path.stat().st_size
    if unpacked is not content and size > MOST_AT_ONCE:
        raise TableError(
            f"Expected at most {MOST_AT_ONCE >> 30} GiB in {content.name}, because it is read at "
            f"once; got {size / 2**30:.1f}. Convert it to .parquet, or unpack it yourself."
        )
    if kind == "votable":
        _check_votable(unpacked, size)
    table_type = need("astropy.table").Table
    options = READ_OPTIONS.get(kind, {})
    with warnings.catch_warnings(action="ignore"), unpacked.open() as file:
        return table_type.read(file, format=ASTROPY_FORMATS[kind], **options)


def _check_votable(content: Content, size: int) -> None:
    """Refuse a VOTable that sends astropy to other files or the network, or lies about its rows."""

    def start(element: str, attributes: dict[str, str]) -> None:
        if element.endswith("STREAM") and "href" in attributes:
            raise TableError(
                f"Expected the rows of {content.name} in the file itself; got a link to "
                f"{attributes['href']!r}. Download that, and convert it to .parquet."
            )
        if element.endswith("TABLE") and int(attributes.get("nrows", 0)) > size:
            raise TableError(
                f"Expected as many rows as {content.name} has room for; got "
                f"nrows={attributes['nrows']}."
            )

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    with content.open() as file:
        parser.ParseFile(file)


def _as_pyarrow(table: Any) -> pa.Table:
    """Turn an astropy table into one of pyarrow; units become metadata of the fields."""
    arrays, fields = [], []
    for column in table.itercols():
        values = np.asarray(column.filled() if hasattr(column, "filled") else column)
        mask = getattr(column, "mask", None)
        arrays.append(_as_arrow(values, None if mask is None else np.asarray(mask)))
        info = column.info
        unit = str(info.unit) if info.unit else None
        fields.append(described(info.name, arrays[-1].type, unit, info.description))
    return pa.table(arrays, schema=pa.schema(fields))


def _as_astropy(table: pa.Table) -> Any:
    """Turn a pyarrow table into one of astropy."""
    result = need("astropy.table").Table()
    for field, column in zip(table.schema, table.columns, strict=True):
        result[field.name] = _as_numpy(column)
        result[field.name].unit = about(field, "unit")
        result[field.name].description = about(field, "description")
    return result


def _as_arrow(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> pa.Array:
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
        missing = column.is_null().to_numpy()
        values = column.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy()
        return np.ma.array(values, mask=missing) if missing.any() else values
    return np.array([_text(cell) for cell in column.to_pylist()], dtype=str)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)
