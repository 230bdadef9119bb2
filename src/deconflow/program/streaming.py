"""Going through a table in chunks, with new columns for every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from deconflow._types import Array
from deconflow.program.messages import note
from deconflow.program.model_folder import ModelFolder
from deconflow.tables import (
    STANDARD,
    Measurements,
    RowReader,
    Rows,
    Source,
    described,
    format_of,
    need,
    open_table,
    split_part,
    writing,
)

if TYPE_CHECKING:
    import pyarrow as pa

Compute = Callable[[Rows], Array]
"""From ``n`` rows to ``(n, C)`` new columns."""

STATUS = "deconflow_status"
ROWS_AT_ONCE = 5000
MOST_FAILURES = 1000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Text that begins so is a formula to a spreadsheet."""


@dataclass(frozen=True)
class NewColumn:
    """A column of numbers that the program adds to a table."""

    name: str
    description: str
    unit: str | None = None


def open_for(table: Path, output: Path | None) -> Source:
    """Open a table whose rows will go to ``output``; text that goes to text stays as it is."""
    text = output is not None and format_of(output).is_text
    source = open_table(table, typed=not text)
    if output is None or STANDARD in (table, output) or not output.exists():
        return source
    files = [shard.path for _, shard in getattr(source, "shards", ())] or [split_part(table)[0]]
    if any(output.samefile(file) for file in files):
        raise ValueError(f"Expected another output than the table itself; got {output} for both.")
    return source


def append_columns(
    reader: RowReader,
    output: Path,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    prefix: str,
    chunk: int,
    progress: bool,
    watch: Callable[[Array], None] = lambda values: None,
) -> Counter[str]:
    """Write the table with new columns and a status, and count rows by status.

    ``watch`` is shown the new columns of each chunk, NaN for unusable rows.
    """
    fields = all_fields(columns, output, prefix)
    with rows_bar(reader.source.n_rows, progress) as bar:
        return write_columns(
            reader, output, fields, compute, chunk=chunk, bar=bar, watch=watch,
            check=lambda counts: refuse_useless(counts, reader.source.name),
        )  # fmt: skip


def write_columns(
    reader: RowReader,
    output: Path,
    fields: Sequence[pa.Field],
    compute: Compute,
    *,
    chunk: int,
    bar: tqdm[Any],
    watch: Callable[[Array], None],
    check: Callable[[Counter[str]], None] = lambda counts: None,
) -> Counter[str]:
    """Do so for the new ``fields``; what ``check`` raises about the counts undoes it."""
    pa = need("pyarrow")
    schema = with_fields(reader.source, fields)
    harmless = _harmless if format_of(output).is_text else str
    counts: Counter[str] = Counter()
    with writing(output, schema) as sink:
        for table, values, status in answers(reader, len(fields) - 1, compute, chunk, bar):
            arrays = [pa.array(column, from_pandas=True) for column in values.T]
            arrays.append(pa.array(map(harmless, status), pa.string()))
            kept = table.select(reader.source.kept)
            sink.write(pa.table([*kept.columns, *arrays], schema=schema))
            counts.update(status)
            watch(values)
        check(counts)
    return counts


def rows_bar(n_rows: int | None, shown: bool) -> tqdm[Any]:
    """Return a bar that counts rows."""
    return tqdm(total=n_rows, unit=" rows", disable=not shown)


def answers(
    reader: RowReader,
    width: int,
    compute: Compute,
    chunk: int,
    bar: tqdm[Any],
    needed: Sequence[str] | None = None,
) -> Iterator[tuple[pa.Table, Array, NDArray[Any]]]:
    """Walk through all columns, or those needed, with each chunk's new columns and status."""
    first_row = 0
    for table in reader.source.chunks(chunk, needed):
        yield table, *_compute_rows(reader, table, first_row, width, compute)
        first_row += table.num_rows
        bar.update(table.num_rows)


def _compute_rows(
    reader: RowReader, table: pa.Table, first_row: int, width: int, compute: Compute
) -> tuple[Array, NDArray[Any]]:
    """Return new columns ``(N, width)``, NaN for unusable rows, and each row's status."""
    rows = reader(table, first_row)
    status = np.where(rows.usable, "ok", rows.reasons).astype(object)
    answers = np.full((len(rows.w), width), np.nan)
    failures: dict[int, str] = {}
    for start in range(0, len(rows.w), ROWS_AT_ONCE):
        part = slice(start, min(start + ROWS_AT_ONCE, len(rows.w)))
        _bisect_failures(compute, rows, part, answers, failures)
    places = np.flatnonzero(rows.usable)
    for row, reason in failures.items():
        status[places[row]] = reason
    return rows.scatter(answers), status


def refuse_useless(counts: Counter[str], table: str) -> None:
    """Raise if a table has no rows, or none that could be used."""
    if not counts:
        raise ValueError(f"Expected one or more rows in {table}; got none.")
    if "ok" not in counts:
        reason = counts.most_common(1)[0][0]
        raise ValueError(f"Expected a row of {table} that can be used; got none: {reason}")


def report_counts(counts: Counter[str]) -> str:
    """Say how many rows were used, and why others were not."""
    others = [f"{n} marked {reason!r}" for reason, n in counts.items() if reason != "ok"]
    return f"{counts['ok']} rows" + (f"; {', '.join(others)}" if others else "")


def _bisect_failures(
    compute: Compute,
    rows: Measurements,
    part: slice,
    answers: Array,
    failures: dict[int, str],
) -> None:
    """Compute some rows; where that fails, halve them until the row that fails is alone."""
    try:
        answers[part] = compute(rows.rows[part])
    except ValueError as error:
        if part.stop - part.start == 1:
            failures[part.start] = " ".join(str(error).split())
            if len(failures) > MOST_FAILURES:
                raise
            return
        middle = (part.start + part.stop) // 2
        for half in (slice(part.start, middle), slice(middle, part.stop)):
            _bisect_failures(compute, rows, half, answers, failures)


def units_of(saved: ModelFolder, source: Source) -> dict[str, str | None]:
    """Find the unit of each dimension: that of the fit, or that of the table."""
    known = saved.columns.units if saved.columns else ()
    here = [source.unit(name) if name in source.names else None for name in saved.names]
    pairs = zip(saved.names, known or here, here, strict=True)
    return {name: fitted or found for name, fitted, found in pairs}


def new_fields(columns: Sequence[NewColumn], output: Path, prefix: str = "") -> list[pa.Field]:
    """Return the fields of new columns, under names that are no formulas to a spreadsheet."""
    names = [prefix + column.name for column in columns]
    if format_of(output).is_text:
        harmless = [_harmless(name) for name in names]
        if harmless != names:
            note("deconflow: note: names of new columns that begin like a formula get a ' first")
        names = harmless
    kind = need("pyarrow").float64()
    return [
        described(name, kind, column.unit, column.description)
        for name, column in zip(names, columns, strict=True)
    ]


def all_fields(columns: Sequence[NewColumn], output: Path, prefix: str) -> list[pa.Field]:
    """Return the fields of new columns, and that of the status, which is the last."""
    return [*new_fields(columns, output, prefix), _status_field(output, prefix)]


def _status_field(output: Path, prefix: str) -> pa.Field:
    name = _harmless(prefix + STATUS) if format_of(output).is_text else prefix + STATUS
    kind = need("pyarrow").string()
    return described(name, kind, description="ok, or why the row could not be used")


def _harmless(text: str) -> str:
    """Keep a spreadsheet from taking text of ours, made of names in a file, for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def with_fields(source: Source, fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of a table with new ones after them, which it must not have yet."""
    schema = need("pyarrow").schema([source.schema.field(name) for name in source.kept])
    for field in fields:
        if field.name in schema.names:
            raise ValueError(
                f"Expected no column {field.name!r} in {source.name} yet; got one. "
                "Give --prefix for the names of new columns."
            )
        schema = schema.append(field)
    return schema
