"""One dimension at a time, with a band that says how far the density may be off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from deconflow.plots.curves import draw_density, draw_measured
from deconflow.plots.look import Look
from deconflow.plots.style import columns, refuse_no_model, wrapped
from deconflow.plots.words import labels_of

DRAWS = 20_000


def marginals(
    model: Any,
    w: ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
    **look: Any,
) -> NDArray[Any]:
    """Draw the density of each dimension, with its 90 % band.

    Parameters
    ----------
    model
        A fitted estimator.
    w
        ``(N, D)`` measurements to show beside it, NaN where missing.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``; None for those of the model.
    axes
        An axes of matplotlib for each dimension; None for a new figure.
    random_state
        Seed of the draws that say how far the axes go.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.

    Returns
    -------
    array of Axes
        ``(D,)``. The band is pointwise, that of :meth:`deconflow.FittedDensity.band`; a model
        without replicates has none.
    """
    refuse_no_model(model)
    wanted = Look.of(look)
    draws = model.sample(DRAWS, random_state=random_state)
    noisy = None if w is None else columns(w, "w", draws.shape[1])
    shown = wanted.axes(labels_of(model, names), draws, noisy)
    row = wrapped(axes, len(shown), wanted, (4.8, 3.4) if len(shown) == 1 else (3.6, 2.9))
    for ax, axis in zip(row, shown, strict=True):
        draw_density(ax, model.density_, axis)
        if noisy is not None:
            draw_measured(ax, noisy[:, axis.number], axis)
        finish(ax, axis)
    row[0].set_ylabel(shown[0].density_label)
    room_for_legend(row[-1])
    return row


def finish(ax: Any, axis: Any) -> None:
    """Set the axis of a panel of densities, whose heights need no numbers."""
    axis.along_x(ax)
    ax.set(ylim=(0, ax.get_ylim()[1]), yticks=[])


def room_for_legend(ax: Any) -> None:
    """Put a legend above the curves of a panel."""
    lines = -(-len(ax.get_legend_handles_labels()[1]) // 2)
    ax.set_ylim(0, (1.1 + 0.13 * lines) * ax.get_ylim()[1])
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", ncols=2, columnspacing=1.2,
        handlelength=1.6, borderaxespad=0.2,
    )  # fmt: skip
