"""CSV, TSV and Parquet by pyarrow, in chunks; and what cells of text mean."""

from __future__ import annotations

import copy
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deconflow.tables.io import Sink, Source, row_name, slices
from deconflow.tables.packed import Content, TableError

MISSING = ("", "nan", "na", "n/a", "null", "none", "--", "-")
"""What people write for a missing value, in any case of letters."""
TYPES = (pa.int64(), pa.float64(), pa.bool_())
"""What a column of text may turn out to be, the narrowest first."""
WORDS = "^(?i:true|false)$"
LEADING_ZERO = "^[+-]?0[0-9]+$"
"""Such a cell is a name, not a number."""
SIGNS = {"<": -1, ">": 1}
"""What is written before a number that is a limit."""
FLAGS = {"-1": -1, "<": -1, "0": 0, "1": 1, "+1": 1, ">": 1}
ROWS_AT_ONCE = 100_000
LONGEST_LINE = 2**20


class TextSource(Source):
    """A table in text, all of whose cells are read as text; :meth:`typed` finds types."""

    def __init__(self, content: Content, delimiter: str) -> None:
        self.content, self.name = content, content.name
        self._comments, header = _above_the_rows(content)
        semicolons = delimiter == "," and b";" in header and b"," not in header
        self.delimiter = ";" if semicolons else delimiter
        with self._clear_errors(), self._reader() as reader:
            self._written = list(reader.schema.names)
        self.schema = pa.schema([(name.strip(), pa.string()) for name in self._written])

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        return map(self._with_types, self._text(size, columns))

    def _text(self, size: int, names: Sequence[str]) -> Iterator[pa.Table]:
        own = dict(zip(self.names, self._written, strict=True))
        written = [own[name] for name in names]
        text = dict.fromkeys(self._written, pa.string())
        with (
            self._clear_errors(),
            self._reader(column_types=text, include_columns=written) as reader,
        ):
            for batch in reader:
                for table in slices(pa.Table.from_batches([batch]), size):
                    yield table.rename_columns(list(names))

    def typed(self) -> Self:
        """Take the narrowest type for each column that fits all rows."""
        return self.with_types(self.possible_types())

    def possible_types(self) -> dict[str, list[pa.DataType]]:
        """Find the types that fit all rows of each column, the narrowest first."""
        left = {name: list(TYPES) for name in self.names}
        for table in self._text(ROWS_AT_ONCE, self.names):
            for (name, kinds), column in zip(left.items(), table.columns, strict=True):
                left[name] = [kind for kind in kinds if _fits(column, kind)]
        return left

    def with_types(self, possible: Mapping[str, Sequence[pa.DataType]]) -> Self:
        """Give each column the first of its possible types, or leave it as text."""
        kinds = {name: [*possible[name], pa.string()][0] for name in self.names}
        self.schema = pa.schema(list(kinds.items()))
        return self

    def _with_types(self, table: pa.Table) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in table.column_names])
        columns = [
            column if kind == pa.string() else _present(column).cast(kind)
            for column, kind in zip(table.columns, schema.types, strict=True)
        ]
        return pa.table(columns, schema=schema)

    @contextmanager
    def _reader(self, **conversion: Any) -> Iterator[arrow_csv.CSVStreamingReader]:
        options = {
            "read_options": arrow_csv.ReadOptions(skip_rows=self._comments),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True
            ),
            "convert_options": arrow_csv.ConvertOptions(strings_can_be_null=False, **conversion),
        }
        with self.content.stream() as file, arrow_csv.open_csv(file, **options) as reader:
            yield reader

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
                raise TableError(
                    f"Expected text in UTF-8 in {self.name}; got other bytes. Convert it, for "
                    f"example: iconv -f latin1 -t utf-8 {self.name}"
                ) from error
            raise TableError(
                f"Expected a header and rows of as many cells in {self.name}; got: {error}"
            ) from error


class ParquetSource(Source):
    """A Parquet file, read by batches of its row groups."""

    def __init__(self, content: Content) -> None:
        self.content, self.name = content, content.name
        self._groups: list[int] | None = None
        with self._file() as file:
            self.schema = file.schema_arrow.remove_metadata()
            self.n_rows: int = file.metadata.num_rows

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        with self._file() as file:
            for batch in file.iter_batches(
                size, self._groups, columns=list(columns), use_threads=False
            ):
                yield pa.Table.from_batches([batch])

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Row groups, if there are several."""
        with self._file() as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        if len(sizes) < 2:
            return [(self.name, self)]
        return [(f"{self.name}, row group {i}", self._group(i, n)) for i, n in enumerate(sizes)]

    def _group(self, number: int, n_rows: int) -> Source:
        one = copy.copy(self)
        one._groups, one.n_rows = [number], n_rows
        return one

    def _file(self) -> pq.ParquetFile:
        source = self.content.unpacked
        file = pa.BufferReader(source) if isinstance(source, bytes) else source
        return pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)


@contextmanager
def write_text(file: IO[bytes], schema: pa.Schema, delimiter: str) -> Iterator[Sink]:
    """Write text by Python's own writer: that of pyarrow would put quotes around every text."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(schema.names)

        def write(table: pa.Table) -> None:
            columns = [map(as_written, column.to_pylist()) for column in table.columns]
            writer.writerows(zip(*columns, strict=True))

        yield Sink(write)
    finally:
        text.detach()


@contextmanager
def write_parquet(file: IO[bytes], schema: pa.Schema) -> Iterator[Sink]:
    """Write a row group for each chunk."""
    with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
        yield Sink(lambda table: writer.write_table(table.cast(schema)))


def as_numbers(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float64]:
    """Turn a column into float64, NaN where missing; ``first_row`` is where the chunk begins."""
    column = _decoded(column)
    if column.type == pa.string():
        numbers = _parsed(_present(column), name, first_row)
    elif _is_number(column.type):
        numbers = column.cast(pa.float64(), safe=False)
    else:
        raise ValueError(
            f"Expected numbers in column {name!r}; got {column.type}. Choose another column."
        )
    if numbers.null_count:
        numbers = pc.fill_null(numbers, float("nan"))
    return np.array(numbers.to_numpy(), dtype=np.float64)


def split_limits(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, NDArray[np.int64]]:
    """Take the sign off cells such as ``<1.5``: -1 for an upper limit, 1 for a lower one, or 0."""
    column, flags = _decoded(column), np.zeros(len(column), dtype=np.int64)
    if column.type != pa.string():
        return column, flags
    text = pc.utf8_trim_whitespace(column)
    for sign, flag in SIGNS.items():
        flags[pc.fill_null(pc.starts_with(text, sign), False).to_numpy()] = flag
    return (pc.utf8_ltrim(text, "<> ") if flags.any() else column), flags


def as_flags(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.int64]:
    """Turn a column that says which values are limits into -1, 0 and 1."""
    words = as_words(column, name)
    flags = np.array([FLAGS.get(str(word).removesuffix(".0"), 2) if word else 0 for word in words])
    bad = flags == 2
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"Expected -1 or < (upper limit), 1 or > (lower limit), 0 or nothing (measured) in "
            f"column {name!r}; got {words[row]!r} in {row_name(first_row + row)}. If it says "
            "something else, give limits=['none']"
        )
    return flags.astype(np.int64)


def as_draws(column: pa.ChunkedArray, name: str) -> list[NDArray[np.float64]]:
    """Turn a column of lists of numbers into arrays, empty where a list is missing."""
    kind = column.type
    if not (is_list(kind) and _is_number(kind.value_type)):
        raise ValueError(
            f"Expected lists of numbers in column {name!r}, as in the others; got {kind}. Choose "
            "another column."
        )
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    numbers = pc.fill_null(pc.list_flatten(column).cast(pa.float64(), safe=False), float("nan"))
    return np.split(numbers.to_numpy(), np.cumsum(lengths)[:-1]) if len(lengths) else []


def is_list(kind: pa.DataType) -> bool:
    """Whether cells of a column are lists."""
    kinds: tuple[Any, ...] = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in kinds)


def as_labels(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[Any]:
    """Turn a column of text or whole numbers into labels, None where missing."""
    labels = _as_objects(column)
    for row, cell in enumerate(labels):
        whole = isinstance(cell, float) and cell.is_integer()  # as where some are missing
        if not (cell is None or whole or isinstance(cell, str | int)):
            raise ValueError(
                f"Expected text or whole numbers in column {name!r}, which says what belongs "
                f"together; got {cell!r} in {row_name(first_row + row)}. Choose another column."
            )
    return labels


def as_words(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Turn a column of kinds of rows into text, None where missing."""
    kind = _decoded(column).type
    if kind != pa.string() and not _is_number(kind):
        raise ValueError(
            f"Expected numbers or text in column {name!r}; got {kind}. Choose another column."
        )
    words = _as_objects(column)
    words[:] = [None if word is None else str(word) for word in words]
    return words


def _as_objects(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return cells as objects of Python, None where missing."""
    column = _decoded(column)
    cells = (_present(column) if column.type == pa.string() else column).to_pylist()
    objects = np.empty(len(cells), dtype=object)
    objects[:] = [None if cell is None or cell != cell else cell for cell in cells]
    return objects


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether all cells that are not missing are numbers."""
    column = _decoded(column)
    if column.type == pa.string():
        return _can_be(_present(column), pa.float64())
    return _is_number(column.type) and not pa.types.is_boolean(column.type)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return plain cells: of a dictionary its values, and text of one type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _is_number(kind: pa.DataType) -> bool:
    kinds: tuple[Any, ...] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in (*kinds, pa.types.is_boolean, pa.types.is_null))


def _parsed(present: pa.ChunkedArray, name: str, first_row: int) -> pa.ChunkedArray:
    try:
        return present.cast(pa.float64())
    except pa.ArrowInvalid as error:
        row, cell = next(
            (row, cell) for row, cell in enumerate(present.to_pylist())
            if not _can_be(pa.array([cell], pa.string()), pa.float64())
        )  # fmt: skip
        comma = re.fullmatch(r"[+-]?\d+,\d+(e[+-]?\d+)?", cell, re.IGNORECASE)
        advice = "Correct it, or leave the cell empty for a missing value."
        raise ValueError(
            f"Expected numbers in column {name!r}; got {cell!r} in {row_name(first_row + row)}. "
            f"{'Write a point for the comma.' if comma else advice}"
        ) from error


def narrowest_type(cells: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """Return the narrowest type that cells of text can have."""
    return next((kind for kind in TYPES if _fits(cells, kind)), pa.string())


def _present(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Trim cells of text, and take away what stands for a missing value."""
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether all cells can have a type, and look the same when they are written again."""
    present = _present(column)
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.match_substring_regex(present, WORDS), min_count=0).as_py())
    if pc.any(pc.match_substring_regex(present, LEADING_ZERO), min_count=0).as_py():
        return False
    return _can_be(present, kind)


def _can_be(cells: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        cells.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _above_the_rows(content: Content) -> tuple[int, bytes]:
    """Count the comments above the header, and return it."""
    lines = [*content.beginning(LONGEST_LINE).split(b"\n"), b""]
    count = next(i for i, line in enumerate(lines) if not line.startswith(b"#"))
    return count, lines[count]


def as_written(cell: Any) -> Any:
    """Leave missing cells empty; arrays inside cells are written as Python writes them."""
    if cell is None or cell != cell:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell
