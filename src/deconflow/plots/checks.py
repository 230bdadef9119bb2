"""Pictures that show whether a model fits its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from deconflow.evaluation import predictive_ranks, simulate_like
from deconflow.frames import plain_tables
from deconflow.noise import Noise, Reading, as_noise
from deconflow.plots.axis import Axis
from deconflow.plots.curves import draw_again, draw_measured
from deconflow.plots.look import Look
from deconflow.plots.style import DATA, DENSITY, SECOND, columns, panels, refuse_no_model
from deconflow.plots.words import labels_of

RANK_BINS = 20


def diagnostics(
    model: Any,
    w: ArrayLike,
    noise: Any,
    *,
    names: Sequence[str] | None = None,
    effective_sample_size: ArrayLike | None = None,
    axes: Any = None,
    random_state: int = 0,
    **look: Any,
) -> NDArray[Any]:
    """Hold simulated measurements against the real ones.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise
        Measurements ``(N, D)``, NaN where missing, and their noise, as in ``fit``.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``; None for those of the model.
    effective_sample_size
        ``(N,)``, of the rows' posteriors; None to leave that panel out.
    axes
        Two rows of ``D`` axes, or of ``D + 1`` with effective sample sizes; None for a new figure.
    random_state
        Seed of the simulation.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.

    Returns
    -------
    array of Axes
        First row: histograms of what was measured and of what the model would measure. Second
        row: histograms of the share of simulated values below each real one, which are flat, up
        to the grey band, if the model is right. Last column: effective sample sizes.
    """
    refuse_no_model(model)
    w, noise = plain_tables(w, noise)
    w = columns(w, "w")
    if isinstance(noise, Reading):
        located, noise = noise.read(torch.from_numpy(w))
        w = located.numpy()
    law = _law(w, noise)
    sizes = None if effective_sample_size is None else np.asarray(effective_sample_size)
    wanted = Look.of(look)
    simulated = simulate_like(model, w, law, random_state)
    shown = wanted.axes(labels_of(model, names), simulated, w)
    grid = panels(axes, 2, len(shown) + (sizes is not None), wanted)
    ranks = predictive_ranks(model, w, law, random_state=random_state)
    for d, axis in enumerate(shown):
        _draw_simulated(grid[0, d], w[:, axis.number], simulated[:, axis.number], axis)
        _draw_ranks(grid[1, d], ranks[:, axis.number], axis.label)
    grid[0, 0].set_ylabel(shown[0].density_label)
    grid[1, 0].set_ylabel("rows")
    grid[0, 0].legend(frameon=False, fontsize="small")
    if sizes is not None:
        _draw_sizes(grid[0, -1], sizes)
        grid[1, -1].set_axis_off()
    return grid


def _law(w: NDArray, noise: Any) -> Noise:
    """Return the noise of the values that are not missing; ``model.plot`` has it already."""
    observed = torch.from_numpy(~np.isnan(w))
    of_these = isinstance(noise, Noise) and noise.observed is not None
    if of_these and torch.equal(noise.observed, observed):
        return noise
    return as_noise(noise, len(w), w.shape[1], None if observed.all() else observed)


def _draw_simulated(ax: Any, measured: NDArray, simulated: NDArray, axis: Axis) -> None:
    draw_measured(ax, measured, axis)
    draw_again(ax, simulated, measured, axis, "simulated")
    axis.along_x(ax)
    ax.set(ylim=(0, None), yticks=[])


def _draw_ranks(ax: Any, ranks: NDArray, name: str) -> None:
    seen = ranks[~np.isnan(ranks)]
    low, high = binom.ppf([0.005, 0.995], len(seen), 1 / RANK_BINS)
    ax.axhspan(low, high, color=DATA, alpha=0.4, lw=0)
    ax.hist(seen, bins=RANK_BINS, range=(0, 1), histtype="step", color=DENSITY, lw=1.6)
    ax.set(xlabel=f"rank of {name.split(' [')[0]} among simulated", xlim=(0, 1), ylim=(0, None))


def _draw_sizes(ax: Any, sizes: NDArray) -> None:
    edges = np.geomspace(max(1.0, sizes.min()), max(sizes.max(), 2.0) * 1.01, 30)
    ax.hist(sizes, bins=list(edges), color=DENSITY)
    ax.axvline(10, color=SECOND, ls=":", label="below 10: rough")
    ax.set(xscale="log", xlabel="effective sample size", ylabel="rows")
    ax.legend(frameon=False, fontsize="small")
