"""What pictures share: measurements, axes with labels, single rows, colours, curves and panels."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d, median_filter

from deconflow._types import AnyArray, Array
from deconflow.checks import check_integer, refuse_if
from deconflow.core import EVERYTHING, has_noise, observe, refuse
from deconflow.estimators import FittedDensity, Posterior, column_numbers
from deconflow.models import measured_values

DRAWS = 20_000
POSTERIOR_DRAWS, PROPOSALS = 2000, 4000
#: Colours of single rows, after Okabe and Ito (2008): neighbours differ in lightness, too.
COLOURS = ("#d55e00", "#56b4e9", "#00714f", "#e69f00", "#6b3000", "#cc79a7")
#: Markers of single rows: one more than colours, so that pairs of both repeat late.
MARKERS = ("X", "o", "s", "^", "D", "P", "v")
POINTS = 400
#: Values beyond this are not drawn: their squares overflow.
LARGEST = 1e100
#: An axis leaves out the first share of the values at each end; of a tail that is longer than this
#: many widths of its half, more, but no more than the last share.
OUTERMOST, LONGEST_TAIL, MOST_OF_A_TAIL = 0.002, 6.0, 0.025
#: An axis reaches at most this many widths of the truth beyond it, to show measurements; and some
#: padding.
BEYOND, PAD = 1.5, 0.04
FEWEST_BINS, MOST_BINS = 8, 200
#: Colours of measurements, of the density of the truth, and of simulated measurements.
#:
#: They differ in lightness, too, for greyscale and for colour-blind readers.
DATA, DENSITY, SECOND = "#999999", "#004488", "#d55e00"
#: Opacity of histograms of measurements and of bands of densities.
OF_BARS, OF_BANDS = 0.4, 0.38
#: Dashes of curves that are compared with others.
AGAIN = (0, (4, 1.5))
#: With more points than this, a vector picture stores them as an image, to open quickly.
MOST_AS_VECTORS = 5000
POINTS_OF_BANDS, LEVEL = 200, 0.9
#: Points of the median filter, and width of the filter that smooths its result.
AROUND, SMOOTHING = 9, 2.0
#: Share of the peak that counts as zero.
NOTHING = 1e-9
#: Fewer values are drawn one by one: bars would be spikes.
FEW = 30


@dataclass(frozen=True)
class Axis:
    """The axis of a column: its number, its label, and its ends."""

    number: int
    label: str
    low: float
    high: float

    def points(self, count: int = POINTS) -> Array:
        """Return evenly spaced values."""
        return np.linspace(self.low, self.high, count)

    def histogram(self, values: Array, like: Array | None = None) -> tuple[Array, Array]:
        """Return densities and edges of bins, which suit the values, or the values ``like``.

        Values beyond the ends count as there. Bins are around each number, if all of them are
        whole. The width of others decreases with their number as that of Scott (1979), but for the
        narrowest peak, and is finer, because the eye smooths by itself.
        """
        like = values if like is None else like
        if are_whole(like) and self.high - self.low < MOST_BINS:
            edges = np.arange(np.floor(self.low + 0.5) - 0.5, self.high + 1.0)
        else:
            inside = like[(like >= self.low) & (like <= self.high)]
            width = 2.0 * _narrowest_spread(inside) * max(1, len(inside)) ** (-1 / 3)
            bins = (self.high - self.low) / width if width > 0 else 5 * FEWEST_BINS
            edges = self.points(int(np.clip(np.ceil(bins), FEWEST_BINS, MOST_BINS)) + 1)
        counts = np.histogram(values, edges)[0]
        return counts / (max(1, np.isfinite(values).sum()) * (edges[1] - edges[0])), edges

    def curve_of_draws(self, draws: Array) -> tuple[Array, Array]:
        """Return values along the axis, and a smooth density of draws there."""
        x = self.points()
        step = x[1] - x[0]
        counts = np.histogram(draws, POINTS, (self.low - step / 2, self.high + step / 2))[0]
        width = 0.9 * _narrowest_spread(draws) * len(draws) ** -0.2
        smooth = gaussian_filter1d(counts.astype(float), max(1.0, width / step), mode="constant")
        return x, smooth / (len(draws) * step)

    def along_x(self, ax: Any) -> None:
        """Make it the horizontal axis of a panel of densities, whose heights need no numbers."""
        ax.set(xlabel=self.label, xlim=(self.low, self.high), ylim=(0, None), yticks=[])


def span(truth: ArrayLike, other: ArrayLike = ()) -> tuple[float, float]:
    """Return ends that hold almost all of the truth, and the other values near it."""
    low, high = _span_of(truth)
    if np.size(other):
        beyond = BEYOND * (high - low) or np.inf
        lowest, highest = _span_of(other)
        low, high = (
            min(low, max(lowest, low - beyond)),
            max(high, min(highest, high + beyond)),
        )
    pad = PAD * (high - low) or 0.5
    return float(low - pad), float(high + pad)


def are_whole(values: Array) -> bool:
    """Whether all values are whole numbers, as counts are, up to rounding."""
    seen = values[np.isfinite(values)]
    return len(seen) > 0 and bool((np.abs(seen - np.round(seen)) < 1e-4).all())


def _span_of(values: ArrayLike) -> tuple[float, float]:
    """Range of most values: without the far parts of long tails, which would hide the rest."""
    seen = np.asarray(values, dtype=float)
    seen = seen[np.abs(seen) <= LARGEST]
    shares = np.array([OUTERMOST, MOST_OF_A_TAIL, 0.16, 0.5])
    least, low, below, middle = np.quantile(seen, shares)
    most, high, above, _ = np.quantile(seen, 1 - shares)
    return (
        float(np.clip(below - LONGEST_TAIL * (middle - below), least, low)),
        float(np.clip(above + LONGEST_TAIL * (above - middle), high, most)),
    )


def _narrowest_spread(values: Array) -> float:
    """Standard deviation of the Gaussian whose densest quarter is as wide as that of the values.

    With several peaks it is that of a narrow one: the spread of all would blur it.
    """
    ranked = np.sort(values)
    count = len(ranked) // 4
    if count < 2:
        return float(values.std()) if len(values) else 0.0
    return float((ranked[count:] - ranked[:-count]).min() / 0.637)


@dataclass(frozen=True)
class MarkedRow:
    """A row that is shown by itself: its name, measurement, error, posterior and style.

    ``limits`` are -1 or 1 where only an upper or a lower limit is known, which has no error bar.
    """

    name: str
    w: Array
    errors: Array
    limits: Array
    posterior: Posterior
    colour: str
    marker: str

    def draw_value(self, ax: Any, x: int, y: int | None = None, **style: Any) -> None:
        """Draw the measurement with its error bar: one column, low in the panel, or two."""
        marker = {-1: "<", 1: ">"}.get(int(self.limits[x]), self.marker)
        if y is None:
            height, bar, style = 0.06, None, {"transform": ax.get_xaxis_transform(), **style}
        else:
            height, bar = self.w[y], self.errors[y]
        ax.errorbar(
            self.w[x], height, xerr=self.errors[x], yerr=bar, fmt=marker, color=self.colour,
            mec="white", mew=0.6, ms=8, elinewidth=1.4, capsize=2.5, zorder=5, **style,
        )  # fmt: skip


def measurements(
    model: Any, w: Any, noise: Any, given: Any, limits: Any, *, noise_needed: bool = True
) -> tuple[Array, Any]:
    """Check measurements, NaN where there are none, and their noise, if it is given or needed."""
    facts = {"given": given, "limits": limits}
    facts = {name: each for name, each in facts.items() if each is not None}
    if not (noise_needed or given is not None or has_noise(w, noise)):
        return _drawable(measured_values(model.fit_, observe(w, 0.0, **facts))[0]), None
    data = model._rows(w, noise, facts)
    return _drawable(data.measured()), data


def to_simulate(
    model: Any, kind: str, w: Any, noise: Any, given: Any, limits: Any, most: int
) -> tuple[Array, Any]:
    """Check measurements that can be simulated again, and return some of them."""
    what = f"a picture of kind {kind}"
    refuse(what, EVERYTHING - {"covariates", "selected"}, model.fit_.traits)
    values, data = measurements(model, w, noise, given, limits)
    refuse_if(
        data.noise.flags is not None,
        f"Expected rows without limits for {what}, because it is not known how limits come "
        "about; got some. Leave those rows out.",
    )
    some = some_of(len(data), most)
    return values[some], data[some]


def marked_rows(
    model: Any, rows: Any, row_names: Any, values: Array, data: Any, seed: int
) -> list[MarkedRow]:
    """Return rows to show by themselves, with their posteriors, colours and markers."""
    chosen = np.atleast_1d(np.asarray(rows, dtype=object)).tolist()
    for number in chosen:
        check_integer("rows=", number, 0)
        refuse_if(
            number >= len(values),
            f"Expected rows= below {len(values)}, the number of rows; got {number}.",
        )
    part = data[[int(number) for number in chosen]]
    posterior = model.density_.posterior(part, POSTERIOR_DRAWS, PROPOSALS, seed)
    flags = np.zeros(part.w.shape) if part.noise.flags is None else np.asarray(part.noise.flags)
    sd = np.sqrt(np.broadcast_to(np.asarray(part.noise.variance()), flags.shape))
    errors = np.where(np.isfinite(sd) & (flags == 0), sd, 0.0)  # some noise has no variance
    return [
        MarkedRow(
            f"row {name}", values[number], errors[i], flags[i], posterior[i],
            COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)],
        )
        for i, (number, name) in enumerate(zip(chosen, row_names or chosen, strict=True))
    ]  # fmt: skip


def axes_of(
    model: Any,
    columns: Any,
    names: Sequence[str] | None,
    truth: Array,
    values: Array | None = None,
    *,
    measured: bool = False,
) -> list[Axis]:
    """Return an axis for each column to show, with room for true values and measurements.

    They are ``measured`` columns where a projection makes these others than the true ones. Labels
    are as ``x`` or ``x [mas]``; ``names`` come first.
    """
    other = measured and "projected" in model.fit_.traits
    fit = model.fit_
    own = fit.labels.measured(truth.shape[1]) if other else list(fit.names)
    units = (fit.labels.units if other else fit.units) or []
    labels = own
    if names is not None:
        refuse_if(
            isinstance(names, str) or len(names) != len(own),
            f"Expected {len(own)} names; got {names!r}.",
        )
        labels = [str(name) for name in names]
    elif len(units) == len(own):
        pairs = zip(own, units, strict=True)
        labels = [f"{name} [{unit}]" if unit else name for name, unit in pairs]
    numbers = range(len(labels))
    if columns is not None:
        numbers = column_numbers(columns, [bare(label) for label in labels], "columns=").tolist()
    return [
        Axis(d, typeset(labels[d]), *span(truth[:, d], () if values is None else values[:, d]))
        for d in numbers
    ]


def some_of(count: int, most: int) -> Any:
    """Return numbers of some rows, taken by chance, in their order."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _drawable(values: Array) -> Array:
    """Check that every column has a value to draw."""
    empty = np.flatnonzero(~(np.abs(values) <= LARGEST).any(0))
    if len(empty):
        raise ValueError(
            f"Expected values to draw in every column of w, up to {LARGEST:g}; got none in column "
            f"{empty[0]}."
        )
    return values


def bare(label: str) -> str:
    """Return a label without its unit.

    Examples
    --------
    >>> bare("pmra [mas.yr**-1]")
    'pmra'
    """
    return _parts(label)[0]


def typeset(label: str) -> str:
    r"""Escape a name for matplotlib, and typeset its unit if astropy can read it.

    Examples
    --------
    >>> typeset("pmra [mas.yr**-1]")
    'pmra [$\\mathrm{mas\\,yr^{-1}}$]'
    >>> typeset("price [$]")
    'price [\\$]'
    """
    name, unit = (part.replace("$", r"\$") for part in _parts(label))
    if not unit:
        return name
    try:
        from astropy.units import Unit
        from matplotlib.mathtext import MathTextParser

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated ways to write units can be read, too
            text = Unit(unit).to_string("latex_inline")
        MathTextParser("path").parse(text)
    except (ModuleNotFoundError, ValueError, TypeError):
        text = unit
    return f"{name} [{text}]"


def _parts(label: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.+?) \[(.+)\]", label, re.DOTALL)
    return (found[1], found[2]) if found else (label, "")


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
        band = density.band(axis.points(POINTS_OF_BANDS), column=axis.number, level=LEVEL)
        if density.dim > 1 and not density.exact(gaussian_noise=True):  # points are estimates
            value, lower, upper = map(_steady, (band.value, band.lower, band.upper))
            band = replace(band, value=value, lower=lower, upper=upper)
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
    if hasattr(part, "mixture"):  # in closed form
        x = axis.points()
        y = part.mixture[0].pdf(0, x)
    else:  # exact ones give any number of draws
        exact = np.isinf(part.effective_sample_size).all()
        draws = part.sample(DRAWS, random_state=0) if exact else part.samples
        x, y = axis.curve_of_draws(draws[0, :, 0])
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
    refuse_if(
        given.size != n_rows * n_columns,
        f"Expected {n_rows * n_columns} axes as ax; got {given.size}.",
    )
    return given.reshape(n_rows, n_columns)


def room_for_legend(ax: Any) -> None:
    """Put a legend above the curves of a panel."""
    lines = -(-len(ax.get_legend_handles_labels()[1]) // 2)
    ax.set_ylim(0, (1.1 + 0.13 * lines) * ax.get_ylim()[1])
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", ncols=2, columnspacing=1.2,
        handlelength=1.6, borderaxespad=0.2,
    )  # fmt: skip
