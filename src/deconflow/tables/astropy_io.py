"""FITS, ECSV, VOTable and text with spaces by astropy.

FITS is read by slices of the mapped file, and may be larger than memory. The others are read at
once, and all are written at once.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any
from xml.parsers import expat

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deconflow.tables.arrow_io import as_written
from deconflow.tables.io import Sink, Source, about, described, need, slices
from deconflow.tables.packed import Content, TableError, opened, size_of

ASTROPY_FORMATS = {"ecsv": "ascii.ecsv", "votable": "votable", "ascii": "ascii"}
READ_OPTIONS = {"votable": {"use_names_over_ids": True}}
"""Names as people gave them, not as XML wants them."""
LONGEST_NAME, MOST_COLUMNS = 68, 999
"""What a FITS header has room for."""
ASTROPY_COLUMNS = "--BEGIN-ASTROPY-SERIALIZED-COLUMNS--"
"""Below this comment astropy keeps descriptions in a FITS header; others keep them as TCOMM."""


class FitsSource(Source):
    """A table of a FITS file: that of a name or number, or the first."""

    def __init__(self, content: Content, part: str | None = None) -> None:
        self.content, self._which = content, part
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
        source = self.content.unpacked
        with fits.open(
            opened(source) if isinstance(source, bytes) else source, memmap=True
        ) as file:
            kinds = fits.BinTableHDU | fits.TableHDU
            tables = {str(i): hdu for i, hdu in enumerate(file) if isinstance(hdu, kinds)}
            if not tables:
                raise TableError(f"Expected a table in {self.name}; got images only.")
            yield self._choose(tables)

    def _check_size(self, hdu: Any) -> None:
        """Hold the header against the file, before astropy believes it."""
        header, size = hdu.header, size_of(self.content.unpacked)
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
def write_fits(file: IO[bytes], schema: pa.Schema) -> Iterator[Sink]:
    """Keep all rows in memory until they are written, as a binary table."""
    _refuse_names(schema.names)
    units = [_fits_unit(field) for field in schema]
    parts = [schema.empty_table()]
    yield Sink(lambda table: parts.append(table.cast(schema)))
    table = _as_astropy(pa.concat_tables(parts).cast(pa.schema([(f.name, f.type) for f in schema])))
    for column in table.itercols():
        if column.dtype.kind == "U":
            table[column.name] = np.char.encode(np.asarray(column), "utf-8")
    for field in schema:  # FITS has ASCII only
        words = (about(field, "description") or "").encode("ascii", "replace").decode()
        table[field.name].description = " ".join(words.split()) or None
    fits, written, whole = need("astropy.io.fits"), io.BytesIO(), io.BytesIO()
    table.write(written, format="fits")  # descriptions as astropy reads them
    written.seek(0)
    with fits.open(written) as hdus:
        for number, (column, unit) in enumerate(zip(table.itercols(), units, strict=True), start=1):
            for card, text in (("TUNIT", unit), ("TCOMM", column.description)):  # as others do
                if text:
                    hdus[1].header[f"{card}{number}"] = text
        hdus.writeto(whole)
    file.write(whole.getvalue())


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


def _refuse_names(names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        plain = name.isascii() and name.isprintable() and len(name) <= LONGEST_NAME
        if number >= MOST_COLUMNS or not plain:
            raise ValueError(
                f"Expected at most {MOST_COLUMNS} columns for a FITS file, with names in ASCII of "
                f"at most {LONGEST_NAME} characters; got {name!r}. Write .parquet, .ecsv or .vot "
                "instead."
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
    if kind == "votable":
        _check_votable(content)
    table_type = need("astropy.table").Table
    options = READ_OPTIONS.get(kind, {})
    with warnings.catch_warnings(action="ignore"), opened(content.unpacked) as file:
        return table_type.read(file, format=ASTROPY_FORMATS[kind], **options)


def _check_votable(content: Content) -> None:
    """Refuse a VOTable that sends astropy to other files or the network, or lies about its rows."""

    def start(element: str, attributes: dict[str, str]) -> None:
        if element.endswith("STREAM") and "href" in attributes:
            raise TableError(
                f"Expected the rows of {content.name} in the file itself; got a link to "
                f"{attributes['href']!r}. Download that, and convert it to .parquet."
            )
        if element.endswith("TABLE") and int(attributes.get("nrows", 0)) > size_of(
            content.unpacked
        ):
            raise TableError(
                f"Expected as many rows as {content.name} has room for; got "
                f"nrows={attributes['nrows']}."
            )

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    with opened(content.unpacked) as file:
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
        if missing.any():
            least = None if kind == pa.bool_() else np.iinfo(values.dtype).min
            return np.ma.array(values, mask=missing, fill_value=least)
        return values
    return np.array([str(as_written(cell)) for cell in column.to_pylist()], dtype=str)
