"""Going through a table in chunks, with new columns for every row."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from deconflow._types import AnyArray, Array, ArrowTable
from deconflow.checks import refuse_if
from deconflow.extras import need
from deconflow.program.messages import note
from deconflow.tables import (
    STANDARD,
    RowReader,
    Rows,
    Source,
    described,
    format_of,
    open_table,
    writing,
)

#: From ``n`` rows to ``(n, C)`` new columns.
Compute = Callable[[Rows], Array]
ROWS_AT_ONCE = 5000
MOST_FAILURES = 1000
#: Text that begins so is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class NewColumn:
    """A column that the program adds to a table."""

    name: str
    description: str
    unit: str | None = None
    kind: str = "double"


STATUS = NewColumn("deconflow_status", "ok, or why the row could not be used", kind="string")


def open_for(table: Path, output: Path | None) -> Source:
    """Open a table whose rows will go to ``output``; text that goes to text stays as it is."""
    source = open_table(table, typed=output is None or not format_of(output).delimiter)
    is_new = output is None or STANDARD in (table, output) or not output.exists()
    refuse_if(
        not is_new and any(file.samefile(str(output)) for file in source.files),
        f"Expected another output than the table itself; got {output} for both.",
    )
    return source


def append_columns(
    reader: RowReader,
    output: Path | None,
    columns: Sequence[NewColumn],
    compute: Compute,
    *,
    prefix: str,
    chunk: int,
    progress: bool,
    watch: Callable[[Array], None] = lambda values: None,
) -> Counter[str]:
    """Write the table, if there is an ``output``, with new columns and a status for each row.

    ``watch`` is shown the new columns of each chunk, NaN for unusable rows. Returned are counts of
    rows by status.
    """
    source, counts, first_row = reader.source, Counter[str](), 0
    needed = reader.needed if output is None else None
    opened = (
        _written_to(output, reader, columns, prefix) if output else nullcontext(lambda *chunk: None)
    )
    with tqdm(total=source.n_rows, unit=" rows", disable=not progress) as bar, opened as write:
        for table in source.chunks(chunk, needed):
            values, status = _compute_rows(reader, table, first_row, len(columns), compute)
            write(table, values, status)
            watch(values)
            counts.update(status)
            first_row += table.num_rows
            bar.update(table.num_rows)
        refuse_if(not counts, f"Expected one or more rows in {source.name}; got none.")
        refuse_if(
            "ok" not in counts,
            f"Expected a row of {source.name} that can be used; got none: "
            f"{counts.most_common(1)[0][0]}",
        )
    return counts


@contextmanager
def _written_to(
    output: Path, reader: RowReader, columns: Sequence[NewColumn], prefix: str
) -> Iterator[Callable[[ArrowTable, Array, AnyArray], None]]:
    """Give what writes a chunk with its new columns and status."""
    arrow: Any = need("pyarrow")
    kept = reader.source.kept or reader.source.names
    schema = arrow.schema([reader.source.schema.field(name) for name in kept])
    for field in new_fields([*columns, STATUS], output, prefix):
        refuse_if(
            field.name in schema.names,
            f"Expected no column {field.name!r} in {reader.source.name} yet; got one. "
            "Give --prefix for the names of new columns.",
        )
        schema = schema.append(field)
    harmless = _harmless if format_of(output).delimiter else str
    with writing(output, schema) as append:

        def write(table: ArrowTable, values: Array, status: AnyArray) -> None:
            arrays = [arrow.array(column, from_pandas=True) for column in values.T]
            arrays.append(arrow.array(map(harmless, status), arrow.string()))
            append(arrow.table([*table.select(kept).columns, *arrays], schema=schema))

        yield write


def _compute_rows(
    reader: RowReader, table: ArrowTable, first_row: int, width: int, compute: Compute
) -> tuple[Array, AnyArray]:
    """Return new columns ``(N, width)``, NaN for unusable rows, and each row's status.

    Where some rows cannot be computed, they are halved until the row that fails is alone.
    """
    rows = reader(table, first_row)
    status, places = rows.status.copy(), rows.places
    values, n_failed = np.full((len(rows), width), np.nan), 0
    starts = range(0, len(places), ROWS_AT_ONCE)
    parts = [places[start : start + ROWS_AT_ONCE] for start in reversed(starts)]
    while parts:
        part = parts.pop()
        first, half = np.searchsorted(places, part[0]), len(part) // 2
        try:
            values[part] = compute(rows.rows[first : first + len(part)])
        except ValueError as error:
            if half:
                parts += [part[half:], part[:half]]
                continue
            status[part] = " ".join(str(error).split())
            n_failed += 1
            if n_failed > MOST_FAILURES:
                raise
    return values, status


def report_counts(counts: Counter[str]) -> str:
    """Say how many rows were used, and why others were not."""
    others = [f"{n} marked {reason!r}" for reason, n in counts.items() if reason != "ok"]
    return f"{counts['ok']} rows" + (f"; {', '.join(others)}" if others else "")


def new_fields(columns: Sequence[NewColumn], output: Path, prefix: str = "") -> list[Any]:
    """Return the fields of new columns, under names that are no formulas to a spreadsheet."""
    names = [prefix + column.name for column in columns]
    harmless = [_harmless(name) for name in names] if format_of(output).delimiter else names
    if harmless != names:
        note("deconflow: note: names of new columns that begin like a formula get a ' first")
    return [
        described(name, column.kind, column.unit, column.description)
        for name, column in zip(harmless, columns, strict=True)
    ]


def _harmless(text: str) -> str:
    """Keep a spreadsheet from taking text of ours, made of names in a file, for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
