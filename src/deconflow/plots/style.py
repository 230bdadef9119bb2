"""Colours, marks and panels that the pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.frames import plain_table
from deconflow.plots.axis import LARGEST
from deconflow.plots.look import Look

DATA, DENSITY, SECOND = "#999999", "#004488", "#d55e00"
"""What was measured, the density of the truth, and what is held against them.

They differ in lightness, too, so that they can be told apart in grey and by the colour-blind.
"""
COLOURS = (SECOND, "#56b4e9", "#00714f", "#e69f00", "#6b3000", "#cc79a7")
"""Those of single rows, after Okabe and Ito (2008): neighbours differ in lightness, too."""
MARKERS = ("X", "o", "s", "^", "D", "P", "v")
"""Those of single rows: one more than colours, so that pairs of both repeat late."""
AGAIN = (0, (4, 1.5))
"""Dashes of curves that are held against others."""
MOST_IN_A_ROW = 3
MOST_AS_VECTORS = 5000
"""Points of which more are put into a vector picture as an image, lest it take seconds to open."""


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


def panels(
    axes: Any,
    n_rows: int,
    n_columns: int,
    look: Look | None = None,
    each: tuple[float, float] = (3.6, 2.9),
) -> NDArray[Any]:
    """Return ``(n_rows, n_columns)`` axes: those given, or those of a new figure.

    Of a new figure every panel has the size of ``each`` in inches, unless the look says another.
    """
    look = Look() if look is None else look
    if axes is None:
        import matplotlib.pyplot as plt

        size = look.size or (each[0] * n_columns, each[1] * n_rows)
        figure, axes = plt.subplots(
            n_rows, n_columns, figsize=size, dpi=look.dpi, squeeze=False, layout="constrained"
        )
        if look.title:
            figure.suptitle(look.title)
        return axes
    look.refuse("beside axes=, which have a figure", "size", "dpi")
    given = np.atleast_1d(np.asarray(axes, dtype=object))
    if given.size != n_rows * n_columns:
        raise ValueError(f"Expected {n_rows * n_columns} axes; got {given.size}.")
    if not all(hasattr(ax, "hist") for ax in given.flat):
        raise TypeError(f"Expected axes of matplotlib; got {axes!r}.")
    if look.title:
        given.flat[0].set_title(look.title)
    return given.reshape(n_rows, n_columns)


def wrapped(
    axes: Any, count: int, look: Look | None = None, each: tuple[float, float] = (3.6, 2.9)
) -> NDArray[Any]:
    """Return ``(count,)`` axes: those given, or those of a new figure, a few in a row."""
    if axes is not None:
        return panels(axes, 1, count, look)[0]
    n_columns = min(count, MOST_IN_A_ROW)
    grid = panels(None, -(-count // n_columns), n_columns, look, each).ravel()
    for idle in grid[count:]:
        idle.set_axis_off()
    return grid[:count]
