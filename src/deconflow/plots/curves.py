"""What stands along the axis of one column: densities, posteriors, what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d, median_filter

from deconflow._types import Array
from deconflow.estimators import Band, FittedDensity, Posterior
from deconflow.plots.axis import Axis, are_whole
from deconflow.plots.style import AGAIN, DATA, DENSITY, OF_BANDS, OF_BARS, SECOND

POINTS_OF_BANDS, LEVEL = 200, 0.9
DRAWS = 20_000
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
    style = {"color": DATA, "alpha": OF_BARS, "lw": 0, "zorder": 0.5}
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
    part: Any = density.marginal([axis.number])
    if len(getattr(part, "atoms", ())):
        draw_atoms(ax, part.atoms, part.atom_weights, label, style["color"])


def draw_atoms(ax: Any, atoms: Array, shares: Array, label: str, colour: str) -> None:
    """Draw atoms ``(A, 1)`` as lines, and say how much of the truth sits at each."""
    for atom, share in zip(atoms[:, 0], shares, strict=True):
        words = f"{label}: {100 * share:.0f} % at {atom:g}"
        ax.axvline(atom, ymax=0.7, color=colour, lw=1.4, ls="-.", label=words, zorder=2)


def draw_posterior(
    ax: Any, posterior: Posterior, axis: Axis, colour: str, label: str = ""
) -> float:
    """Draw the density of a single row's posterior, with its atoms; return how high it is.

    Posteriors in closed form give it exactly, others by smoothed draws.
    """
    part: Any = posterior.marginal([axis.number])
    share = 1.0
    if hasattr(part, "continuous"):
        shares = part.probability_of_atoms[0]
        draw_atoms(ax, part._atoms, shares, label or "posterior", colour)
        part, share = part.continuous, 1.0 - shares.sum()
    x, y = _posterior_curve(part, axis)
    ax.plot(x, share * y, color=colour, lw=1.6, zorder=3, label=label or None)
    ax.fill_between(x, 0, share * y, color=colour, alpha=0.12, lw=0, zorder=1)
    return float(share * y.max())


def draw_again(ax: Any, values: Array, measured: Array, axis: Axis, label: str) -> None:
    """Draw simulated measurements: a curve, or bins where only whole numbers are measured."""
    style = {"color": SECOND, "lw": 1.8, "ls": AGAIN, "zorder": 3, "label": label}
    if are_whole(measured):
        ax.stairs(*axis.histogram(values, measured), baseline=None, **style)
    else:
        ax.plot(*axis.curve_of_draws(values[np.isfinite(values)]), **style)


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
    style = {"color": DENSITY, "alpha": OF_BANDS, "lw": 0, "label": band_words(band.level)}
    ax.fill_between(band.points, band.lower, band.upper, zorder=1.5, **style)


def band_words(level: float = LEVEL) -> str:
    """Say what a shaded band is."""
    return f"{100 * level:g} % band"


def _posterior_curve(posterior: Any, axis: Axis) -> tuple[Array, Array]:
    """Return points along an axis, and the density of a posterior of one value there."""
    if hasattr(posterior, "mixture"):
        x = axis.points()
        return x, axis.on_paper(x, posterior.mixture[0].pdf(0, x))
    exact = np.isinf(posterior.effective_sample_size).all()  # gives any number of draws
    draws = posterior.sample(DRAWS, random_state=0) if exact else posterior.samples
    return axis.curve_of_draws(draws[0, :, 0])


def _steady(curve: Array) -> Array:
    """Take the chance out of a curve whose points are estimates, as marginals of flows are.

    Not across the ends of where it is zero: a truth with a bound has none beyond.
    """
    steady, inside = np.zeros_like(curve), np.flatnonzero(curve > NOTHING * curve.max())
    some = slice(inside[0], inside[-1] + 1)
    filtered = median_filter(curve[some], AROUND, mode="nearest")
    steady[some] = gaussian_filter1d(filtered, SMOOTHING, mode="nearest")
    return steady
