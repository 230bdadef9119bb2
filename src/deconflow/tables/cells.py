"""Cells of a table become numbers here, or an error that names the cell."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MISSING = ("", "nan", "na", "n/a", "null", "none", "--", "-")
"""What people write for a missing value, in any case of letters."""


def is_missing(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each trimmed cell of text stands for a missing value."""
    return pc.is_in(pc.utf8_lower(text), value_set=pa.array(MISSING))


def as_numbers(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float64]:
    """Turn a column into float64, NaN where missing; ``first_row`` is where the chunk begins."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(column, name, first_row)
    if pa.types.is_dictionary(kind):
        return as_numbers(column.cast(kind.value_type), name, first_row)
    if not _is_number(kind):
        raise ValueError(f"Expected numbers in column {name!r}; got {kind}. Choose another column.")
    numbers = column.cast(pa.float64(), safe=False)
    return np.array(pc.fill_null(numbers, float("nan")).to_numpy(), dtype=np.float64)


def row_name(row: int) -> str:
    """Name a row of the table; the first is row 0, as in Python."""
    return f"row {row} (the first is 0)"


def _is_number(kind: pa.DataType) -> bool:
    kinds: tuple[Any, ...] = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in (*kinds, pa.types.is_boolean, pa.types.is_null))


def _from_text(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float64]:
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    present = pc.if_else(is_missing(trimmed), pa.scalar(None, pa.string()), trimmed)
    try:
        numbers = present.cast(pa.float64())
    except pa.ArrowInvalid as error:
        row, cell = _first_text(present)
        raise ValueError(
            f"Expected numbers in column {name!r}; got {cell!r} in {row_name(first_row + row)}. "
            f"{_advice(cell)}"
        ) from error
    return np.array(pc.fill_null(numbers, float("nan")).to_numpy(), dtype=np.float64)


def _advice(cell: str) -> str:
    if re.fullmatch(r"[+-]?\d+,\d+(e[+-]?\d+)?", cell, re.IGNORECASE):
        return "Write a point for the comma."
    return "Correct it, or leave the cell empty for a missing value."


def _first_text(column: pa.ChunkedArray) -> tuple[int, str]:
    for row, cell in enumerate(column.to_pylist()):
        try:
            pa.scalar(cell, pa.string()).cast(pa.float64())
        except pa.ArrowInvalid:
            return row, cell
    raise AssertionError("the cast that failed has a cell that fails")
