"""Values that carry their errors: numbers of uncertainties, and astropy's distributions."""

import sys
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import place
from deconflow.noise import GaussianNoise, from_samples, gaussian

MISSING = ("None", "nan", "<NA>")


def parted(w: Any, noise: Any, label: str = "w") -> tuple[Any, Any]:
    """Split values that carry their errors into plain values and noise; others stay as they are.

    Draws of astropy are taken as draws of posteriors under a flat prior.
    """
    numbers = _numbers(w)
    draws: Any = _draws(w, label) if numbers is None else None
    if draws is None and numbers is None:
        return w, noise
    if noise is not None:
        raise ValueError(
            f"Expected no noise with values in {label} that carry their errors; got both. Leave "
            "out noise."
        )
    values, law = from_samples(draws) if numbers is None else _gaussian(numbers, label)
    if hasattr(w, "colnames"):
        return type(w)(values, names=w.colnames), law
    if hasattr(w, "iloc"):
        w = w.to_frame() if hasattr(w, "to_frame") else w
        return type(w)(values, index=w.index, columns=w.columns), law
    return type(w)(values, schema=w.columns) if hasattr(w, "columns") else values, law


def _draws(w: Any, label: str) -> Array | None:
    """Return draws ``(N, K, D)`` of a distribution, or of a table with distributions."""
    table = hasattr(w, "colnames")
    found: list[Any] = [
        _samples(column) for column in ([w[name] for name in w.colnames] if table else [w])
    ]
    if all(each is None for each in found):
        return None
    shapes = [None if each is None else each.shape for each in found]
    whole = found[0] if not table else np.stack(found, -2) if len({*shapes}) == 1 else None
    if whole is None or whole.ndim not in (2, 3):
        raise ValueError(
            f"Expected {label} as a distribution of shape (N,) or (N, D), or a table with one of "
            f"shape (N,) in every column, all with as many draws; got draws of shapes {shapes}."
        )
    return np.moveaxis(whole if whole.ndim == 3 else whole[:, None], -1, 1)


def _samples(column: Any) -> Array | None:
    """Return draws ``(..., K)`` of a distribution; a table keeps a plain one in its own form."""
    if hasattr(column, "distribution") and hasattr(column, "n_samples"):
        column = getattr(column.distribution, "value", column.distribution)
    elif getattr(getattr(column, "dtype", None), "names", None) == ("samples",):
        column = np.asarray(column)["samples"]["sample"]
    else:
        return None
    return np.asarray(column, dtype=np.float64)


def _numbers(w: Any) -> Any:
    """Return cells ``(N, D)`` among which there are numbers of uncertainties."""
    table = hasattr(w, "to_numpy")
    if "uncertainties" not in sys.modules or not (table or isinstance(w, np.ndarray | list)):
        return None
    from uncertainties import UFloat

    try:
        cells = w.to_numpy() if table else np.asarray(w)
    except (TypeError, ValueError, RuntimeError):  # ragged, or no numbers: refused later
        return None
    if not any(isinstance(cell, UFloat) for cell in cells.flat if cells.dtype.kind == "O"):
        return None
    return cells[:, None] if cells.ndim == 1 else cells


def _gaussian(cells: Any, label: str) -> tuple[Array, GaussianNoise]:
    """Return values and their noise, with the correlations between columns of a row."""
    from uncertainties import UFloat, covariance_matrix

    values, sd = np.full(cells.shape, np.nan), np.ones(cells.shape)
    for position, cell in np.ndenumerate(cells):
        if isinstance(cell, UFloat):
            values[position], sd[position] = cell.nominal_value, cell.std_dev
        elif str(cell) not in MISSING:
            raise ValueError(
                f"Expected every value in {label} with its error, as ufloat(value, error) has it; "
                f"got {cell!r} at {place(position)}. Use ufloat(value, 0) for an exact one."
            )
    sd[np.isnan(values)] = 1.0
    covariance = np.square(sd)[:, None] * np.eye(cells.shape[1])
    owner: dict[Any, int] = {}
    for row, numbers in enumerate(cells):
        seen = np.flatnonzero(~np.isnan(values[row]))
        covariance[row, seen[:, None], seen] = covariance_matrix(numbers[seen])
        derivatives = [pair for cell in numbers[seen] for pair in cell.derivatives.items()]
        for source in {source for source, slope in derivatives if slope and source.std_dev}:
            if owner.setdefault(source, row) != row:
                raise ValueError(
                    f"Expected rows of {label} whose errors are independent; got rows "
                    f"{owner[source]} and {row}, which share one. Pass unumpy.nominal_values(w) "
                    "and noise=unumpy.std_devs(w) to take them as independent."
                )
    independent = (covariance == covariance * np.eye(cells.shape[1])).all()
    return values, gaussian(sd=sd) if independent else gaussian(covariance=covariance)
