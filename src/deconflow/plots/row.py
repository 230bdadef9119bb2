"""What single rows say: the measurement, what was known before it, and what is known after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow._types import Array
from deconflow.estimators import Posterior
from deconflow.plots.axis import Axis
from deconflow.plots.curves import draw_density, posterior_curve
from deconflow.plots.look import Look
from deconflow.plots.marginals import DRAWS, finish, room_for_legend
from deconflow.plots.marked import MarkedRow, draw_value, marked_rows
from deconflow.plots.style import AGAIN, panels, refuse_no_model
from deconflow.plots.words import labels_of

BARS = 2.5
"""Errors around a measurement that its axis shows."""


def row(
    model: Any,
    w: ArrayLike,
    posterior: Posterior,
    *,
    errors: ArrayLike | None = None,
    row_names: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
    **look: Any,
) -> NDArray[Any]:
    """Draw the posterior of single rows, beside the density of all and what was measured.

    Parameters
    ----------
    model
        A fitted estimator.
    w
        ``(R, D)``: the measurements of these rows, NaN where missing.
    posterior
        Their posteriors, as ``model.posterior`` returns them.
    errors
        ``(R, D)``: standard deviations of their noise, drawn as error bars.
    row_names
        What the rows are called; None for their numbers, from 0.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``; None for those of the model.
    axes
        ``(R, D)`` axes of matplotlib; None for a new figure.
    random_state
        Seed of the draws that say how far the axes go.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.

    Returns
    -------
    array of Axes
        ``(R, D)``: a line of panels for each row. Dashed the density of the truth, which is what
        was known before the measurement; filled the posterior; below it the measurement.
    """
    refuse_no_model(model)
    wanted = Look.of(look)
    values = np.asarray(w, dtype=float)
    called = range(len(values)) if row_names is None else row_names
    marked = marked_rows(called, values, errors, posterior)
    draws = model.sample(DRAWS, random_state=random_state)
    shown = wanted.axes(labels_of(model, names), draws)
    grid = panels(axes, len(marked), len(shown), wanted, (4.2, 3.1))
    for line, each in zip(grid, marked, strict=True):
        for ax, axis in zip(line, shown, strict=True):
            _draw(ax, model, each, _around(axis, each))
        line[0].set_ylabel(f"{each.name}: {shown[0].density_label}")
        room_for_legend(line[-1])
    return grid


def _around(axis: Axis, row: MarkedRow) -> Axis:
    """Let an axis reach to the measurement and its error bar."""
    value, bar = row.w[axis.number], BARS * row.errors[axis.number]
    return axis.reaching(np.array([value - bar, value + bar]))


def _draw(ax: Any, model: Any, row: MarkedRow, axis: Axis) -> None:
    draw_density(ax, model.density_, axis, "prior: deconvolved density", ls=AGAIN, lw=1.5)
    x, y = posterior_curve(row.posterior, axis)
    _fill(ax, x, y, row)
    if np.isfinite(row.w[axis.number]):
        draw_value(ax, row, axis.number, label="measured, with its error")
    finish(ax, axis)


def _fill(ax: Any, x: Array, y: Array, row: MarkedRow) -> None:
    ax.plot(x, y, color=row.colour, lw=1.8, zorder=3, label="posterior")
    ax.fill_between(x, 0, y, color=row.colour, alpha=0.15, lw=0, zorder=1)
