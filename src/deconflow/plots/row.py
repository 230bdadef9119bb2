"""Single rows: the measurement, the prior, and the posterior."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import AnyArray
from deconflow.plots.axis import Axis
from deconflow.plots.curves import draw_density, draw_posterior
from deconflow.plots.inputs import DRAWS, MarkedRow, axes_of, marked_rows, measurements
from deconflow.plots.style import AGAIN, panels, room_for_legend

#: Errors around a measurement that its axis shows.
BARS = 2.5


def row(
    model: Any,
    w: ArrayLike,
    noise: Any = None,
    *,
    rows: Sequence[int],
    row_names: Sequence[Any] | None = None,
    given: Any = None,
    limits: Any = None,
    columns: Any = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
    random_state: int = 0,
    **figure: Any,
) -> AnyArray:
    """Draw the posterior of single rows, with their measurements and the density of all rows.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, given, limits
        Measurements and what is known of them, as in ``fit``.
    rows
        Numbers of the rows to show.
    row_names
        What these rows are called; None for their numbers.
    columns
        Columns to show, by name or number, in this order; None for all.
    names
        Labels of all columns, as ``x`` or ``x [mas]``; None for those of the model.
    ax
        ``(R, D)`` axes of matplotlib; None for a new figure.
    random_state
        Seed of the draws.
    **figure
        Options of a new figure, as ``figsize`` and ``dpi``, for :func:`matplotlib.pyplot.subplots`.

    Returns
    -------
    array of Axes
        ``(R, D)``: a line of panels for each row. Dashed the prior, which is the deconvolved
        density; filled the posterior; below it the measurement.
    """
    if not len(np.atleast_1d(rows)):
        raise ValueError("Expected rows= with numbers of rows for a picture of kind row; got none.")
    values, data = measurements(model, w, noise, given, limits)
    marked = marked_rows(model, rows, row_names, values, data, random_state)
    shown = axes_of(model, columns, names, model.sample(DRAWS, random_state=random_state))
    grid = panels(ax, len(marked), len(shown), (4.2, 3.1), figure)
    for line, each in zip(grid, marked, strict=True):
        for panel, axis in zip(line, shown, strict=True):
            _draw(panel, model, each, axis)
        line[0].set_ylabel(f"{each.name}: density")
        room_for_legend(line[-1])
    return grid


def _draw(ax: Any, model: Any, row: MarkedRow, axis: Axis) -> None:
    value, bar = row.w[axis.number], BARS * row.errors[axis.number]
    ends = {"low": np.fmin(axis.low, value - bar), "high": np.fmax(axis.high, value + bar)}
    axis = replace(axis, **ends)  # unless the value is missing
    draw_density(ax, model.density_, axis, "prior", ls=AGAIN, lw=1.5)
    draw_posterior(ax, row.posterior, axis, row.colour, "posterior")
    if np.isfinite(value):
        row.draw_value(ax, axis.number, label=row.words(axis.number))
    axis.along_x(ax)
