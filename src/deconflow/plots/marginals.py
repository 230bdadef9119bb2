"""The density of each column, with its band."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from deconflow._types import AnyArray
from deconflow.plots.curves import draw_density, draw_measured
from deconflow.plots.inputs import DRAWS, axes_of, measurements
from deconflow.plots.style import room_for_legend, wrapped


def marginals(
    model: Any,
    w: ArrayLike | None = None,
    noise: Any = None,
    *,
    given: Any = None,
    limits: Any = None,
    columns: Any = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
    random_state: int = 0,
    **figure: Any,
) -> AnyArray:
    """Draw the density of each column, with its 90 % band if the model has replicates.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, given, limits
        Measurements, as in ``fit``, to show behind the density; ``w`` is enough.
    columns
        Columns to show, by name or number, in this order; None for all.
    names
        Labels of all columns, as ``x`` or ``x [mas]``; None for those of the model.
    ax
        Axes of matplotlib, one for each column; None for a new figure.
    random_state
        Seed of the draws that set the range of each axis.
    **figure
        Options of a new figure, as ``figsize`` and ``dpi``, for :func:`matplotlib.pyplot.subplots`.

    Returns
    -------
    array of Axes
        ``(D,)``. The band is pointwise, that of :meth:`deconflow.FittedDensity.band`.
    """
    facts, values = (w, noise, given, limits), None
    if any(fact is not None for fact in facts):
        values, _ = measurements(model, *facts, noise_needed=False)
    draws = model.sample(DRAWS, random_state=random_state)
    shown = axes_of(model, columns, names, draws, values)
    grid = wrapped(ax, len(shown), figure)
    for panel, axis in zip(grid, shown, strict=True):
        draw_density(panel, model.density_, axis)
        if values is not None:
            draw_measured(panel, values[:, axis.number], axis)
        axis.along_x(panel)
    grid[0].set_ylabel("density")
    room_for_legend(grid[-1])
    return grid
