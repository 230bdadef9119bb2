"""Tables that pyarrow and astropy read and write, file by file or folder by folder.

FITS files are mapped into memory and may be larger than it; ECSV, VOTable and text with spaces are
read at once, and all that astropy writes is written at once.
"""

import csv
import io
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from deconflow._types import AnyArray, BoolArray
from deconflow.extras import need
from deconflow.tables.formats import Format, Source, TableError, about, clear_read_errors, described

Write = Callable[[pa.Table], None]
#: What people write for a missing value, in any case of letters.
MISSING = ("", "nan", "na", "n/a", "null", "none", "--", "-")
#: Types that a column of text may turn out to have, the narrowest first.
TYPES = (pa.int64(), pa.float64(), pa.bool_())
WORDS = "^(?i:true|false)$"
#: Such a cell is a name, not a number.
LEADING_ZERO = "^[+-]?0[0-9]+$"
ROWS_AT_ONCE = 100_000


class ArrowSource(Source):
    """A pyarrow dataset: files, or a table in memory. Cells of text are read as text.

    Parameters
    ----------
    dataset
        The dataset.
    name
        Name for messages.
    files
        Its files, if it has any.
    """

    def __init__(self, dataset: ds.Dataset, name: str, files: Sequence[Path] = ()) -> None:
        self._dataset, self.name, self.files = dataset, name, tuple(files)
        self.schema = pa.schema(list(dataset.schema))
        is_text = isinstance(getattr(dataset, "format", None), ds.CsvFileFormat)
        self.n_rows = None if is_text else dataset.count_rows()
        self.n_bytes = sum(file.stat().st_size for file in self.files)

    def _tables(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        kinds = [self.schema.field(name).type for name in columns]
        batches = self._dataset.to_batches(
            columns=list(columns), batch_size=size,
            batch_readahead=1, fragment_readahead=1,
        )  # fmt: skip
        for batch in batches:
            pairs = zip(batch.columns, kinds, strict=True)
            cells = [each if each.type == kind else plain(each).cast(kind) for each, kind in pairs]
            yield pa.table(cells, names=list(columns))

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """The files; of a single Parquet file its row groups."""
        parts = list(self._dataset.get_fragments()) if self.files else []
        names = [part.path for part in parts]
        if len(parts) == 1 and isinstance(parts[0], ds.ParquetFileFragment):
            parts = parts[0].split_by_row_group()
            names = [f"{self.name}, row group {i}" for i in range(len(parts))]
        if len(parts) < 2:
            return super().pieces
        return [(name, self._piece(part, name)) for part, name in zip(parts, names, strict=True)]

    def _piece(self, fragment: Any, name: str) -> Source:
        whole: Any = self._dataset
        piece = ds.FileSystemDataset([fragment], whole.schema, whole.format, whole.filesystem)
        found = ArrowSource(piece, f"{self.name}/{name}" if name == fragment.path else name)
        if isinstance(fragment, ds.ParquetFileFragment):  # whose dataset counts all row groups
            found.n_rows = sum(group.num_rows for group in fragment.row_groups)
        return found

    def typed(self) -> "ArrowSource":
        """Give each column of text the narrowest type that fits all rows, by a pass over them."""
        left = {name: list(TYPES) for name in self.names}
        for table in self.chunks(ROWS_AT_ONCE):
            for name, kinds in left.items():
                left[name] = [kind for kind in kinds if _fits(table[name], kind)]
        self.schema = pa.schema([(name, [*kinds, pa.string()][0]) for name, kinds in left.items()])
        return self


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
        with clear_read_errors(self.name), warnings.catch_warnings():
            options: dict[str, Any] = {}
            if known.name == "fits":
                options = {"hdu": _choose(path, name, part), "memmap": True, "mask_invalid": False}
            if known.name == "votable":
                _refuse_links(path)
                options = {"use_names_over_ids": True}
            warnings.simplefilter("ignore")
            self._table = need("astropy.table").Table.read(path, format=known.name, **options)
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
            values = np.asarray(column if mask is None else column.filled())
            arrays.append(_as_arrow(values, None if mask is None else np.asarray(mask)))
            unit = str(info.unit) if info.unit else None
            fields.append(described(name, arrays[-1].type, unit, info.description))
        return pa.table(arrays, schema=pa.schema(fields))


class Many(Source):
    """Several tables as one."""

    def __init__(self, name: str, sources: Sequence[Source]) -> None:
        self.name, self.sources = name, list(sources)
        self.schema = _common_schema([(each.name, each.schema) for each in sources])
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


def open_arrow(root: Path, files: Sequence[str], known: Format, name: str) -> ArrowSource:
    """Open files below a folder as one table; folders such as ``year=2020`` become columns."""
    place, paths = fs.SubTreeFileSystem(os.path.abspath(root), fs.LocalFileSystem()), list(files)
    layout: Any = known.name
    if known.name == "parquet":
        layout = ds.ParquetFileFormat(pre_buffer=False, page_checksum_verification=True)
    opened = partial(ds.dataset, paths, filesystem=place, partitioning="hive")
    texts, schemas, folders = {}, [], []
    if known.delimiter:
        keys = [part.partition("=")[0] for part in Path(files[0]).parts[:-1] if "=" in part]
        folders = [pa.field(key, pa.string()) for key in keys]
    else:
        found = opened(format=layout)
        fragments = {fragment.path: fragment for fragment in found.get_fragments()}
    for path in paths:
        with clear_read_errors(label := path if len(paths) == 1 else f"{name}/{path}"):
            if known.delimiter:
                texts[path], names = _text_format(place, path, known)
                schemas.append((label, pa.schema([(each, pa.string()) for each in names])))
            else:
                schemas.append((label, fragments[path].physical_schema))
    common = _common_schema(schemas)
    if not known.delimiter:
        folders = [field for field in found.schema if field.name not in common.names]
    schema = pa.schema([*common, *folders])
    dataset = opened(format=texts[paths[0]] if texts else layout, schema=schema)
    if texts:
        own = [
            texts[each.path].make_fragment(each.path, place, each.partition_expression)
            for each in dataset.get_fragments()
        ]
        dataset = ds.FileSystemDataset(own, schema, dataset.format, place)
    return ArrowSource(dataset, name, [root / path for path in paths])


def _text_format(
    place: fs.FileSystem, path: str, known: Format
) -> tuple[ds.CsvFileFormat, list[str]]:
    """Read what is above the rows of a text: comments, and a header with commas or semicolons."""
    with place.open_input_stream(path) as stream:  # unpacked as the ending says
        lines = [*stream.read(2**20).split(b"\n"), b""]
    comments = next(i for i, line in enumerate(lines) if not line.startswith(b"#"))
    semicolons = known.delimiter == "," and b";" in lines[comments] and b"," not in lines[comments]
    delimiter = ";" if semicolons else known.delimiter
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    above = arrow_csv.ReadOptions(skip_rows=comments)
    with place.open_input_stream(path) as stream:
        stripped = [n.strip() for n in arrow_csv.open_csv(stream, above, parse).schema.names]
    layout = ds.CsvFileFormat(
        parse, read_options=arrow_csv.ReadOptions(skip_rows=comments + 1, column_names=stripped),
        convert_options=arrow_csv.ConvertOptions(strings_can_be_null=False),
    )  # fmt: skip
    if len({*stripped}) < len(stripped):
        twice = next(name for name in stripped if stripped.count(name) > 1)
        raise TableError(f"Expected each column of {path} once; got {twice!r} twice. Rename one.")
    return layout, stripped


def _common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return types that fit all files, which must have the same columns and units."""
    (first, common), *others = schemas
    for name, schema in others:
        apart = sorted({*common.names} ^ {*schema.names})
        if apart:
            raise TableError(
                f"Expected the columns of {first} in {name}; got {apart[0]!r} in one of "
                "them only. Give all files the same columns, or move those that differ."
            )
        for field in schema:
            here, there = (
                about(each, "unit") or "no unit" for each in (field, common.field(field.name))
            )
            if here != there:
                raise TableError(
                    f"Expected column {field.name!r} in {there} in {name}, as in {first}; got "
                    f"{here}. Convert it in one of them."
                )
        with clear_read_errors(name):
            common = pa.unify_schemas([common, schema], promote_options="permissive")
    return common.remove_metadata()


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
def arrow_writer(file: IO[bytes], schema: pa.Schema, known: Format) -> Iterator[Write]:
    """Write chunks as they come."""
    if not known.delimiter:
        parquet = partial(pq.ParquetWriter, write_page_checksum=True)
        with (parquet if known.name == "parquet" else pa.ipc.new_file)(file, schema) as arrow:
            yield lambda table: arrow.write_table(table.cast(schema))
    else:  # by Python's writer: that of pyarrow puts quotes around every cell of text
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            writer = csv.writer(text, delimiter=known.delimiter, lineterminator="\n")
            writer.writerow(schema.names)
            yield lambda table: writer.writerows(
                zip(
                    *(map(_as_written, column.to_pylist()) for column in table.columns), strict=True
                )
            )
        finally:
            text.detach()


@contextmanager
def astropy_writer(file: IO[bytes], schema: pa.Schema, known: Format) -> Iterator[Write]:
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
        if known.name == "fits":
            table.convert_unicode_to_bytestring()
        written = io.StringIO() if known.name == "ascii.ecsv" else io.BytesIO()
        table.write(written, format=known.name)
    content = written.getvalue()
    file.write(content.encode() if isinstance(content, str) else content)


def _as_written(cell: Any) -> Any:
    """Leave missing cells empty; arrays inside cells are written as Python writes them."""
    if cell is None or cell != cell:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell


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
        missing = column.is_null().to_numpy()
        values = column.fill_null(pa.scalar(0).cast(kind)).to_numpy()
        least = None if kind == pa.bool_() else np.iinfo(values.dtype).min
        return np.ma.array(values, mask=missing, fill_value=least) if missing.any() else values
    return np.array([str(_as_written(cell)) for cell in column.to_pylist()], dtype=str)


def plain(column: Any) -> Any:
    """Return plain cells: the values of a dictionary, and of text those that are not missing.

    Text is trimmed; what stands for a missing value becomes null.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if column.type != pa.string():
        return column
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)


def can_be(cells: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether cells of text can be converted."""
    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether all cells can have a type, and look the same when they are written again."""
    cells = plain(column)
    if kind == pa.bool_():
        return bool(pc.all(pc.match_substring_regex(cells, WORDS), min_count=0).as_py())
    names = pc.match_substring_regex(cells, LEADING_ZERO)
    return not pc.any(names, min_count=0).as_py() and can_be(cells, kind)
