"""Pictures of columns: their densities, measured again with noise, and simulated measurements."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from deconflow._types import AnyArray, Array
from deconflow.plots.drawing import (
    DATA,
    DENSITY,
    DRAWS,
    MOST_AS_VECTORS,
    SECOND,
    Axis,
    axes_of,
    draw_again,
    draw_density,
    draw_measured,
    measurements,
    panels,
    room_for_legend,
    some_of,
    to_simulate,
    wrapped,
)
from deconflow.trust import predictive_ranks, simulate_like

SHOWN = 20_000
#: Least number of simulated rows, for a smooth curve.
REPEATS = 20_000
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
    grid = wrapped(ax, len(shown), figure)
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
