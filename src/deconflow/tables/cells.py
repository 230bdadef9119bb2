"""Cells of a table as numbers, flags, labels or words, and the reasons why rows cannot be used."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.tables.columns import finite_number
from deconflow.tables.formats import is_list, row_name

#: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
#: What people write for a missing value, in any case of letters.
MISSING = ("", "nan", "na", "n/a", "null", "none", "--", "-")
#: What is written before a number that is a limit.
SIGNS = {"<": -1, ">": 1}
FLAGS = {"-1": -1, "<": -1, "0": 0, "1": 1, "+1": 1, ">": 1}


class Cells:
    """The cells of a chunk.

    Parameters
    ----------
    chunk
        The chunk.
    first_row
        Number of its first row in the table.
    missing
        Numbers that stand for a missing value.

    Attributes
    ----------
    usable : array of bool
        Rows that nothing speaks against, so far.
    reasons : dict
        Why the others cannot be used: numbers of rows by the reason.
    """

    def __init__(self, chunk: pa.Table, first_row: int, missing: Sequence[float]) -> None:
        self.table, self.first_row, self.missing = chunk, first_row, missing
        self.usable = np.ones(chunk.num_rows, dtype=bool)
        self.reasons: dict[str, IntArray] = {}

    def __len__(self) -> int:
        return len(self.usable)

    def mark(self, bad: BoolArray, reason: str) -> None:
        """Record why rows cannot be used; the first reason stays."""
        rows = np.flatnonzero(bad & self.usable)
        if len(rows):
            before = self.reasons.get(reason, np.empty(0, dtype=np.int64))
            self.reasons[reason] = np.concatenate([before, rows])
            self.usable[rows] = False

    def usable_of(self, values: Any) -> Any:
        """Return the usable rows of an array, if there is one: itself, where all are usable."""
        return values if values is None or self.usable.all() else values[self.usable]

    def refuse(self, bad: Any, values: AnyArray, wanted: str, advice: str) -> None:
        """Raise for the first value that is wrong, with its row."""
        wrong = np.flatnonzero(bad)
        if len(wrong):
            row, value = int(wrong[0]), values[wrong[0]]
            got = f"{value:g}" if isinstance(value, float) else repr(value)
            got = "none" if got == "nan" else got
            raise ValueError(f"Expected {wanted}; got {got} in {self.row(row)}. {advice}")

    def row(self, row: int) -> str:
        """Name a row of the chunk by its number in the table."""
        return row_name(self.first_row + row)

    def numbers(self, name: str, column: Any = None) -> Array:
        """Read a column, NaN where a number is missing."""
        cells = _decoded(self.table[name] if column is None else column)
        if cells.type == pa.string():
            numbers = self._parsed(present(cells), name)
        elif _is_number(cells.type):
            numbers = cells.cast(pa.float64(), safe=False)
        else:
            raise ValueError(
                f"Expected numbers in column {name!r}; got {cells.type}. Choose another column."
            )
        values = np.array(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)
        for number in self.missing:  # a column in single precision has it rounded
            values[(values == number) | (values == np.float32(number))] = np.nan
        return values

    def _parsed(self, cells: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        try:
            return cells.cast(pa.float64())
        except pa.ArrowInvalid as error:
            row, cell = next(
                (row, cell) for row, cell in enumerate(cells.to_pylist())
                if not can_be(pa.array([cell], pa.string()), pa.float64())
            )  # fmt: skip
            comma = re.fullmatch(r"[+-]?\d+,\d+(e[+-]?\d+)?", cell, re.IGNORECASE)
            advice = "Correct it, or leave the cell empty for a missing value."
            raise ValueError(
                f"Expected numbers in column {name!r}; got {cell!r} in {self.row(row)}. "
                f"{'Write a point for the comma.' if comma else advice}"
            ) from error

    def numbers_and_limits(self, name: str, flags: str | None) -> tuple[Array, IntArray]:
        """Read a column in which cells such as ``<1.5`` are limits, and its column of flags."""
        column, marks = _decoded(self.table[name]), np.zeros(len(self), dtype=np.int64)
        if column.type == pa.string():
            text = pc.utf8_trim_whitespace(column)
            for sign, flag in SIGNS.items():
                marks[pc.fill_null(pc.starts_with(text, sign), False).to_numpy()] = flag
            column = pc.utf8_ltrim(text, "<> ") if marks.any() else column
        values = self.numbers(name, column)
        if flags is not None:
            flagged = self._flags(flags)
            wrong = (flagged * marks) == -1
            if wrong.any():
                raise ValueError(
                    f"Expected one limit of {name!r}; got an upper and a lower one, in it and in "
                    f"{flags!r}, in {self.row(int(wrong.argmax()))}. Correct one of them."
                )
            marks = np.where(marks == 0, flagged, marks)
        marks[np.isnan(values)] = 0
        return values, marks

    def _flags(self, name: str) -> IntArray:
        """Read which values are limits: -1, 0 or 1."""
        words = _words(self.table[name], name)
        flags = np.array([FLAGS.get(str(w).removesuffix(".0"), 2) if w else 0 for w in words], int)
        self.refuse(
            flags == 2, words, "-1 or < (upper limit), 1 or > (lower limit), 0 or nothing "
            f"(measured) in column {name!r}",
            "If it has another meaning, give limits=['none']",
        )  # fmt: skip
        return flags

    def draws(self, name: str) -> list[Array]:
        """Read a column of lists of numbers, empty where a list is missing."""
        column = self.table[name]
        if not (is_list(column.type) and _is_number(column.type.value_type)):
            raise ValueError(
                f"Expected lists of numbers in column {name!r}, as in the others; got "
                f"{column.type}. Choose another column."
            )
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        numbers = pc.fill_null(pc.list_flatten(column).cast(pa.float64(), safe=False), np.nan)
        return np.split(numbers.to_numpy(), np.cumsum(lengths)[:-1]) if len(lengths) else []

    def labels(self, name: str) -> AnyArray:
        """Read which rows belong together; a row without a label cannot be used."""
        labels = _objects(self.table[name])
        missing = np.array([label is None for label in labels], dtype=bool)
        bad = [
            not (isinstance(label, str | int) or (isinstance(label, float) and label.is_integer()))
            for label in labels  # whole numbers have a point where some are missing
        ]
        self.refuse(
            bad & ~missing, labels, f"text or whole numbers in column {name!r}, whose rows belong "
            "together where they are equal", "Choose another column.",
        )  # fmt: skip
        self.mark(missing, f"no group in {name}")
        return labels

    def words(self, name: str) -> AnyArray:
        """Read text, None where it is missing."""
        words = _words(self.table[name], name)
        if self.missing:
            numbers = np.array([np.nan if word is None else finite_number(word) for word in words])
            words[np.isin(numbers, self.missing)] = None
        return words


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether all cells that are not missing are numbers."""
    column = _decoded(column)
    if column.type == pa.string():
        return can_be(present(column), pa.float64())
    return _is_number(column.type) and not pa.types.is_boolean(column.type)


def present(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Trim cells of text; those that stand for a missing value become null."""
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


def _words(column: pa.ChunkedArray, name: str) -> AnyArray:
    """Return cells as text, None where missing."""
    kind = _decoded(column).type
    if kind != pa.string() and not _is_number(kind):
        raise ValueError(
            f"Expected numbers or text in column {name!r}; got {kind}. Choose another column."
        )
    words = _objects(column)
    words[:] = [None if word is None else str(word) for word in words]
    return words


def _objects(column: pa.ChunkedArray) -> AnyArray:
    """Return cells as objects of Python, None where missing."""
    column = _decoded(column)
    text = column.type == pa.string()
    cells = (present(column) if text else column).to_pylist()
    objects = np.empty(len(cells), dtype=object)
    objects[:] = [None if cell is None or cell != cell else cell for cell in cells]
    return objects


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return plain cells: the values of a dictionary, and text of one type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _is_number(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number or pa.types.is_boolean(kind) or pa.types.is_null(kind)
