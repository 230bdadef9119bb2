"""FITS: read by slices of the mapped file, written by way of a Parquet file beside it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deconflow.tables.arrays import as_arrow, field_of
from deconflow.tables.formats import need
from deconflow.tables.parquet import ParquetSink, ParquetSource
from deconflow.tables.source import Sink, Source

BLOCK = 2880
ROWS_AT_ONCE = 50_000


class FitsSource(Source):
    """A table of a FITS file: that of a name or number, or the first."""

    def __init__(self, path: Path, part: str | None = None) -> None:
        self.path, self.part = path, part
        self.name = path.name if part is None else f"{path.name}[{part}]"
        with self._table() as hdu:
            fields = [_column(hdu, column, 0, 0) for column in hdu.columns]
            self.n_rows: int = hdu.header["NAXIS2"]
            self.schema = pa.schema([
                field_of(column.name, array.type, column.unit)
                for column, array in zip(hdu.columns, fields, strict=True)
            ])  # fmt: skip

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows."""
        names = self.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        with self._table() as hdu:
            for start in range(0, self.n_rows, size):
                arrays = [_column(hdu, hdu.columns[name], start, start + size) for name in names]
                yield pa.table(arrays, schema=schema)

    @contextmanager
    def _table(self) -> Iterator[Any]:
        fits = need("astropy.io.fits")
        try:
            file = fits.open(self.path, memmap=True)
        except OSError as error:
            raise ValueError(f"Expected a FITS file at {self.path}; got: {error}") from error
        with file:
            kinds = fits.BinTableHDU | fits.TableHDU
            tables = {str(i): hdu for i, hdu in enumerate(file) if isinstance(hdu, kinds)}
            if not tables:
                raise ValueError(f"Expected a table in {self.path}; got images only.")
            yield self._choose(tables)

    def _choose(self, tables: dict[str, Any]) -> Any:
        """Choose by name or number; the first, with a word about the others, if none is said."""
        names = ", ".join(hdu.name or number for number, hdu in tables.items())
        if self.part is None:
            if len(tables) > 1:
                warnings.warn(
                    f"{self.name} has the tables {names}; the first is taken. Name another as "
                    f"{self.name}[NAME].",
                    stacklevel=2,
                )
            return next(iter(tables.values()))
        for number, hdu in tables.items():
            if self.part == number or self.part.upper() == hdu.name.upper():
                return hdu
        raise ValueError(f"Expected a table in {self.path.name}: {names}; got {self.part!r}.")


def _column(hdu: Any, column: Any, start: int, stop: int) -> pa.Array:
    if hdu.data is None:
        return as_arrow(np.empty(0, column.dtype))
    values = np.asarray(hdu.data[start:stop][column.name])
    if column.null is None or values.dtype.kind not in "iu":
        return as_arrow(values)
    return as_arrow(values, values == column.null)


@dataclass(frozen=True)
class Layout:
    """How a column lies in the rows of a binary table."""

    form: str
    dtype: str
    null: int | None = None
    text: bool = False


class FitsSink(Sink):
    """A FITS file: widths of text are known at the end, so rows wait in a Parquet file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        for name in schema.names:
            if not (name.isascii() and name.isprintable()):
                raise ValueError(
                    f"Expected columns named in ASCII for a FITS file; got {name!r}. "
                    "Write .parquet, .ecsv or .vot instead, or rename it."
                )
        self._path, self._schema = path, schema
        self._waiting = path.with_name(path.name + ".parquet")
        self._sink = ParquetSink(self._waiting, schema)
        self._n_rows = 0
        self._widths = dict.fromkeys(schema.names, 1)
        self._has_null = dict.fromkeys(schema.names, False)

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._sink.write(table)
        self._n_rows += table.num_rows
        for name in table.column_names:
            column = table[name]
            self._has_null[name] |= column.null_count > 0
            if _as_text(column.type) and len(column):
                width = pc.max(pc.binary_length(_text(column))).as_py() or 0
                self._widths[name] = max(self._widths[name], width)

    def close(self) -> None:
        """Write the header, then the rows."""
        self._sink.close()
        try:
            self._write_rows()
        finally:
            self._waiting.unlink(missing_ok=True)

    def discard(self) -> None:
        """Let go of the waiting rows."""
        self._sink.discard()
        self._waiting.unlink(missing_ok=True)

    def _write_rows(self) -> None:
        layouts = {f.name: self._layout(f) for f in self._schema}
        dtype = np.dtype([(f"f{i}", form.dtype) for i, form in enumerate(layouts.values())])
        with self._path.open("wb") as file:
            file.write(_headers(self._schema, layouts, self._n_rows))
            for table in ParquetSource(self._waiting).chunks(ROWS_AT_ONCE):
                rows = np.zeros(table.num_rows, dtype)
                for i, (name, form) in enumerate(layouts.items()):
                    rows[f"f{i}"] = _cells(table[name], form)
                file.write(rows.tobytes())
            file.write(b"\0" * (-self._n_rows * dtype.itemsize % BLOCK))

    def _layout(self, field: pa.Field) -> Layout:
        kind = field.type
        if pa.types.is_fixed_size_list(kind) and not _as_text(kind):
            one = _number_layout(kind.value_type)
            return Layout(f"{kind.list_size}{one.form}", f"({kind.list_size},){one.dtype}")
        if pa.types.is_boolean(kind):
            return Layout("L", "S1")
        if not _as_text(kind):
            return _number_layout(kind, self._has_null[field.name])
        width = self._widths[field.name]
        return Layout(f"{width}A", f"S{width}", text=True)


def _number_layout(kind: pa.DataType, has_null: bool = False) -> Layout:
    if pa.types.is_floating(kind):
        return Layout("D", ">f8") if kind == pa.float64() else Layout("E", ">f4")
    width = kind.bit_width * (2 if pa.types.is_unsigned_integer(kind) else 1)
    bits = min(64, max(16, width))
    null = -(2 ** (bits - 1)) if has_null else None
    return Layout({16: "I", 32: "J", 64: "K"}[bits], f">i{bits // 8}", null)


def _headers(schema: pa.Schema, layouts: dict[str, Layout], n_rows: int) -> bytes:
    fits = need("astropy.io.fits")
    units = [(f.metadata or {}).get(b"unit", b"").decode() or None for f in schema]
    columns = [
        fits.Column(name, form.form, unit=unit, null=form.null)
        for (name, form), unit in zip(layouts.items(), units, strict=True)
    ]
    header = fits.BinTableHDU.from_columns(columns, nrows=0).header
    header["NAXIS2"] = n_rows
    primary = fits.PrimaryHDU().header
    primary["EXTEND"] = True
    return (primary.tostring() + header.tostring()).encode("ascii")


def _cells(column: pa.ChunkedArray, form: Layout) -> NDArray[Any]:
    if form.text:
        texts = _text(column).to_pylist()
        return np.array([(cell or "").encode() for cell in texts], dtype=form.dtype)
    if form.form == "L":
        letters = {True: b"T", False: b"F", None: b"\0"}
        return np.array([letters[cell] for cell in column.to_pylist()], dtype="S1")
    if pa.types.is_fixed_size_list(column.type):
        flat = np.asarray(column.combine_chunks().flatten())
        return flat.reshape(-1, column.type.list_size)
    if form.dtype in (">f4", ">f8"):
        return column.fill_null(float("nan")).to_numpy()
    return column.cast(pa.int64()).fill_null(form.null or 0).to_numpy()


def _as_text(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return pa.types.is_boolean(kind.value_type) or _as_text(kind.value_type)
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return not plain


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type):
        return column
    cells = [None if cell is None else str(cell) for cell in column.to_pylist()]
    return pa.chunked_array([pa.array(cells, pa.string())])
