"""One column of the truth against another: rows with error bars, the curve, its band, the line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from deconflow._types import Array
from deconflow.checks import check_number
from deconflow.estimators import Regression
from deconflow.frames import plain_tables
from deconflow.noise import as_noise
from deconflow.plots.axis import LARGEST, span
from deconflow.plots.style import DATA, DENSITY, SECOND, columns, panels
from deconflow.plots.words import labels, typeset

SHOWN = 300
"""Rows that are drawn with error bars, of more: taken by chance."""
SHARES = (0.16, 0.84)
WIDTH, HEIGHT = 6.4, 4.4


def regression(
    found: Regression,
    w: Any = None,
    noise: Any = None,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.9,
    axes: Any = None,
) -> Any:
    """Draw a regression on one column: rows, the curve with its band, and the line.

    Parameters
    ----------
    found
        What ``model.regress`` gave.
    w, noise
        Measurements ``(N, D)`` of all columns of the model, NaN where missing, and their noise, as
        in ``fit``; of many rows some are shown. None for none.
    names
        Labels of ``x`` and ``y``; None for the names of the columns.
    level
        That of the band around the curve; a regression without standard errors has no band.
    axes
        Where to draw; None for a new figure.

    Returns
    -------
    Axes
        The solid curve is the mean of the true ``y`` at a true ``x``, the dark band what it may be.
        Between the dotted curves lie the true ``y`` of two rows in three.
    """
    if not isinstance(found, Regression):
        kind = type(found).__name__
        raise TypeError(f"Expected found as the regression that regress gives; got {kind}.")
    check_number("level", level, 0, 1, open_low=True)
    x = found.grid()
    words = [*map(typeset, labels([*found.on, found.target] if names is None else names, 2))]
    ax = panels(axes, 1, 1)[0, 0]
    if axes is None:
        ax.figure.set_size_inches(WIDTH, HEIGHT)
    low, high = found.quantile(SHARES, x)
    measured = [] if w is None else [_draw_rows(ax, found, w, noise)]
    _draw_curve(ax, found, x, level)
    for y, word in ((low, "16 to 84 % of the true values"), (high, None)):
        ax.plot(x, y, color=DENSITY, lw=1.3, ls=":", zorder=4, label=word)
    line = found.intercept + found.slope[0] * x
    ax.plot(x, line, color=SECOND, lw=1.6, ls="--", zorder=4, label="best line")
    ax.set(xlabel=words[0], ylabel=words[1], ylim=span(np.r_[low, high], *measured))
    ax.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize="small")
    return ax


def _draw_curve(ax: Any, found: Regression, x: Array, level: float) -> None:
    mean = f"mean of {found.target}".replace("$", r"\$")
    if found.replicates is None:
        ax.plot(x, found.predict(x), color=DENSITY, lw=2.2, zorder=5, label=mean)
        return
    band = found.band(x, level)
    ax.plot(x, band.value, color=DENSITY, lw=2.2, zorder=5, label=mean)
    style = {"color": DENSITY, "alpha": 0.35, "lw": 0, "zorder": 3}
    ax.fill_between(x, band.lower, band.upper, label=f"its {100 * level:g} % band", **style)


def _draw_rows(ax: Any, found: Regression, w: Any, noise: Any) -> Array:
    """Draw some rows with their error bars; return the values of ``y`` of all that have both."""
    w, noise = plain_tables(w, noise)
    values = columns(w, "w")
    y, x = found.columns
    if max(x, y) >= values.shape[1]:
        raise ValueError(
            f"Expected w with all columns of the model, up to number {max(x, y)}; "
            f"got {values.shape[1]} columns."
        )
    observed = torch.from_numpy(~np.isnan(values))
    law = as_noise(noise, len(values), values.shape[1], None if observed.all() else observed)
    sd = np.broadcast_to(law.variance().sqrt().double().numpy(), values.shape)
    sd = np.where(np.isfinite(sd), sd, np.nan)  # laws without a variance have no error bars
    both = np.flatnonzero((np.abs(values[:, [x, y]]) <= LARGEST).all(1))
    if not len(both):
        raise ValueError("Expected rows in w that have both columns; got none.")
    rows = np.sort(np.random.default_rng(0).permutation(both)[:SHOWN])
    word = "measured" if len(rows) == len(both) else f"{len(rows)} of {len(both)} rows"
    ax.errorbar(
        values[rows, x], values[rows, y], xerr=sd[rows, x], yerr=sd[rows, y], fmt=".", ms=4,
        color=DATA, ecolor=DATA, elinewidth=0.6, alpha=0.55, zorder=1, label=word,
    )  # fmt: skip
    ax.set_xlim(span(values[both, x]))
    return values[both, y]
