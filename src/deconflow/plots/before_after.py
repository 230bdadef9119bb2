"""Before and after: what was measured, the truth found in it, and that truth measured again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow._types import Array
from deconflow.evaluation import simulate_like
from deconflow.noise import Noise
from deconflow.plots.axis import Axis
from deconflow.plots.curves import draw_density, draw_measured
from deconflow.plots.look import Look
from deconflow.plots.marginals import DRAWS, finish, room_for_legend
from deconflow.plots.style import (
    AGAIN,
    DATA,
    DENSITY,
    MOST_AS_VECTORS,
    SECOND,
    columns,
    panels,
    refuse_no_model,
    wrapped,
)
from deconflow.plots.words import labels_of

REPEATS = 20_000
"""Rows that are simulated at least, so that their curve is smooth."""
AGAIN_WORDS = "deconvolved, measured again"


def before_after(
    model: Any,
    w: ArrayLike,
    noise: Noise,
    *,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
    **look: Any,
) -> NDArray[Any]:
    """Draw what was measured, the density of the truth, and that truth with noise again.

    Parameters
    ----------
    model
        A fitted estimator.
    w
        ``(N, D)`` measurements, NaN where missing.
    noise
        The law of their noise.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``; None for those of the model.
    axes
        Axes of matplotlib: three if two columns are shown, otherwise one for each; None for a new
        figure.
    random_state
        Seed of the draws.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.

    Returns
    -------
    array of Axes
        Of two columns: the points that were measured; as many draws of the truth; and these with
        noise again, which look like the first if model and noise are right. Otherwise a panel for
        each column, with the histogram of what was measured, the density of the truth with its
        band, and dashed the density of that truth with noise again.
    """
    refuse_no_model(model)
    wanted = Look.of(look)
    values = columns(w, "w")
    draws = model.sample(max(DRAWS, len(values)), random_state=random_state)
    shown = wanted.axes(labels_of(model, names), draws, values)
    if len(shown) == 2:
        again = simulate_like(model, values, noise, random_state)
        return _draw_plane(axes, shown, wanted, (values, draws[: len(values)], again))
    again = _simulated(model, values, noise, random_state)
    row = wrapped(axes, len(shown), wanted, (4.8, 3.4) if len(shown) == 1 else (3.6, 2.9))
    for ax, axis in zip(row, shown, strict=True):
        draw_density(ax, model.density_, axis)
        style = {"color": SECOND, "lw": 1.8, "ls": AGAIN, "zorder": 3, "label": AGAIN_WORDS}
        ax.plot(*axis.curve_of_draws(_finite(again[:, axis.number])), **style)
        draw_measured(ax, values[:, axis.number], axis)
        finish(ax, axis)
    row[0].set_ylabel(shown[0].density_label)
    room_for_legend(row[-1])
    return row


def _draw_plane(
    axes: Any, shown: Sequence[Axis], look: Look, clouds: tuple[Array, Array, Array]
) -> NDArray[Any]:
    x, y = shown
    row = panels(axes, 1, 3, look, (3.2, 3.3))[0]
    words = ("measured", "deconvolved", AGAIN_WORDS)
    for ax, points, word, colour in zip(row, clouds, words, (DATA, DENSITY, SECOND), strict=True):
        many = len(points) > MOST_AS_VECTORS
        style = {"color": colour, "ms": 3.6, "mew": 0, "alpha": _faint(len(points))}
        ax.plot(points[:, x.number], points[:, y.number], ".", rasterized=many, **style)
        ax.set_title(word, fontsize="medium")
        x.along_x(ax)
        y.along_y(ax)
    for ax in row[1:]:
        ax.set_ylabel("")
        ax.tick_params(labelleft=False)
    return row


def _faint(count: int) -> float:
    """How strong points are to be: many of them weak, so that crowds show."""
    return float(np.clip(25 / np.sqrt(count), 0.15, 0.8))


def _simulated(model: Any, w: Array, noise: Noise, random_state: int) -> Array:
    """Measure draws of the truth with the noise of the rows, often enough for a smooth curve."""
    times = max(1, -(-REPEATS // len(w)))
    return np.concatenate([simulate_like(model, w, noise, random_state + i) for i in range(times)])


def _finite(values: Array) -> Array:
    return values[np.isfinite(values)]
