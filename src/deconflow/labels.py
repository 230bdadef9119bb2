"""Labels of rows and columns: names, units, and the kind of table that rows came in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow.frames import Units, column_names, column_units


@dataclass(frozen=True)
class Labels:
    """Labels that go with measurements, so that results can carry them.

    Attributes
    ----------
    names : tuple of str or None
        Names of the measured columns.
    units : list or None
        Their units, None for those without.
    kind : type
        The type of the table.
    index
        The index of a pandas table.
    header
        The table without its rows, for scikit-learn.
    noise_given : bool
        Whether noise was given, or the values were taken as exact for want of it.
    of_table : bool
        Whether the names are those of a table, and not given with an array.
    limits_given : bool
        Whether it was said which values are limits, though it may be none of these.
    """

    names: tuple[str, ...] | None = None
    units: Units | None = None
    kind: type = object
    index: Any = None
    header: Any = None
    noise_given: bool = True
    of_table: bool = False
    limits_given: bool = False

    @classmethod
    def of(
        cls,
        table: Any,
        plain: Any,
        names: Sequence[str] | None,
        *,
        noise_given: bool,
        limits_given: bool,
    ) -> "Labels":
        """Take the labels of a table, and of the plain one that it was turned into.

        ``names`` are those of an array, which has none.
        """
        in_table = column_names(plain)
        own = in_table if names is None else names
        pandas = type(table).__module__.split(".")[0] == "pandas"
        return cls(
            None if own is None else tuple(str(name) for name in own),
            column_units(table),
            type(table),
            table.index if pandas else None,
            plain[:0],
            noise_given,
            in_table is not None,
            limits_given,
        )

    def __getitem__(self, rows: Any) -> "Labels":
        if self.index is None:
            return self
        return replace(
            self, index=self.index[rows if isinstance(rows, slice) else np.asarray(rows)]
        )

    def measured(self, count: int) -> list[str]:
        """Return names of the measured columns, ``w0, w1, ...`` where they have none."""
        return list(self.names or (f"w{d}" for d in range(count)))

    def true(self, count: int, *, projected: bool) -> list[str]:
        """Return names of the true columns, which a projection makes others than the measured."""
        own = None if projected else self.names
        return list(own or (f"v{d}" for d in range(count)))
