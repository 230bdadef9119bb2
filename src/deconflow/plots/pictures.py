"""Pictures of every column, of every pair of columns, and of single rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from corner import hist2d
from numpy.typing import ArrayLike
from scipy.stats import binom

from deconflow._types import AnyArray, Array
from deconflow.checks import refuse_if
from deconflow.plots.drawing import (
    AGAIN,
    DATA,
    DENSITY,
    DRAWS,
    MOST_AS_VECTORS,
    SECOND,
    Axis,
    MarkedRow,
    axes_of,
    draw_again,
    draw_density,
    draw_measured,
    draw_posterior,
    marked_rows,
    measurements,
    panels,
    room_for_legend,
    some_of,
    to_simulate,
)
from deconflow.trust import predictive_ranks, simulate_like

SHOWN = 20_000
#: Least number of simulated rows, for a smooth curve.
REPEATS = 20_000
MOST_IN_A_ROW = 3
AGAIN_WORDS = "deconvolved, measured again"
RANK_BINS = 20
#: Rows that are simulated again at most, and rows whose posteriors are weighed.
CHECKED, WEIGHED = 2000, 300


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
    return _draw_columns(ax, model, shown, values, None, figure)


def before_after(
    model: Any,
    w: ArrayLike,
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
    """Draw the measurements, the deconvolved density, and that density with noise again.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, given, limits
        Measurements, as in ``fit``. Models with covariates and rows with limits cannot be
        simulated, and are refused.
    columns
        Columns to show, by name or number, in this order; None for all.
    names
        Labels of all columns, as ``x`` or ``x [mas]``; None for those of the model.
    ax
        Axes of matplotlib: three if two columns are shown, otherwise one for each column; None for
        a new figure.
    random_state
        Seed of the draws.
    **figure
        Options of a new figure, as ``figsize`` and ``dpi``, for :func:`matplotlib.pyplot.subplots`.

    Returns
    -------
    array of Axes
        For two columns: the measured points; as many draws of the truth; and these with noise
        again, which look like the first if model and noise are right. Otherwise a panel for each
        column, with the histogram of the measurements, the density of the truth with its band, and
        dashed the density of that truth with noise again.
    """
    values, data = to_simulate(model, "before_after", w, noise, given, limits, SHOWN)
    draws = model.sample(max(DRAWS, len(values)), random_state=random_state)
    shown = axes_of(model, columns, names, draws, values)
    times = 1 if len(shown) == 2 else max(1, -(-REPEATS // len(values)))
    again = np.concatenate([*simulate_like(model.density_.sample, data, random_state, times)])
    if len(shown) == 2:
        return _draw_plane(ax, shown[0], shown[1], (values, draws, again), figure)
    return _draw_columns(ax, model, shown, values, again, figure)


def _draw_columns(
    ax: Any,
    model: Any,
    shown: list[Axis],
    values: Array | None,
    again: Array | None,
    figure: dict[str, Any],
) -> AnyArray:
    count = len(shown)
    each = (4.8, 3.4) if count == 1 else (3.6, 2.9)
    in_a_row = min(count, MOST_IN_A_ROW) if ax is None else count
    grid = panels(ax, -(-count // in_a_row), in_a_row, each, figure).ravel()
    for idle in grid[count:]:
        idle.set_axis_off()
    grid = grid[:count]
    for panel, axis in zip(grid, shown, strict=True):
        draw_density(panel, model.density_, axis)
        if again is not None and values is not None:
            draw_again(panel, again[:, axis.number], values[:, axis.number], axis, AGAIN_WORDS)
        if values is not None:
            draw_measured(panel, values[:, axis.number], axis)
        axis.along_x(panel)
    grid[0].set_ylabel("density")
    room_for_legend(grid[-1])
    return grid


def _draw_plane(
    ax: Any, x: Axis, y: Axis, clouds: tuple[Array, ...], figure: dict[str, Any]
) -> AnyArray:
    (grid,) = panels(ax, 1, 3, (3.2, 3.3), figure, sharex=True, sharey=True)
    pairs = [cloud[:, [x.number, y.number]] for cloud in clouds]
    pairs[1] = pairs[1][: np.isfinite(pairs[0]).all(1).sum()]
    alpha = float(np.clip(25 / np.sqrt(len(clouds[0])), 0.15, 0.8))  # crowds of weak points show
    looks = {"measured": DATA, "deconvolved": DENSITY, AGAIN_WORDS: SECOND}
    for panel, points, (word, colour) in zip(grid, pairs, looks.items(), strict=True):
        panel.plot(
            *points.T, ".", color=colour, ms=3.6, mew=0, alpha=alpha,
            rasterized=len(points) > MOST_AS_VECTORS,
        )  # fmt: skip
        panel.set_title(word, fontsize="medium")
        panel.set(xlabel=x.label, xlim=(x.low, x.high), ylim=(y.low, y.high))
    grid[0].set_ylabel(y.label)
    return grid


def diagnostics(
    model: Any,
    w: ArrayLike,
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
    """Compare simulated measurements with the real ones.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, given, limits
        Measurements, as in ``fit``. Models with covariates and rows with limits cannot be
        simulated, and are refused.
    columns
        Columns to show, by name or number, in this order; None for all.
    names
        Labels of all columns, as ``x`` or ``x [mas]``; None for those of the model.
    ax
        Two rows of ``D`` axes of matplotlib, or of ``D + 1`` if posteriors are made of weighted
        draws; None for a new figure.
    random_state
        Seed of the draws.
    **figure
        Options of a new figure, as ``figsize`` and ``dpi``, for :func:`matplotlib.pyplot.subplots`.

    Returns
    -------
    array of Axes
        First row: histograms of the measurements and of simulated ones. Second row: histograms of
        the share of simulated values below each real one, which are flat, up to the grey band, if
        the model is right. Last column: effective sample sizes of posteriors that are made of
        weighted draws.
    """
    values, data = to_simulate(model, "diagnostics", w, noise, given, limits, CHECKED)
    few = data[some_of(len(data), WEIGHED)]
    sizes = model.density_.posterior(few, 10, 1000, random_state).effective_sample_size
    weighted = not np.isinf(sizes).all()
    sample = model.density_.sample
    (simulated,) = simulate_like(sample, data, random_state)
    ranks = predictive_ranks(sample, data, seed=random_state)
    shown = axes_of(model, columns, names, simulated, values, measured=True)
    grid = panels(ax, 2, len(shown) + weighted, (3.6, 2.9), figure)
    for (upper, lower), axis in zip(grid.T, shown, strict=False):
        measured = values[:, axis.number]
        draw_measured(upper, measured, axis)
        draw_again(upper, simulated[:, axis.number], measured, axis, "simulated")
        axis.along_x(upper)
        _draw_ranks(lower, ranks[:, axis.number])
        lower.set_xlabel(f"rank of {axis.label.split(' [')[0]} among simulated")
    grid[0, 0].set_ylabel("density")
    grid[1, 0].set_ylabel("rows")
    grid[0, 0].legend(frameon=False, fontsize="small")
    if weighted:
        edges = np.geomspace(max(1.0, sizes.min()), max(sizes.max(), 2.0) * 1.01, 30)
        grid[0, -1].hist(sizes, bins=list(edges), color=DENSITY)
        grid[0, -1].axvline(10, color=SECOND, ls=":", label="below 10: rough")
        grid[0, -1].set(xscale="log", xlabel="effective sample size", ylabel="rows")
        grid[0, -1].legend(frameon=False, fontsize="small")
        grid[1, -1].set_axis_off()
    return grid


def _draw_ranks(ax: Any, ranks: Array) -> None:
    seen = ranks[~np.isnan(ranks)]
    low, high = binom.ppf([0.005, 0.995], len(seen), 1 / RANK_BINS)
    ax.axhspan(low, high, color=DATA, alpha=0.4, lw=0)
    ax.hist(seen, bins=RANK_BINS, range=(0, 1), histtype="step", color=DENSITY, lw=1.6)
    ax.set(xlim=(0, 1), ylim=(0, None))


SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
#: Mass inside the 0.5, 1, 1.5 and 2 sigma contours of a two-dimensional Gaussian.
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)
#: Of the histogram of draws that contours are made of.
BINS = 40
#: With more, panels are too small to read and take minutes.
MOST_COLUMNS = 12
SHOWN, SHOWN_DRAWS = 20_000, 300
#: Inches.
PANEL, ONLY_PANEL = (2.4, 2.3), (6.0, 3.6)
LIMITS = {-1: "an upper limit", 1: "a lower limit"}
#: Errors around a measurement that its axis shows.
BARS = 2.5


def corner(
    model: Any,
    w: ArrayLike,
    noise: Any = None,
    *,
    rows: Sequence[int] = (),
    row_names: Sequence[Any] | None = None,
    given: Any = None,
    limits: Any = None,
    columns: Any = None,
    names: Sequence[str] | None = None,
    ax: Any = None,
    random_state: int = 0,
    **figure: Any,
) -> AnyArray:
    """Draw every pair of columns: measurements, the deconvolved density, and some posteriors.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, given, limits
        Measurements, as in ``fit``; without ``rows``, ``w`` is enough.
    rows
        Numbers of rows to show in colour, with error bars and draws of their posteriors.
    row_names
        What these rows are called; None for their numbers.
    columns
        Columns to show, by name or number, in this order; None for all.
    names
        Labels of all columns, as ``x`` or ``x [mas]``; None for those of the model.
    ax
        ``(D, D)`` axes of matplotlib; None for a new figure.
    random_state
        Seed of the draws.
    **figure
        Options of a new figure, as ``figsize`` and ``dpi``, for :func:`matplotlib.pyplot.subplots`.

    Returns
    -------
    array of Axes
        ``(D, D)``. Grey points are measurements, also of rows that lack other values; contours
        hold 12, 39, 68 and 86 % of the truth. On the diagonal is the density of each column, with
        its 90 % band if the model has replicates.
    """
    some = len(np.atleast_1d(rows)) > 0
    values, data = measurements(model, w, noise, given, limits, noise_needed=some)
    marked = marked_rows(model, rows, row_names, values, data, random_state) if some else []
    draws = model.sample(DRAWS, random_state=random_state)
    shown = axes_of(model, columns, names, draws, values)
    dim = len(shown)
    refuse_if(
        dim > MOST_COLUMNS,
        f"Expected at most {MOST_COLUMNS} columns for a corner; got {dim}. Choose some by "
        "columns=.",
    )
    grid = panels(ax, dim, dim, PANEL if dim > 1 else ONLY_PANEL, figure, sharex="col")
    for i, axis in enumerate(shown):
        draw_density(grid[i, i], model.density_, axis)
        draw_measured(grid[i, i], values[:, axis.number], axis)
        axis.along_x(grid[i, i])
        for j, other in enumerate(shown[:i]):
            _draw_pair(grid[i, j], other, axis, values[some_of(len(values), SHOWN)], draws)
            for each in marked:
                drawn = each.posterior.samples[0, :SHOWN_DRAWS, [other.number, axis.number]]
                grid[i, j].plot(*drawn, ".", color=each.colour, ms=3.2, alpha=0.45, zorder=3, mew=0)
                each.draw_value(grid[i, j], other.number, axis.number)
        for idle in grid[i, i + 1 :]:
            idle.set_axis_off()
    if dim == 1:
        _draw_only_column(grid[0, 0], shown[0], marked)
    else:
        _label_outer(grid)
        _draw_legend(grid, marked)
    return grid


def _draw_pair(ax: Any, x: Axis, y: Axis, w: Array, draws: Array) -> None:
    """Draw contours of the density over all pairs that were measured."""
    hist2d(
        draws[:, x.number], draws[:, y.number], ax=ax, bins=BINS,
        range=[(x.low, x.high), (y.low, y.high)], levels=LEVELS,
        smooth=1.0, color=DENSITY, plot_datapoints=False, plot_density=False,
        no_fill_contours=True, contour_kwargs={"linewidths": 1.2, "zorder": 2.5}, quiet=True,
    )  # fmt: skip
    ax.plot(
        w[:, x.number], w[:, y.number], ".", rasterized=len(w) > MOST_AS_VECTORS,
        color=DATA, ms=3.5, alpha=0.5, zorder=0.5, mew=0,
    )  # fmt: skip
    ax.set(xlabel=x.label, ylabel=y.label, xlim=(x.low, x.high), ylim=(y.low, y.high))


def _draw_only_column(ax: Any, axis: Axis, marked: Sequence[MarkedRow]) -> None:
    """Draw posteriors of rows as curves on the only panel, with a legend to its right."""
    first = top = ax.get_ylim()[1]
    for row in marked:
        height = draw_posterior(ax, row.posterior, axis, row.colour)
        row.draw_value(ax, axis.number, label=f"{row.name}, with its posterior")
        top = max(top, min(1.05 * height, 10 * first))  # a sharp posterior may leave the panel
    ax.set(ylim=(0, top), ylabel="density")
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _label_outer(grid: AnyArray) -> None:
    """Write numbers and labels at the left and at the bottom only."""
    grid[0, 0].figure.align_labels(grid.ravel())
    for i, j in zip(*np.tril_indices(len(grid)), strict=True):
        grid[i, j].label_outer()
        grid[i, j].locator_params("x", nbins=4)
        if i != j:
            grid[i, j].locator_params("y", nbins=4)


def _draw_legend(grid: AnyArray, marked: Sequence[MarkedRow]) -> None:
    from matplotlib.lines import Line2D

    few = len(grid) == 2
    own = dict(zip(*reversed(grid[0, 0].get_legend_handles_labels()), strict=True))
    words = "deconvolved\n(0.5, 1, 1.5, 2 sigma)" if few else "deconvolved (0.5, 1, 1.5, 2 sigma)"
    first = {"measured": own.pop("measured"), words: own.pop("deconvolved")}
    entries: dict[str, Any] = first | own
    for row in marked:
        entries[row.name] = Line2D(
            [], [], color=row.colour, marker=row.marker, mec="white", mew=0.6, ms=8, ls=""
        )
    if marked:
        entries["draws of posteriors"] = Line2D(
            [], [], color=marked[0].colour, marker=".", ls="", ms=4
        )
    legend = grid[0, -1].legend(
        list(entries.values()), list(entries), frameon=False, loc="upper right",
        fontsize="small" if few else "medium", borderaxespad=0.0, handletextpad=0.5,
    )  # fmt: skip
    legend.set_in_layout(False)  # it reaches over empty panels


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
    refuse_if(
        not len(np.atleast_1d(rows)),
        "Expected rows= with numbers of rows for a picture of kind row; got none.",
    )
    values, data = measurements(model, w, noise, given, limits)
    marked = marked_rows(model, rows, row_names, values, data, random_state)
    shown = axes_of(model, columns, names, model.sample(DRAWS, random_state=random_state))
    grid = panels(ax, len(marked), len(shown), (4.2, 3.1), figure)
    for line, each in zip(grid, marked, strict=True):
        for panel, axis in zip(line, shown, strict=True):
            d = axis.number
            value, bar = each.w[d], BARS * each.errors[d]
            low, high = np.fmin(axis.low, value - bar), np.fmax(axis.high, value + bar)
            wide = replace(axis, low=low, high=high)  # unless the value is missing
            draw_density(panel, model.density_, wide, "prior", ls=AGAIN, lw=1.5)
            draw_posterior(panel, each.posterior, wide, each.colour, "posterior")
            if np.isfinite(value):
                each.draw_value(panel, d, label=LIMITS.get(int(each.limits[d]), "measured"))
            wide.along_x(panel)
        line[0].set_ylabel(f"{each.name}: density")
        room_for_legend(line[-1])
    return grid
