"""A comparison of simulated measurements with the real ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from deconflow._types import AnyArray, Array
from deconflow.plots.drawing import DATA, DENSITY, SECOND, draw_again, draw_measured, panels
from deconflow.plots.inputs import axes_of, some_of, to_simulate
from deconflow.trust import predictive_ranks, simulate_like

RANK_BINS = 20
#: Rows that are simulated again at most, and rows whose posteriors are weighed.
CHECKED, WEIGHED = 2000, 300


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
        _draw_sizes(grid[0, -1], sizes)
        grid[1, -1].set_axis_off()
    return grid


def _draw_ranks(ax: Any, ranks: Array) -> None:
    seen = ranks[~np.isnan(ranks)]
    low, high = binom.ppf([0.005, 0.995], len(seen), 1 / RANK_BINS)
    ax.axhspan(low, high, color=DATA, alpha=0.4, lw=0)
    ax.hist(seen, bins=RANK_BINS, range=(0, 1), histtype="step", color=DENSITY, lw=1.6)
    ax.set(xlim=(0, 1), ylim=(0, None))


def _draw_sizes(ax: Any, sizes: Array) -> None:
    edges = np.geomspace(max(1.0, sizes.min()), max(sizes.max(), 2.0) * 1.01, 30)
    ax.hist(sizes, bins=list(edges), color=DENSITY)
    ax.axvline(10, color=SECOND, ls=":", label="below 10: rough")
    ax.set(xscale="log", xlabel="effective sample size", ylabel="rows")
    ax.legend(frameon=False, fontsize="small")
