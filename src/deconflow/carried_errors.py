"""Values that carry their errors: numbers of uncertainties, and astropy's distributions.

They are parted into measured values and noise, as if a user had done so.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.checks import place
from deconflow.noise import GaussianNoise, Noise, from_samples, gaussian


def parted(w: Any, noise: Any, label: str = "w") -> tuple[Any, Any]:
    """Part values that carry their errors into plain values and noise; all others pass.

    Draws of astropy are taken as those of posteriors under a flat prior.
    """
    draws = _draws(w, label)
    cells = _uncertain(w) if draws is None else None
    if draws is None and cells is None:
        return w, noise
    if noise is not None:
        raise ValueError(
            f"Expected no noise beside values in {label} that carry their errors; got both. Leave "
            "out noise."
        )
    if draws is not None:
        values, law = from_samples(draws)
        return _like(w, values), law
    assert cells is not None
    return _of_cells(w, cells if cells.ndim != 1 else cells[:, None], label)


def _like(w: Any, values: Array) -> Any:
    """Give values the names of the columns, and the index, of a table."""
    if hasattr(w, "to_frame"):  # a series
        w = w.to_frame()
    if hasattr(w, "colnames"):
        return type(w)(values, names=w.colnames)
    if hasattr(w, "iloc"):
        return type(w)(values, index=w.index, columns=w.columns)
    return type(w)(values, schema=w.columns) if hasattr(w, "columns") else values


def _draws(w: Any, label: str) -> Array | None:
    """Draws ``(N, K, D)`` of a distribution, or of a table of them; None if it is neither."""
    if "astropy.uncertainty" not in sys.modules:
        return None
    names = getattr(w, "colnames", [])
    each = [_samples(w[name]) for name in names] if names else [_samples(w)]
    found = [samples for samples in each if samples is not None]
    if not found:
        return None
    if len(found) < len(each):
        lost = next(name for name, samples in zip(names, each, strict=True) if samples is None)
        raise ValueError(
            f"Expected a distribution in every column of {label}; got none in column {lost!r}."
        )
    counts = sorted({samples.shape[-1] for samples in found})
    if len(counts) > 1:
        raise ValueError(f"Expected as many draws in every column of {label}; got {counts}.")
    whole = np.stack(found, -2) if names or found[0].ndim == 2 else found[0]
    if whole.ndim != 3:
        raise ValueError(
            f"Expected a distribution of shape (N,) or (N, D) as {label}; got {whole.shape[:-1]}."
        )
    return np.moveaxis(whole, -1, 1)


def _samples(column: Any) -> Array | None:
    """Draws ``(..., K)`` of a distribution, without its unit; a table keeps a plain one as such."""
    if hasattr(column, "distribution") and hasattr(column, "n_samples"):
        values = column.distribution
        return np.asarray(getattr(values, "value", values), dtype=np.float64)
    if getattr(getattr(column, "dtype", None), "names", None) != ("samples",):
        return None
    return np.asarray(np.asarray(column)["samples"]["sample"], dtype=np.float64)


def _uncertain(w: Any) -> NDArray[np.object_] | None:
    """Cells of something in which there are numbers of uncertainties; None if there are none."""
    if "uncertainties" not in sys.modules:
        return None
    from uncertainties import UFloat

    try:
        cells = np.asarray(w.to_numpy() if hasattr(w, "to_numpy") else w)
    except (TypeError, ValueError):  # ragged, or no numbers: refused later
        return None
    if cells.dtype.kind != "O" or not any(isinstance(cell, UFloat) for cell in cells.flat):
        return None
    return cells


def _of_cells(w: Any, cells: NDArray[np.object_], label: str) -> tuple[Any, Noise | None]:
    """Values and the law of their errors, with the correlations between columns of a row."""
    from uncertainties import UFloat

    values, sd = np.full(cells.shape, np.nan), np.ones(cells.shape)
    for position, cell in np.ndenumerate(cells):
        if isinstance(cell, UFloat):
            values[position] = cell.nominal_value
            sd[position] = 1.0 if np.isnan(cell.nominal_value) else cell.std_dev
        elif not _missing(cell):
            raise ValueError(
                f"Expected every value in {label} with its error, as ufloat(value, error) has it; "
                f"got {cell!r} at {place(position)}. Use ufloat(value, 0) for an exact one."
            )
    if cells.ndim != 2:
        return values, None  # refused by whoever asked
    return _like(w, values), _law(cells, np.isnan(values), sd, label)


def _missing(cell: Any) -> bool:
    """Whether a cell is empty: None, NaN, or pandas' NA."""
    empty = cell is None or type(cell).__name__ == "NAType"
    return empty or (isinstance(cell, float | np.floating) and bool(np.isnan(cell)))


def _law(
    cells: NDArray[np.object_], missing: NDArray[np.bool_], sd: Array, label: str
) -> GaussianNoise:
    owner: dict[Any, int] = {}
    correlated = []
    for row, numbers in enumerate(cells):
        sources = [_sources(cell) for cell in numbers[~missing[row]]]
        of_row = {source for each in sources for source in each}
        if len(of_row) < sum(map(len, sources)):
            correlated.append(row)
        for source in of_row:
            if owner.setdefault(source, row) != row:
                raise ValueError(
                    f"Expected rows of {label} whose errors are independent; got rows "
                    f"{owner[source]} and {row}, which share one. Pass unumpy.nominal_values(w) "
                    "and noise=unumpy.std_devs(w) to take them as independent."
                )
    if not correlated:
        return gaussian(sd=sd)
    covariance = np.square(sd)[:, None] * np.eye(cells.shape[1])
    for row in correlated:
        seen = np.flatnonzero(~missing[row])
        covariance[row, seen[:, None], seen] = _covariance(cells[row, seen])
    return gaussian(covariance=covariance)


def _sources(cell: Any) -> list[Any]:
    """Return the independent variables that a number has its error from."""
    return [
        source for source, slope in cell.derivatives.items() if slope != 0 and source.std_dev != 0
    ]


def _covariance(numbers: NDArray[np.object_]) -> Array:
    from uncertainties import covariance_matrix

    return np.array(covariance_matrix(numbers))
