"""Columns of a table that are known exactly, and that the truth may depend on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow.tables.columns import check_available
from deconflow.tables.io import Source
from deconflow.tables.option_syntax import split_list

NOISE = "noise"
"""The word for the logarithms of the rows' own errors."""
ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Covariate:
    """A column that is known exactly.

    Attributes
    ----------
    name : str
        Its name.
    labels : bool
        Whether it holds text, and not numbers.
    known : collection of str or None
        The texts that a model knows; None for any.
    """

    name: str
    labels: bool = False
    known: Collection[str] | None = None


@dataclass(frozen=True)
class GivenColumns:
    """What the truth is given: columns, and the rows' own errors if ``errors`` is true."""

    columns: tuple[Covariate, ...]
    errors: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class GivenValues:
    """What rows say in these columns: a table as estimators take it, with its columns by name."""

    columns: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    errors: bool = False

    def __len__(self) -> int:
        return len(self.values[0])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.values[self.columns.index(name)]

    def part(self, rows: Any) -> GivenValues:
        """Return what some rows say."""
        return GivenValues(self.columns, tuple(each[rows] for each in self.values), self.errors)

    def describe(self) -> list[str]:
        """Say in plain words what is given; one line for each."""
        lines = ["given the logarithms of the errors"] if self.errors else []
        for name, values in zip(self.columns, self.values, strict=True):
            if values.dtype.kind == "f" and len(values):
                lines.append(f"given {name}, numbers from {values.min():g} to {values.max():g}")
            else:
                lines.append(f"given {name}, {len(set(values.tolist()))} kinds")
        return lines


def as_argument(given: GivenValues | None) -> Any:
    """Return what estimators take as ``given``."""
    if given is None or (given.columns and not given.errors):
        return given
    return (NOISE, given) if given.columns else NOISE


def find_given(items: Sequence[str], source: Source, measured: Sequence[str]) -> GivenColumns:
    """Find covariates by their names in a table, and see which of them are numbers.

    ``noise`` is the word for the errors, not a column.
    """
    parts = list(dict.fromkeys(split_list(items, source.names)))
    names = [part for part in parts if part != NOISE]
    check_available(source.names, names, source.name)
    for name in names:
        if name in measured:
            raise ValueError(
                f"Expected given= with columns that are not measured; got {name!r}. Take it out of "
                "one of them."
            )
    if not parts:
        raise ValueError("Expected given= with columns, or the word noise; got none.")
    texts = _with_text(source, names)
    return GivenColumns(tuple(Covariate(n, n in texts) for n in names), errors=NOISE in parts)


def _with_text(source: Source, names: Sequence[str]) -> set[str]:
    """Columns in which some cell is no number."""
    from deconflow.tables.arrow_io import holds_numbers

    found: set[str] = set()
    for table in source.chunks(ROWS_AT_ONCE, names) if names else ():
        found |= {name for name in names if not holds_numbers(table[name])}
    return found


def unseen_labels(labels: NDArray[Any], known: Collection[str] | None) -> NDArray[np.bool_]:
    """Say which labels, None for missing, a model does not know."""
    if known is None:
        return np.zeros(len(labels), bool)
    return np.array([label is not None and label not in known for label in labels], dtype=bool)
