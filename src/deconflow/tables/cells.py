"""One chunk of a table while it is read: its cells as numbers, and why rows cannot be used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.tables.io import row_name
from deconflow.tables.option_syntax import finite_number

if TYPE_CHECKING:
    import pyarrow as pa

    from deconflow.noise import FreeErrors, Noise
    from deconflow.tables.columns import Columns

Mask = NDArray[np.bool_]
Flags = NDArray[np.int64]
"""-1 for an upper limit, 1 for a lower one, 0 for what was measured."""


class Reasons:
    """Why rows of a chunk cannot be used: a number for each, which is quick, and its words."""

    def __init__(self, n_rows: int) -> None:
        self._codes = np.zeros(n_rows, dtype=np.int32)
        self._words = {"": 0}

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def usable(self) -> Mask:
        """Rows that nothing speaks against, so far."""
        return self._codes == 0

    @property
    def text(self) -> NDArray[Any]:
        """The reason of each row; empty for those that can be used."""
        return np.array(list(self._words), dtype=object)[self._codes]

    def set(self, rows: Mask | int, reason: str) -> None:
        """Give rows a reason in the place of the one they have."""
        self._codes[rows] = self._words.setdefault(reason, len(self._words))


class Cells:
    """The cells of a chunk that begins at ``first_row``; ``missing`` are numbers that are none."""

    def __init__(self, chunk: pa.Table, first_row: int, missing: Sequence[float]) -> None:
        self.table, self.first_row, self.missing = chunk, first_row, missing
        self.reasons = Reasons(chunk.num_rows)

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def usable(self) -> Mask:
        """Rows that nothing speaks against, so far."""
        return self.reasons.usable

    def mark(self, bad: Mask, reason: str) -> None:
        """Say why rows cannot be used; the first reason stays."""
        if bad.any():
            self.reasons.set(bad & self.usable, reason)

    def usable_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Take the usable rows of an array: the array itself, where all rows are."""
        usable = self.usable
        return values if usable.all() else values[usable]

    def refuse(self, bad: Any, values: Array, wanted: str, advice: str) -> None:
        """Raise for the first value that is wrong, with its row."""
        if bad.any():
            row = int(bad.argmax())
            got = "none" if np.isnan(values[row]) else f"{values[row]:g}"
            raise ValueError(f"Expected {wanted}; got {got} in {self.row(row)}. {advice}")

    def row(self, row: int) -> str:
        """Name a row of the chunk by its place in the table."""
        return row_name(self.first_row + row)

    def numbers(self, name: str) -> Array:
        """Read a column, NaN where a number is missing."""
        from deconflow.tables.arrow_io import as_numbers

        return self._without_missing(as_numbers(self.table[name], name, self.first_row))

    def numbers_and_limits(self, name: str, flags: str | None) -> tuple[Array, Flags]:
        """Read a column in which ``<1.5`` is a limit, as is what a column of flags says."""
        from deconflow.tables.arrow_io import as_flags, as_numbers, split_limits

        cells, marks = split_limits(self.table[name])
        values = self._without_missing(as_numbers(cells, name, self.first_row))
        if flags is not None:
            told = as_flags(self.table[flags], flags, self.first_row)
            wrong = (told * marks) == -1
            if wrong.any():
                raise ValueError(
                    f"Expected one limit of {name!r}; got an upper and a lower one, in it and in "
                    f"{flags!r}, in {self.row(int(wrong.argmax()))}. Correct one of them."
                )
            marks = np.where(marks == 0, told, marks)
        if marks.any():
            marks[np.isnan(values)] = 0
        return values, marks

    def labels(self, name: str) -> NDArray[Any]:
        """Read which rows belong together; a row that does not say so cannot be used."""
        from deconflow.tables.arrow_io import as_labels

        labels = as_labels(self.table[name], name, self.first_row)
        self.mark(np.array([label is None for label in labels]), f"no group in {name}")
        return labels

    def words(self, name: str) -> NDArray[Any]:
        """Read text, None where it is missing."""
        from deconflow.tables.arrow_io import as_words

        words = as_words(self.table[name], name)
        if self.missing:
            words[[word is not None and finite_number(word) in self.missing for word in words]] = (
                None
            )
        return words

    def _without_missing(self, values: Array) -> Array:
        for number in self.missing:  # a column in single precision has it rounded
            values[(values == number) | (values == np.float32(number))] = np.nan
        return values


class Values(ABC):
    """Measured columns of a chunk, of one kind of measurement.

    Attributes
    ----------
    columns : Columns
        What is read, with what the rows themselves have told of it.
    w : array
        ``(N, D)``, NaN where missing.
    limits : array of int
        ``(N, D)``; -1 for upper limits, 1 for lower ones, 0 for others.
    without_error : int
        How many values had no error, and count as missing.
    """

    without_error = 0

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self.cells, self.columns = cells, columns
        self.w = np.full((len(cells), len(columns.names)), np.nan)
        self.limits = np.zeros(self.w.shape, dtype=np.int64)

    @abstractmethod
    def law(self) -> tuple[Array, Noise | FreeErrors | None]:
        """Return usable values and their noise; rows that have none are marked first."""
