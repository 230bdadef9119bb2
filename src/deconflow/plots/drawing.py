"""What pictures share: colours, panels, and curves along the axis of one column."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter1d, median_filter

from deconflow._types import AnyArray, Array
from deconflow.estimators import Band, FittedDensity, Posterior
from deconflow.plots.inputs import DRAWS, Axis, are_whole

#: Colours of measurements, of the density of the truth, and of simulated measurements.
#:
#: They differ in lightness, too, for greyscale and for colour-blind readers.
DATA, DENSITY, SECOND = "#999999", "#004488", "#d55e00"
#: Opacity of histograms of measurements and of bands of densities.
OF_BARS, OF_BANDS = 0.4, 0.38
#: Dashes of curves that are compared with others.
AGAIN = (0, (4, 1.5))
MOST_IN_A_ROW = 3
#: With more points than this, a vector picture stores them as an image, to open quickly.
MOST_AS_VECTORS = 5000
POINTS_OF_BANDS, LEVEL = 200, 0.9
#: Points of the median filter, and width of the filter that smooths its result.
AROUND, SMOOTHING = 9, 2.0
#: Share of the peak that counts as zero.
NOTHING = 1e-9
#: Fewer values are drawn one by one: bars would be spikes.
FEW = 30


def draw_measured(ax: Any, values: Array, axis: Axis) -> None:
    """Draw a histogram of measurements, or a tick for each if there are few."""
    seen = values[np.isfinite(values)]
    if len(seen) < FEW:
        low = np.full(len(seen), 0.03)  # in shares of the panel
        ax.plot(
            seen, low, "|", label="measured", color=DATA, ms=9, mew=1.4,
            transform=ax.get_xaxis_transform(),
        )  # fmt: skip
        return
    ax.stairs(
        *axis.histogram(seen), fill=True, label="measured", color=DATA, alpha=OF_BARS, lw=0,
        zorder=0.5,
    )  # fmt: skip


def draw_density(
    ax: Any, density: FittedDensity, axis: Axis, label: str = "deconvolved", **style: Any
) -> None:
    """Draw the density of a column with its band, and its atoms as lines."""
    style = {"color": DENSITY, "lw": 1.8, "zorder": 2.5, **style}
    part: Any = density.marginal([axis.number])
    if density.replicates is None:
        x = axis.points()
        ax.plot(x, np.exp(part.log_prob(x[:, None])), label=label, **style)
    else:
        band = _band_of(density, axis)
        ax.plot(band.points, band.value, label=label, **style)
        ax.fill_between(
            band.points, band.lower, band.upper, zorder=1.5, color=DENSITY, alpha=OF_BANDS, lw=0,
            label=f"{100 * LEVEL:g} % band",
        )  # fmt: skip
    if len(getattr(part, "atoms", ())):
        _draw_atoms(ax, part.atoms, part.atom_weights, label, style["color"])


def draw_posterior(
    ax: Any, posterior: Posterior, axis: Axis, colour: str, label: str | None = None
) -> float:
    """Draw the density of a single row's posterior, with its atoms; return its height."""
    part: Any = posterior.marginal([axis.number])
    share = 1.0
    if hasattr(part, "continuous"):
        shares = part.probability_of_atoms[0]
        _draw_atoms(ax, part.atoms, shares, "posterior", colour)
        part, share = part.continuous, 1.0 - shares.sum()
    x, y = _posterior_curve(part, axis)
    ax.plot(x, share * y, color=colour, lw=1.6, zorder=3, label=label)
    ax.fill_between(x, 0, share * y, color=colour, alpha=0.12, lw=0, zorder=1)
    return float(share * y.max())


def draw_again(ax: Any, values: Array, measured: Array, axis: Axis, label: str) -> None:
    """Draw simulated measurements: a curve, or bins where only whole numbers are measured."""
    style = {"color": SECOND, "lw": 1.8, "ls": AGAIN, "zorder": 3, "label": label}
    if are_whole(measured):
        ax.stairs(*axis.histogram(values, measured), baseline=None, **style)
    else:
        ax.plot(*axis.curve_of_draws(values[np.isfinite(values)]), **style)


def _draw_atoms(ax: Any, atoms: Array, shares: Array, label: str, colour: str) -> None:
    """Draw atoms ``(A, 1)`` as lines, with their shares in the legend."""
    for atom, share in zip(atoms[:, 0], shares, strict=True):
        words = f"{label}: {100 * share:.0f} % at {atom:g}"
        ax.axvline(atom, ymax=0.7, color=colour, lw=1.4, ls="-.", label=words, zorder=2)


def _band_of(density: FittedDensity, axis: Axis) -> Band:
    """Return the band of a column; points that are estimates are smoothed."""
    band = density.band(axis.points(POINTS_OF_BANDS), column=axis.number, level=LEVEL)
    if density.dim == 1 or density.exact(gaussian_noise=True):
        return band
    value, lower, upper = map(_steady, (band.value, band.lower, band.upper))
    return replace(band, value=value, lower=lower, upper=upper)


def _posterior_curve(posterior: Any, axis: Axis) -> tuple[Array, Array]:
    """Return points along an axis, and the density there: in closed form, or of smoothed draws."""
    if hasattr(posterior, "mixture"):
        x = axis.points()
        return x, posterior.mixture[0].pdf(0, x)
    exact = np.isinf(posterior.effective_sample_size).all()  # gives any number of draws
    draws = posterior.sample(DRAWS, random_state=0) if exact else posterior.samples
    return axis.curve_of_draws(draws[0, :, 0])


def _steady(curve: Array) -> Array:
    """Take the chance out of a curve whose points are estimates, as marginals of flows are.

    It stops where the curve is zero: a truth with a bound has nothing beyond.
    """
    steady, inside = np.zeros_like(curve), np.flatnonzero(curve > NOTHING * curve.max())
    some = slice(inside[0], inside[-1] + 1)
    filtered = median_filter(curve[some], AROUND, mode="nearest")
    steady[some] = gaussian_filter1d(filtered, SMOOTHING, mode="nearest")
    return steady


def panels(
    ax: Any,
    n_rows: int,
    n_columns: int,
    each: tuple[float, float],
    figure: dict[str, Any],
    **share: Any,
) -> AnyArray:
    """Return ``(n_rows, n_columns)`` axes: those given, or those of a new figure.

    Each panel of a new figure measures ``each`` inches, unless ``figure`` has a ``figsize``.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        size = (each[0] * n_columns, each[1] * n_rows)
        options = {"figsize": size, "layout": "constrained", "squeeze": False, **share, **figure}
        return plt.subplots(n_rows, n_columns, **options)[1]
    if figure:
        raise TypeError(f"Expected no {', '.join(figure)} with ax=, which has a figure.")
    given = np.asarray(ax, dtype=object)
    if given.size != n_rows * n_columns:
        raise ValueError(f"Expected {n_rows * n_columns} axes as ax; got {given.size}.")
    return given.reshape(n_rows, n_columns)


def wrapped(ax: Any, count: int, figure: dict[str, Any]) -> AnyArray:
    """Return ``(count,)`` axes: those given, or those of a new figure, a few in a row."""
    each = (4.8, 3.4) if count == 1 else (3.6, 2.9)
    n_columns = min(count, MOST_IN_A_ROW) if ax is None else count
    grid = panels(ax, -(-count // n_columns), n_columns, each, figure).ravel()
    for idle in grid[count:]:
        idle.set_axis_off()
    return grid[:count]


def room_for_legend(ax: Any) -> None:
    """Put a legend above the curves of a panel."""
    lines = -(-len(ax.get_legend_handles_labels()[1]) // 2)
    ax.set_ylim(0, (1.1 + 0.13 * lines) * ax.get_ylim()[1])
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", ncols=2, columnspacing=1.2,
        handlelength=1.6, borderaxespad=0.2,
    )  # fmt: skip
