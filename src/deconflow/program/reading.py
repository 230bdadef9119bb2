"""A table read as the options say, with a word on what was found in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deconflow.program.messages import note
from deconflow.program.options import expand_columns, expand_errors
from deconflow.tables import (
    Columns,
    Measurements,
    RowReader,
    find_columns,
    open_table,
    read_rows,
)


def read_table(
    table: Path,
    columns: list[str],
    errors: list[str] | None,
    cov: list[str] | None,
    corr: list[str] | None,
    noise: str,
    df: float,
) -> tuple[Columns, Measurements]:
    """Find columns and errors, and read all rows."""
    source = open_table(table, typed=False)
    names = expand_columns(columns, source.names)
    found = find_columns(
        source.names, names, errors=expand_errors(errors or (), names),
        covariances=cov or (), correlations=corr or (), noise=noise, df=df,
        units=[source.unit(name) if name in source.names else None for name in names],
    )  # fmt: skip
    rows = read_rows(RowReader(found, source))
    note("\n".join(_describe(found, rows)))
    return found, rows


def _describe(columns: Columns, rows: Measurements) -> list[str]:
    lines = [f"{line} ({columns.law})" for line in columns.describe()]
    lines.append(f"{len(rows.w)} of {len(rows)} rows can be used")
    reasons, counts = np.unique(rows.reasons[~rows.usable].astype(str), return_counts=True)
    lines += [f"  {n} left out: {reason}" for reason, n in zip(reasons, counts, strict=True)]
    if rows.without_error:
        lines.append(f"  {rows.without_error} values have no error and are taken as missing")
    return lines
