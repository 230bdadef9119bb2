"""Covariates in a table: columns that are known exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from deconflow.tables.columns import check_available
from deconflow.tables.io import Source
from deconflow.tables.option_syntax import split_list

NOISE = "noise"
"""The word for the logarithms of the rows' own errors."""
ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class GivenColumns:
    """The covariates to read.

    Attributes
    ----------
    labels : dict
        For each column None if it holds numbers, or else the texts that a model knows, none for
        any.
    errors : bool
        Whether the rows' own errors are covariates, too.
    """

    labels: dict[str, Collection[str] | None]
    errors: bool = False


@dataclass(frozen=True)
class GivenValues:
    """The covariates of rows."""

    values: dict[str, NDArray[Any]]
    errors: bool = False

    def part(self, rows: Any) -> GivenValues:
        """Return the covariates of some rows."""
        return GivenValues({name: each[rows] for name, each in self.values.items()}, self.errors)

    @property
    def argument(self) -> Any:
        """What estimators take as ``given``."""
        if not self.errors:
            return self.values
        return (NOISE, self.values) if self.values else NOISE

    def describe(self) -> str:
        """Name what is given."""
        return f"given {', '.join([NOISE] * self.errors + list(self.values))}"


def find_given(items: Sequence[str], source: Source, measured: Sequence[str]) -> GivenColumns:
    """Find covariates by their names in a table, and see which of them are numbers.

    ``noise`` is the word for the errors, not a column.
    """
    from deconflow.tables.arrow_io import holds_numbers

    parts = list(dict.fromkeys(split_list(items, source.names)))
    names = [part for part in parts if part != NOISE]
    check_available(source.names, names, source.name)
    for name in set(names) & set(measured):
        raise ValueError(
            f"Expected given= with columns that are not measured; got {name!r}. Take it out of "
            "one of them."
        )
    if not parts:
        raise ValueError("Expected given= with columns, or the word noise; got none.")
    labels: dict[str, Collection[str] | None] = dict.fromkeys(names)
    for table in source.chunks(ROWS_AT_ONCE, names) if names else ():
        labels |= {name: () for name in names if not holds_numbers(table[name])}
    return GivenColumns(labels, errors=NOISE in parts)
