"""What stands along the axis of one column: densities, posteriors, what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d, median_filter

from deconflow._types import Array
from deconflow.estimators import Band, FittedDensity, Posterior
from deconflow.plots.axis import Axis
from deconflow.plots.style import DATA, DENSITY

POINTS_OF_BANDS, LEVEL = 200, 0.9
AROUND, SMOOTHING = 9, 2.0
"""Points of which a median is taken, and the width of what smooths it."""
NOTHING = 1e-9
"""Share of the peak that counts as zero."""
FEW = 30
"""Values of which fewer are drawn one by one: bars of so few would be spikes."""


def draw_measured(ax: Any, values: Array, axis: Axis, label: str = "measured") -> None:
    """Draw a histogram of what was measured; of few values a tick for each."""
    seen = values[np.isfinite(values)]
    if len(seen) < FEW:
        style = {"color": DATA, "ms": 9, "mew": 1.4, "ls": "", "clip_on": True}
        below = ax.get_xaxis_transform()  # heights in shares of the panel
        ax.plot(seen, np.full(len(seen), 0.03), "|", transform=below, label=label, **style)
        return
    heights, edges = axis.histogram(seen)
    style = {"color": DATA, "alpha": 0.5, "lw": 0, "zorder": 0.5}
    ax.stairs(heights, edges, fill=True, label=label, **style)


def draw_density(
    ax: Any, density: FittedDensity, axis: Axis, label: str = "deconvolved", **style: Any
) -> None:
    """Draw the density of a column with its band, and its atoms as lines."""
    style = {"color": DENSITY, "lw": 1.8, "zorder": 2.5, **style}
    band = band_of_column(density, axis)
    if band is None:
        x = axis.points()
        value = np.exp(density.marginal([axis.number]).log_prob(x[:, None]))
        ax.plot(x, axis.on_paper(x, value), label=label, **style)
    else:
        ax.plot(band.points, band.value, label=label, **style)
        draw_band(ax, band)
    part = density.marginal([axis.number])
    for atom, share in zip(
        getattr(part, "atoms", ()), getattr(part, "atom_weights", ()), strict=True
    ):
        words = f"{100 * share:.0f} % at {atom[0]:g}"
        ax.axvline(atom[0], color=style["color"], lw=1.2, ls="-.", label=words, zorder=2)


def band_of_column(density: FittedDensity, axis: Axis) -> Band | None:
    """Return the band of a dimension along its axis; None if the density has no replicates."""
    if density.replicates is None:
        return None
    x = axis.points(POINTS_OF_BANDS)
    band = density.band(x, column=axis.number, level=LEVEL)
    curves = [axis.on_paper(x, curve) for curve in (band.value, band.lower, band.upper)]
    if density.dim > 1 and not density.exact(gaussian_noise=True):
        curves = [_steady(curve) for curve in curves]
    return replace(band, value=curves[0], lower=curves[1], upper=curves[2])


def draw_band(ax: Any, band: Band) -> None:
    """Shade what lies between the ends of a band, and name it for a legend."""
    style = {"color": DENSITY, "alpha": 0.25, "lw": 0, "label": band_words(band.level)}
    ax.fill_between(band.points, band.lower, band.upper, zorder=1.5, **style)


def band_words(level: float = LEVEL) -> str:
    """Say what a shaded band is."""
    return f"{100 * level:g} % band"


def posterior_curve(posterior: Posterior, axis: Axis) -> tuple[Array, Array]:
    """Return points along an axis, and the density of a single row's posterior there.

    Posteriors in closed form give it exactly, others by smoothed draws.
    """
    part: Any = posterior.marginal([axis.number])
    mixture = getattr(part, "mixture", None)
    if mixture is None:
        return axis.curve_of_draws(part.samples[0, :, 0])
    x = axis.points()
    return x, axis.on_paper(x, mixture[0].pdf(0, x))


def _steady(curve: Array) -> Array:
    """Take the chance out of a curve whose points are estimates, as marginals of flows are.

    Not across the ends of where it is zero: a truth with a bound has none beyond.
    """
    steady, inside = np.zeros_like(curve), np.flatnonzero(curve > NOTHING * curve.max())
    some = slice(inside[0], inside[-1] + 1)
    filtered = median_filter(curve[some], AROUND, mode="nearest")
    steady[some] = gaussian_filter1d(filtered, SMOOTHING, mode="nearest")
    return steady
