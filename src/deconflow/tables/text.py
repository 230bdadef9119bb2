"""CSV and TSV: cells are text until a type is asked for."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
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
ROWS_AT_ONCE = 100_000


class TextSource(Source):
    """A table in text, all of whose cells are read as text; :meth:`typed` finds types."""

    def __init__(self, path: Path, delimiter: str, schema: pa.Schema | None = None) -> None:
        self.path, self.name, self.delimiter = path, path.name, delimiter
        self._comments = _leading_comments(path)
        self._names: list[str] = self._reader(None).schema.names
        refuse_twice(self._names, self.name)
        self.schema = schema or pa.schema([(name, pa.string()) for name in self._names])

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows."""
        reader = self._reader(self._names, columns)
        for table in slices((pa.Table.from_batches([batch]) for batch in reader), size):
            yield _cast(table, self.schema)

    def typed(self) -> TextSource:
        """Return the same table with the narrowest type for each column that fits all rows."""
        found = dict.fromkeys(self._names, 0)
        for table in self.chunks(ROWS_AT_ONCE):
            for name, level in found.items():
                found[name] = _first_fitting(table[name], level)
        types = [*TYPES, pa.string()]
        schema = pa.schema([(name, types[level]) for name, level in found.items()])
        return TextSource(self.path, self.delimiter, schema)

    def _reader(
        self, names: list[str] | None, columns: Sequence[str] | None = None
    ) -> CSVStreamingReader:
        as_text = None if names is None else dict.fromkeys(names, pa.string())
        try:
            return open_csv(
                self.path,
                read_options=ReadOptions(skip_rows=self._comments),
                parse_options=ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=ConvertOptions(
                    column_types=as_text, include_columns=columns, strings_can_be_null=False
                ),
            )
        except pa.ArrowInvalid as error:
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


def _leading_comments(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        for line in file:
            if not line.startswith(b"#"):
                break
            count += 1
    return count


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for i, name in enumerate(table.column_names):
        wanted = schema.field(name).type
        if wanted != pa.string():
            table = table.set_column(i, name, _converted(table[name], wanted))
    return table


def _converted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(is_missing(trimmed), pa.scalar(None, pa.string()), trimmed).cast(wanted)


def _first_fitting(column: pa.ChunkedArray, level: int) -> int:
    for position, wanted in enumerate(TYPES[level:], level):
        try:
            _converted(column, wanted)
        except pa.ArrowInvalid:
            continue
        return position
    return len(TYPES)


def _text(cell: Any) -> Any:
    """Leave missing cells empty; arrays inside cells are written as Python writes them."""
    if cell is None or cell != cell:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell
