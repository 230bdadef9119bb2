"""One dimension at a time, with a band that says how far the density may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d, median_filter

from deconflow._types import Array
from deconflow.estimators import Band, FittedDensity
from deconflow.plots.style import (
    BINS,
    DATA,
    DENSITY,
    columns,
    labels,
    refuse_no_model,
    span,
    wrapped,
)

DRAWS, POINTS = 20_000, 400
POINTS_OF_BANDS, LEVEL = 200, 0.9
AROUND, SMOOTHING = 9, 2.0
"""Points of which a median is taken, and the width of what smooths it."""
NOTHING = 1e-9
"""Share of the peak that counts as zero."""


def marginals(
    model: Any,
    w: ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
) -> NDArray[Any]:
    """Draw the density of each dimension, with its 90 % band.

    Parameters
    ----------
    model
        A fitted estimator.
    w
        ``(N, D)`` measurements to show beside it, NaN where missing.
    names
        Labels of the dimensions.
    axes
        ``D`` axes to draw on; None for a new figure.
    random_state
        Seed of the draws, for models that are not mixtures.

    Returns
    -------
    array of Axes
        ``(D,)``. The band is pointwise, that of :meth:`deconflow.FittedDensity.band`; a model
        without replicates has none.
    """
    refuse_no_model(model)
    draws = model.sample(DRAWS, random_state=random_state)
    dim = draws.shape[1]
    words = labels(names, dim)
    noisy = None if w is None else columns(w, "w", dim)
    row = wrapped(axes, dim)
    density = model.density_
    for d, ax in enumerate(row):
        ends = _draw_measured(ax, None if noisy is None else noisy[:, d], draws[:, d])
        band = band_of_column(density, d, ends)
        if band is None:
            x = np.linspace(*ends, POINTS)
            value = np.exp(density.marginal([d]).log_prob(x[:, None]))
            ax.plot(x, value, color=DENSITY, lw=1.8, label="deconvolved")
        else:
            ax.plot(band.points, band.value, color=DENSITY, lw=1.8, label="deconvolved")
            draw_band(ax, band)
        ax.set(xlabel=words[d], xlim=ends, ylim=(0, None), yticks=[])
    row[0].set_ylabel("density")
    row[-1].set_ylim(0, 1.25 * row[-1].get_ylim()[1])  # room for the legend
    row[-1].legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
    return row


def band_of_column(density: FittedDensity, d: int, ends: tuple[float, float]) -> Band | None:
    """Return the band of a dimension over a range; None if the density has no replicates."""
    if density.replicates is None:
        return None
    x = np.linspace(*ends, POINTS_OF_BANDS)
    band = density.band(x, column=d, level=LEVEL)
    if density.dim == 1 or density.exact(gaussian_noise=True):
        return band
    value, lower, upper = (_steady(curve) for curve in (band.value, band.lower, band.upper))
    return replace(band, value=value, lower=lower, upper=upper)


def _steady(curve: Array) -> Array:
    """Take the chance out of a curve whose points are estimates, as marginals of flows are.

    Not across the ends of where it is zero: a truth with a bound has none beyond.
    """
    steady, inside = np.zeros_like(curve), np.flatnonzero(curve > NOTHING * curve.max())
    some = slice(inside[0], inside[-1] + 1)
    filtered = median_filter(curve[some], AROUND, mode="nearest")
    steady[some] = gaussian_filter1d(filtered, SMOOTHING, mode="nearest")
    return steady


def draw_band(ax: Any, band: Band) -> None:
    """Shade what lies between the ends of a band, and name it for a legend."""
    style = {"color": DENSITY, "alpha": 0.25, "lw": 0, "label": band_words(band.level)}
    ax.fill_between(band.points, band.lower, band.upper, **style)


def band_words(level: float = LEVEL) -> str:
    """Say what a shaded band is."""
    return f"{100 * level:g} % band"


def _draw_measured(ax: Any, w: Array | None, draws: Array) -> tuple[float, float]:
    """Draw a histogram of what was measured, if it is known, and return the range to show."""
    if w is None:
        return span(draws)
    ends = span(draws, w)
    style = {"density": True, "color": DATA, "alpha": 0.45, "label": "measured"}
    ax.hist(w, bins=BINS, range=ends, **style)
    return ends
