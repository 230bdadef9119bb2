"""CSV and TSV: cells are text until a type is asked for."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import (
    ConvertOptions,
    CSVStreamingReader,
    ParseOptions,
    ReadOptions,
    open_csv,
)

from deconflow.tables.cells import is_missing
from deconflow.tables.source import Sink, Source, refuse_twice, slices

TYPES = (pa.int64(), pa.float64(), pa.bool_())
"""What a column of text may turn out to be, the narrowest first."""
WORDS = "^(?i:true|false)$"
LEADING_ZERO = "^[+-]?0[0-9]+$"
"""Such a cell is a name, not a number."""
ROWS_AT_ONCE = 100_000


class TextSource(Source):
    """A table in text, all of whose cells are read as text; :meth:`typed` finds types."""

    def __init__(self, path: Path, delimiter: str, schema: pa.Schema | None = None) -> None:
        self.path, self.name = path, path.name
        self._comments, header = _begin(path)
        self.delimiter = ";" if delimiter == "," and _semicolons(header) else delimiter
        self._written = self._names()
        names = [name.strip() for name in self._written]
        refuse_twice(names, self.name)
        self.schema = schema or pa.schema([(name, pa.string()) for name in names])

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows."""
        names = self.names if columns is None else list(columns)
        written = [self._written[self.names.index(name)] for name in names]
        batches = self._batches(
            column_types=dict.fromkeys(self._written, pa.string()), include_columns=written
        )
        for table in slices(batches, size):
            yield _cast(table.rename_columns(names), self.schema)

    def typed(self) -> TextSource:
        """Return the same table with the narrowest type for each column that fits all rows."""
        left = {name: list(TYPES) for name in self.names}
        for table in self.chunks(ROWS_AT_ONCE):
            for name, kinds in left.items():
                left[name] = [kind for kind in kinds if _fits(table[name], kind)]
        schema = pa.schema([(name, [*kinds, pa.string()][0]) for name, kinds in left.items()])
        return TextSource(self.path, self.delimiter, schema)

    def _names(self) -> list[str]:
        with self._clear_errors():
            return list(self._reader().schema.names)

    def _batches(self, **conversion: Any) -> Iterator[pa.Table]:
        with self._clear_errors():
            for batch in self._reader(**conversion):
                yield pa.Table.from_batches([batch])

    def _reader(self, **conversion: Any) -> CSVStreamingReader:
        return open_csv(
            self.path,
            read_options=ReadOptions(skip_rows=self._comments),
            parse_options=ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=ConvertOptions(strings_can_be_null=False, **conversion),
        )

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeDecodeError, pa.ArrowInvalid) as error:
            if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
                raise ValueError(
                    f"Expected text in UTF-8 in {self.name}; got other bytes. Convert it, for "
                    f"example: iconv -f latin1 -t utf-8 {self.name}"
                ) from error
            raise ValueError(
                f"Expected a header and rows of as many cells in {self.name}; got: {error}"
            ) from error


class TextSink(Sink):
    """A table in text that is being written."""

    def __init__(self, path: Path, schema: pa.Schema, delimiter: str) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, delimiter=delimiter, lineterminator="\n")
        self._writer.writerow(schema.names)

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        columns = [map(_text, column.to_pylist()) for column in table.columns]
        self._writer.writerows(zip(*columns, strict=True))

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def discard(self) -> None:
        """Let go of the file."""
        self._file.close()


def _begin(path: Path) -> tuple[int, bytes]:
    """Count the comments above the header, and return it."""
    count = 0
    with path.open("rb") as file:
        for line in file:
            if not line.startswith(b"#"):
                return count, line
            count += 1
    return count, b""


def _semicolons(header: bytes) -> bool:
    """Whether a header that should have commas has semicolons instead."""
    return b";" in header and b"," not in header


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for i, name in enumerate(table.column_names):
        wanted = schema.field(name).type
        if wanted != pa.string():
            table = table.set_column(i, name, _converted(table[name], wanted))
    return table


def _converted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return _present(column).cast(wanted)


def _present(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Trim cells, and take what stands for a missing value away."""
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(is_missing(trimmed), pa.scalar(None, pa.string()), trimmed)


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether all cells can have a type, and look the same when they are written again."""
    present = _present(column)
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.match_substring_regex(present, WORDS), min_count=0).as_py())
    if pc.any(pc.match_substring_regex(present, LEADING_ZERO), min_count=0).as_py():
        return False
    try:
        present.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _text(cell: Any) -> Any:
    """Leave missing cells empty; arrays inside cells are written as Python writes them."""
    if cell is None or cell != cell:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell
