"""Answers as objects of other tools: pandas, polars, astropy, xarray, ArviZ and scipy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rv_continuous

from deconflow._types import Array, IntArray
from deconflow.checks import as_floats
from deconflow.extras import need
from deconflow.fits.one_column import ColumnWithAtoms, OneColumn
from deconflow.frames import Units
from deconflow.randomness import RandomState

DIMENSIONS = ("chain", "draw", "row")


@dataclass(frozen=True)
class Origin:
    """The table that rows came in: its type, the index of a pandas table, and units of columns."""

    kind: type = object
    index: Any = None
    units: Units | None = None

    @classmethod
    def of(cls, rows: Any, units: Units | None) -> "Origin":
        """Look at rows; units are those of the truth."""
        library = type(rows).__module__.split(".")[0]
        return cls(type(rows), rows.index if library == "pandas" else None, units)

    def rows(self, chosen: IntArray | slice) -> "Origin":
        """Return the origin of some rows."""
        return self if self.index is None else replace(self, index=self.index[chosen])

    def columns(self, keep: IntArray) -> "Origin":
        """Return the origin of some columns of the truth."""
        units = self.units and [self.units[d] for d in keep]
        return replace(self, units=units)

    def units_of(self, names: Sequence[str]) -> dict[str, str]:
        """Return the units of the columns that have one."""
        pairs = zip(names, self.units or [None] * len(names), strict=True)
        return {name: unit for name, unit in pairs if unit}


def to_frame(posterior: Any, q: float | Sequence[float]) -> Any:
    """Return a table of means, standard deviations and quantiles."""
    origin = posterior.origin
    parts = {"mean": posterior.mean, "sd": posterior.sd}
    shares = np.atleast_1d(as_floats(q, "q"))
    if shares.size:
        endings = [f"q{100 * share:g}".replace(".", "_") for share in shares]
        if len(set(endings)) < len(endings):
            raise ValueError(f"Expected shares in q that differ to six digits; got {q!r}.")
        parts |= zip(endings, posterior.quantile(shares), strict=True)
    columns: dict[str, Array] = {}
    units: dict[str, str] = {}
    for ending, values in parts.items():
        columns |= {f"{name}_{ending}": values[:, d] for d, name in enumerate(posterior.names)}
        units |= {f"{k}_{ending}": unit for k, unit in origin.units_of(posterior.names).items()}
    if not posterior.exact:
        columns["effective_sample_size"] = posterior.effective_sample_size
    library = origin.kind.__module__.split(".")[0]
    if library == "polars":
        return need("polars").DataFrame(columns)
    if library != "astropy":
        return need("pandas").DataFrame(columns, index=origin.index)
    tables = need("astropy.table")
    kind = tables.Table if origin.kind is tables.Table else tables.QTable
    return kind(columns, units=units)


def to_xarray(posterior: Any, n_samples: int | None, random_state: RandomState) -> Any:
    """Return draws as a dataset."""
    xarray = need("xarray", "its datasets were asked for")
    for name in posterior.names:
        if name in DIMENSIONS:
            raise ValueError(
                f"Expected columns with other names than the dimensions {', '.join(DIMENSIONS)}; "
                f"got {name!r}. Rename it before the fit."
            )
    drawn = posterior.samples
    if n_samples is not None:
        drawn = posterior.sample(n_samples, random_state)
    index, units = posterior.origin.index, posterior.origin.units_of(posterior.names)
    data = {
        name: (DIMENSIONS, values.T[None], {"units": units[name]} if name in units else {})
        for name, values in zip(posterior.names, np.moveaxis(drawn, 2, 0), strict=True)
    }
    rows: Any = {"row": np.arange(len(drawn)) if index is None else index.to_numpy()}
    if index is not None and index.nlevels > 1:
        rows = xarray.Coordinates.from_pandas_multiindex(index, "row")
    numbers = {"chain": [0], "draw": np.arange(drawn.shape[1])}
    return xarray.Dataset(data, numbers).assign_coords(rows)


def to_arviz(posterior: Any, n_samples: int | None, random_state: RandomState) -> Any:
    """Return draws as a tree of datasets with one group, ``posterior``."""
    convert = need("arviz_base", "its objects were asked for").convert_to_datatree
    return convert(to_xarray(posterior, n_samples, random_state))


def to_scipy(column: OneColumn, name: str) -> Any:
    """Return a frozen distribution; columns with atoms have no density, and are refused."""
    if isinstance(column, ColumnWithAtoms):
        places = ", ".join(f"{atom:g}" for atom in column.atoms)
        raise ValueError(
            f"Expected a truth without atoms for scipy, whose distributions have a density; got "
            f"{name} with atoms at {places}. Use cdf, quantile and sample; or "
            "density_.inner.marginal(...).to_scipy() for the part without atoms."
        )
    return _ColumnDistribution(column, name=name)()


class _ColumnDistribution(rv_continuous):
    """A column as scipy's base class needs it."""

    def __init__(self, column: OneColumn, **options: Any) -> None:
        self._column = column
        options["a"], options["b"] = column.ends
        super().__init__(**options)

    def _updated_ctor_param(self) -> dict[str, Any]:
        """Return what scipy needs to make a copy, as it does to freeze."""
        return {**super()._updated_ctor_param(), "column": self._column}

    def _pdf(self, x: Array) -> Array:
        return self._column.pdf(np.asarray(x, dtype=np.float64))

    def _cdf(self, x: Array) -> Array:
        return self._column.cdf(np.asarray(x, dtype=np.float64))

    def _ppf(self, q: Array) -> Array:
        return self._column.quantile(np.asarray(q, dtype=np.float64))

    def _stats(self) -> tuple[float, float, None, None]:
        return self._column.mean, self._column.sd**2, None, None
