"""Colours and panels that the pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.frames import plain_table

DATA, DENSITY, SECOND = "#9a9a9a", "#1f4e79", "#d1495b"
COLOURS = (SECOND, "#edae49", "#2a9d8f", "#7b2d8b", "#6a994e", "#3a86ff")
BINS = 40
MOST_IN_A_ROW = 3
LARGEST = 1e100
"""Values beyond this are not drawn: squares of them are no numbers."""


def refuse_no_model(model: Any) -> None:
    """Raise unless something can be drawn from."""
    if not hasattr(model, "sample") or hasattr(model, "shape"):  # a table has samples, too
        raise TypeError(f"Expected model as a fitted estimator; got {type(model).__name__}.")


def columns(values: Any, name: str, dim: int | None = None) -> Array:
    """Return ``(N, D)`` values to draw, with something to see in every column."""
    array = as_floats(plain_table(values, name), name)
    if array.ndim != 2 or not array.size or array.shape[1] != (dim or array.shape[1]):
        wanted = f"(N, {'D' if dim is None else dim})"
        raise ValueError(f"Expected {name} of shape {wanted}, not empty; got {array.shape}.")
    empty = np.flatnonzero(~(np.abs(array) <= LARGEST).any(0))
    if len(empty):
        raise ValueError(
            f"Expected values to draw in every column of {name}, up to {LARGEST:g}; "
            f"got none in column {empty[0]}."
        )
    return array


def panels(axes: Any, n_rows: int, n_columns: int) -> NDArray[Any]:
    """Return ``(n_rows, n_columns)`` axes: those given, or those of a new figure."""
    if axes is None:
        import matplotlib.pyplot as plt

        size = (3.6 * n_columns, 2.9 * n_rows)
        _, axes = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")
    given = np.atleast_1d(np.asarray(axes, dtype=object))
    if given.size != n_rows * n_columns:
        raise ValueError(f"Expected {n_rows * n_columns} axes; got {given.size}.")
    if not all(hasattr(ax, "hist") for ax in given.flat):
        raise TypeError(f"Expected axes of matplotlib; got {axes!r}.")
    return given.reshape(n_rows, n_columns)


def wrapped(axes: Any, count: int) -> NDArray[Any]:
    """Return ``(count,)`` axes: those given, or those of a new figure, a few in a row."""
    if axes is not None:
        return panels(axes, 1, count)[0]
    n_columns = min(count, MOST_IN_A_ROW)
    grid = panels(None, -(-count // n_columns), n_columns).ravel()
    for idle in grid[count:]:
        idle.set_axis_off()
    return grid[:count]


def labels(names: Sequence[str] | None, dim: int) -> list[str]:
    """Return a label for each dimension."""
    if names is None:
        return [f"dimension {d}" for d in range(dim)]
    if isinstance(names, str) or len(names) != dim:
        got = repr(names) if isinstance(names, str) else len(names)
        raise ValueError(f"Expected {dim} names; got {got}.")
    return [str(name).replace("$", r"\$") for name in names]


def span(*columns: ArrayLike) -> tuple[float, float]:
    """Range that holds almost all of some columns, of what a picture can show."""
    finite = [np.asarray(c)[np.abs(c) <= LARGEST] for c in columns]
    low = min(np.quantile(c, 0.002) for c in finite if len(c))
    high = max(np.quantile(c, 0.998) for c in finite if len(c))
    pad = 0.04 * (high - low) or 0.5
    return float(low - pad), float(high + pad)
