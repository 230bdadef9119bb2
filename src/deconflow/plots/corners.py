"""The corner figure: every pair of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import corner
import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow._types import Array
from deconflow.estimators import Posterior
from deconflow.plots.axis import Axis
from deconflow.plots.curves import draw_density, draw_measured, draw_posterior
from deconflow.plots.look import Look
from deconflow.plots.marginals import finish
from deconflow.plots.marked import MarkedRow, draw_value, marked_rows
from deconflow.plots.style import DATA, DENSITY, MOST_AS_VECTORS, columns, panels
from deconflow.plots.words import labels, labels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)
"""Mass inside the 0.5, 1, 1.5 and 2 sigma contours of a two-dimensional Gaussian."""
BINS = 40
"""Of the histogram of draws that contours are made of."""
MOST_COLUMNS = 12
"""Of more, panels are too small to read and take minutes."""
SHOWN_DRAWS = 300
PANEL, ONLY_PANEL = (2.4, 2.3), (6.0, 3.6)
"""Inches."""


def corner_figure(
    w: ArrayLike,
    samples: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    posterior: Posterior | None = None,
    rows: Sequence[int] = (),
    errors: ArrayLike | None = None,
    limits: ArrayLike | None = None,
    model: Any = None,
    row_names: Sequence[Any] | None = None,
    axes: Any = None,
    **look: Any,
) -> Figure:
    """Draw noisy data, the deconvolved density, and some rows with their posteriors.

    Parameters
    ----------
    w
        ``(N, D)`` measurements, NaN where missing.
    samples
        ``(S, D)`` draws of the deconvolved density.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``.
    posterior
        Posteriors of ``rows``, as any estimator's ``posterior`` returns them.
    rows
        Which rows of ``w`` those are.
    errors
        ``(len(rows), D)`` standard deviations of their noise, drawn as error bars.
    limits
        ``(len(rows), D)``: -1 for an upper limit, 1 for a lower one, 0 for what was measured.
    model
        The fitted estimator, whose own densities with their 90 % bands, where it has replicates,
        then are the curves on the diagonal; without it they are made of the draws.
    row_names
        What the legend calls the rows; None for their numbers.
    axes
        ``(D, D)`` axes of matplotlib; None for a new figure.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.
    """
    samples = columns(samples, "samples")
    dim = samples.shape[1]
    w = columns(w, "w", dim)
    marked = []
    if posterior is not None:
        called = rows if row_names is None else row_names
        marked = marked_rows(called, w[np.asarray(rows, dtype=int)], errors, posterior, limits)
    words = labels_of(model, names) if model is not None else labels(names, dim)
    wanted = Look.of(look)
    shown = wanted.axes(words, samples, w)
    if len(shown) > MOST_COLUMNS:
        raise ValueError(
            f"Expected at most {MOST_COLUMNS} columns for a corner; got {len(shown)}. Choose some "
            "by columns=."
        )
    grid = panels(axes, len(shown), len(shown), wanted, PANEL if len(shown) > 1 else ONLY_PANEL)
    for i, axis in enumerate(shown):
        _draw_diagonal(grid[i, i], axis, w, samples, model)
        for j, other in enumerate(shown[:i]):
            _draw_pair(grid[i, j], other, axis, w, samples)
            for row in marked:
                _draw_row(grid[i, j], other, axis, row)
        for idle in grid[i, i + 1 :]:
            idle.set_axis_off()
    if len(shown) == 1:
        _draw_only_dimension(grid[0, 0], shown[0], marked)
    else:
        _share_axes(grid, shown)
        _draw_legend(grid, marked, few=len(shown) == 2)
    return grid[0, 0].figure


def _draw_diagonal(ax: Any, axis: Axis, w: Array, samples: Array, model: Any) -> None:
    if model is None:
        curve = axis.curve_of_draws(samples[:, axis.number])
        ax.plot(*curve, color=DENSITY, lw=1.8, zorder=2.5, label="deconvolved")
    else:
        draw_density(ax, model.density_, axis)
    draw_measured(ax, w[:, axis.number], axis)
    finish(ax, axis)


def _draw_pair(ax: Any, x: Axis, y: Axis, w: Array, samples: Array) -> None:
    """Draw contours, and every pair that was measured, also of rows that lack other values."""
    scales = ["log" if axis.log else "linear" for axis in (x, y)]
    drawn = samples[:, [x.number, y.number]]
    for d, axis in enumerate((x, y)):
        drawn = drawn[drawn[:, d] > 0] if axis.log else drawn
    corner.hist2d(
        *drawn.T, ax=ax, bins=BINS, range=[x.ends, y.ends], axes_scale=scales, levels=LEVELS,
        smooth=1.0, color=DENSITY, plot_datapoints=False, plot_density=False,
        no_fill_contours=True, contour_kwargs={"linewidths": 1.2, "zorder": 2.5}, quiet=True,
    )  # fmt: skip
    style = {"color": DATA, "ms": 3.5, "alpha": 0.5, "zorder": 0.5, "mew": 0}
    many = len(w) > MOST_AS_VECTORS
    ax.plot(w[:, x.number], w[:, y.number], ".", rasterized=many, **style)
    x.along_x(ax)
    y.along_y(ax)


def _draw_row(ax: Any, x: Axis, y: Axis, row: MarkedRow) -> None:
    drawn = row.posterior.samples[0, :SHOWN_DRAWS]
    style = {"color": row.colour, "ms": 3.2, "alpha": 0.45, "zorder": 3, "mew": 0}
    ax.plot(drawn[:, x.number], drawn[:, y.number], ".", **style)
    draw_value(ax, row, x.number, y.number)


def _draw_only_dimension(ax: Any, axis: Axis, marked: Sequence[MarkedRow]) -> None:
    """Draw posteriors of rows on the one panel there is, as curves, and a legend beside it."""
    first = top = ax.get_ylim()[1]
    for row in marked:
        height = draw_posterior(ax, row.posterior, axis, row.colour)
        draw_value(ax, row, axis.number, label=f"{row.name}, with its posterior")
        top = max(top, min(1.05 * height, 10 * first))  # a sharp posterior may leave the panel
    ax.set(ylim=(0, top), ylabel=axis.density_label)
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _share_axes(grid: NDArray[Any], shown: Sequence[Axis]) -> None:
    """Write numbers and labels at the left and below only."""
    from matplotlib.ticker import MaxNLocator

    last = len(shown) - 1
    grid[0, 0].figure.align_labels(grid.ravel())
    for i, j in np.ndindex(grid.shape):
        if j > i:
            continue
        ax: Any = grid[i, j]
        if not shown[j].log:
            ax.xaxis.set_major_locator(MaxNLocator(4))
        if i != j and not shown[i].log:
            ax.yaxis.set_major_locator(MaxNLocator(4))
        if i != last:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
        if j or i == j:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)


def _draw_legend(grid: NDArray[Any], marked: Sequence[MarkedRow], *, few: bool) -> None:
    from matplotlib.lines import Line2D

    own = dict(zip(*reversed(grid[0, 0].get_legend_handles_labels()), strict=True))
    words = "deconvolved\n(0.5, 1, 1.5, 2 sigma)" if few else "deconvolved (0.5, 1, 1.5, 2 sigma)"
    entries: dict[str, Any] = {"measured": own.pop("measured"), words: own.pop("deconvolved")}
    entries |= own
    for row in marked:
        entries[row.name] = Line2D(
            [], [], color=row.colour, marker=row.marker, mec="white", mew=0.6, ms=8, ls=""
        )
    if marked:
        first = marked[0].colour
        entries["draws of posteriors"] = Line2D([], [], color=first, marker=".", ls="", ms=4)
    legend = grid[0, -1].legend(
        list(entries.values()), list(entries), frameon=False, loc="upper right",
        fontsize="small" if few else "medium", borderaxespad=0.0, handletextpad=0.5,
    )  # fmt: skip
    legend.set_in_layout(False)  # it reaches over empty panels
