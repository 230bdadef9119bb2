"""Tables that pyarrow reads and writes: CSV, TSV, Parquet and Arrow files, and folders of them."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from deconflow.tables.cells import can_be, present
from deconflow.tables.formats import (
    Format,
    Source,
    TableError,
    about,
    clear_read_errors,
)

Write = Callable[[pa.Table], None]
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
        self._is_text = isinstance(getattr(dataset, "format", None), ds.CsvFileFormat)
        self.n_rows = None if self._is_text else dataset.count_rows()
        self.n_bytes = sum(file.stat().st_size for file in self.files)

    def _tables(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        kinds = [self.schema.field(name).type for name in columns]
        batches = self._dataset.to_batches(
            columns=list(columns), batch_size=size,
            batch_readahead=1, fragment_readahead=1,
        )  # fmt: skip
        for batch in batches:
            pairs = zip(batch.columns, kinds, strict=True)
            cells = [
                each if each.type == kind else present(each).cast(kind) for each, kind in pairs
            ]
            yield pa.table(cells, names=list(columns))

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """The files; of a single Parquet file its row groups."""
        fragments = list(self._dataset.get_fragments()) if self.files else []
        if len(fragments) > 1:
            return [(each.path, self._piece(each, each.path)) for each in fragments]
        if fragments and isinstance(fragments[0], ds.ParquetFileFragment):
            groups = fragments[0].split_by_row_group()
            names = [f"{self.name}, row group {i}" for i in range(len(groups))]
            if len(groups) > 1:
                return [(n, self._piece(each, n)) for n, each in zip(names, groups, strict=True)]
        return [(self.name, self)]

    def _piece(self, fragment: Any, name: str) -> Source:
        known = self._dataset
        piece = ds.FileSystemDataset([fragment], known.schema, known.format, known.filesystem)
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
    common = common_schema(schemas)
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
        names = arrow_csv.open_csv(stream, above, parse).schema.names
    stripped = [name.strip() for name in names]
    layout = ds.CsvFileFormat(
        parse, read_options=arrow_csv.ReadOptions(skip_rows=comments + 1, column_names=stripped),
        convert_options=arrow_csv.ConvertOptions(strings_can_be_null=False),
    )  # fmt: skip
    if len({*stripped}) < len(stripped):
        twice = next(name for name in stripped if stripped.count(name) > 1)
        raise TableError(f"Expected each column of {path} once; got {twice!r} twice. Rename one.")
    return layout, stripped


def common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return types that fit all files, which must have the same columns and units."""
    (first, common), *others = schemas
    for name, schema in others:
        apart = set(common.names) ^ set(schema.names)
        if apart:
            raise TableError(
                f"Expected the columns of {first} in {name}; got {sorted(apart)[0]!r} in one of "
                "them only. Give all files the same columns, or move those that differ."
            )
        for field in schema:
            units = [about(each, "unit") or "no unit" for each in (common.field(field.name), field)]
            if units[0] != units[1]:
                raise TableError(
                    f"Expected column {field.name!r} in {units[0]} in {name}, as in {first}; got "
                    f"{units[1]}. Convert it in one of them."
                )
        with clear_read_errors(name):
            common = pa.unify_schemas([common, schema], promote_options="permissive")
    return common.remove_metadata()


@contextmanager
def arrow_writer(file: IO[bytes], schema: pa.Schema, known: Format) -> Iterator[Write]:
    """Write chunks as they come."""
    if known.name == "parquet":
        with pq.ParquetWriter(file, schema, write_page_checksum=True) as parquet:
            yield lambda table: parquet.write_table(table.cast(schema))
    elif known.name == "feather":
        with pa.ipc.new_file(file, schema) as arrow:
            yield lambda table: arrow.write_table(table.cast(schema))
    else:  # by Python's writer: that of pyarrow puts quotes around every cell of text
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            writer = csv.writer(text, delimiter=known.delimiter, lineterminator="\n")
            writer.writerow(schema.names)
            yield lambda table: writer.writerows(
                zip(*(map(as_written, column.to_pylist()) for column in table.columns), strict=True)
            )
        finally:
            text.detach()


def as_written(cell: Any) -> Any:
    """Leave missing cells empty; arrays inside cells are written as Python writes them."""
    if cell is None or cell != cell:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell


def _fits(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether all cells can have a type, and look the same when they are written again."""
    cells = present(column)
    pattern = WORDS if pa.types.is_boolean(kind) else LEADING_ZERO
    matches = pc.match_substring_regex(cells, pattern)
    if pa.types.is_boolean(kind):
        return bool(pc.all(matches, min_count=0).as_py())
    return not pc.any(matches, min_count=0).as_py() and can_be(cells, kind)
