"""What table rows came in, so that answers about them can go out in the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow.extras import need
from deconflow.frames import Units

LIBRARIES = ("pandas", "polars", "astropy")


@dataclass(frozen=True)
class Origin:
    """What is known of the table that rows came in.

    Attributes
    ----------
    library : {"pandas", "polars", "astropy"}
        Which made it; pandas for arrays.
    index : pandas.Index or None
        The labels of the rows.
    units : list of str or None
        Of each column of the truth, None for those without; None if none has one.
    quantities : bool
        Whether it was a table of astropy that has quantities as columns.
    """

    library: str = "pandas"
    index: Any = None
    units: Units | None = None
    quantities: bool = False

    @classmethod
    def of(cls, rows: Any, units: Units | None) -> Origin:
        """Look at what a user has handed over; units are those of the truth."""
        library = type(rows).__module__.split(".")[0]
        return cls(
            library if library in LIBRARIES else "pandas",
            rows.index if library == "pandas" else None,
            units,
            type(rows).__name__ != "Table",
        )

    def rows(self, chosen: NDArray[np.int64] | slice) -> Origin:
        """Return the same for some rows."""
        return self if self.index is None else replace(self, index=self.index[chosen])

    def columns(self, keep: NDArray[np.int64]) -> Origin:
        """Return the same for some columns of the truth."""
        if self.units is None:
            return self
        return replace(self, units=[self.units[d] for d in keep])

    def table(self, columns: Mapping[str, Any], units: Mapping[str, str | None]) -> Any:
        """Make a table of the same library, with the index or the units of its columns."""
        if self.library == "polars":
            return polars_table(columns)
        if self.library == "pandas":
            return self.pandas_table(columns)
        tables = need("astropy.table")
        kind = tables.QTable if self.quantities else tables.Table
        return kind(dict(columns), units={name: unit for name, unit in units.items() if unit})

    def pandas_table(self, columns: Mapping[str, Any]) -> Any:
        """Make a data frame of pandas, with the index of the rows."""
        return need("pandas", "data frames need it").DataFrame(dict(columns), index=self.index)


def polars_table(columns: Mapping[str, Any]) -> Any:
    """Make a data frame of polars."""
    return need("polars", "its data frames were asked for").DataFrame(dict(columns))
