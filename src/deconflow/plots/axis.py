"""The axis of one column: its ends, its bins, and curves along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d

from deconflow._types import Array

Ends = tuple[float, float]
POINTS = 400
LARGEST = 1e100
"""Values beyond this are not drawn: squares of them are no numbers."""
OUTERMOST, SPREADS = 0.002, 3.0
"""An axis leaves out this share at each end, and of a long tail what is this many spreads out."""
CUT_OF_TRUTH, CUT_OF_DATA = 0.005, 0.025
"""But of a tail never more than this share of the truth, or of measurements."""
BEYOND = 1.5
"""Widths of the truth that an axis goes beyond it at most, to show measurements."""
PAD = 0.04
FEWEST_BINS, MOST_BINS = 8, 100


@dataclass(frozen=True)
class Axis:
    """The axis of a column.

    Attributes
    ----------
    number : int
        Which column it is of.
    label : str
        What is written beside it.
    ends : tuple of float
        Lower and upper end.
    log : bool
        Whether it is logarithmic. Densities along it are per decade, then.
    inverted : bool
        Whether it runs backwards.
    bins : int or None
        Number of bins of histograms; None for one that suits the values.
    fixed : tuple of bool
        Whether the lower and the upper end were said, and must stay.
    """

    number: int
    label: str
    ends: Ends
    log: bool = False
    inverted: bool = False
    bins: int | None = None
    fixed: tuple[bool, bool] = (False, False)

    def points(self, count: int = POINTS) -> Array:
        """Return values that are evenly spaced on paper."""
        return (np.geomspace if self.log else np.linspace)(*self.ends, count)

    def on_paper(self, x: Array, density: Array) -> Array:
        """Turn densities per unit of the column into those per unit of the axis."""
        return density * x * np.log(10) if self.log else density

    def histogram(self, values: Array) -> tuple[Array, Array]:
        """Return densities and edges of bins; what lies beyond the ends counts as there."""
        seen = _coordinates(values, self.log)
        low, high = _coordinates(np.asarray(self.ends), self.log)
        inside = seen[(seen >= low) & (seen <= high)]
        edges = np.linspace(low, high, (self.bins or _suitable_bins(inside, high - low)) + 1)
        counts = np.histogram(inside, edges)[0]
        heights = counts / (max(1, np.isfinite(values).sum()) * (edges[1] - edges[0]))
        return heights, 10**edges if self.log else edges

    def curve_of_draws(self, draws: Array) -> tuple[Array, Array]:
        """Return values along the axis, and a smooth density of draws there."""
        seen = _coordinates(draws, self.log)
        low, high = _coordinates(np.asarray(self.ends), self.log)
        step = (high - low) / (POINTS - 1)
        counts = np.histogram(seen, POINTS, (low - step / 2, high + step / 2))[0]
        width = 0.9 * _narrowest_spread(seen) * len(seen) ** -0.2
        smooth = gaussian_filter1d(counts.astype(float), max(1.0, width / step), mode="constant")
        return self.points(), smooth / (max(1, len(draws)) * step)

    def reaching(self, values: Array) -> Axis:
        """Return it with ends that hold these values, too, unless its ends were said."""
        low, high = self.ends
        seen = 10 ** _coordinates(values, True) if self.log else _coordinates(values, False)
        if len(seen):
            low = low if self.fixed[0] else min(low, float(seen.min()))
            high = high if self.fixed[1] else max(high, float(seen.max()))
        return replace(self, ends=(low, high))

    def along_x(self, ax: Any) -> None:
        """Make it the horizontal axis of a panel."""
        ax.set(xscale="log" if self.log else "linear", xlabel=self.label, xlim=self._limits())

    def along_y(self, ax: Any) -> None:
        """Make it the vertical axis of a panel."""
        ax.set(yscale="log" if self.log else "linear", ylabel=self.label, ylim=self._limits())

    @property
    def density_label(self) -> str:
        """What to call the height of a curve along it."""
        return "density per decade" if self.log else "density"

    def _limits(self) -> Ends:
        return self.ends[::-1] if self.inverted else self.ends


def ends_of(
    name: str, values: Sequence[Array], low: float | None, high: float | None, *, log: bool
) -> Ends:
    """Find ends that hold almost all of the truth, given first, and of other values near it.

    Ends that are given stay.
    """
    seen = [_coordinates(each, log) for each in values]
    if not seen or not len(seen[0]):
        raise ValueError(
            f"Expected values above 0 in column {name!r} for log=; got none."
            if log
            else f"Expected values to draw in column {name!r}; got none."
        )
    found = span(*seen)
    found = (10 ** found[0], 10 ** found[1]) if log else found
    ends = (found[0] if low is None else low, found[1] if high is None else high)
    if not ends[0] < ends[1]:
        raise ValueError(
            f"Expected range= of {name!r} that holds some values, which lie between "
            f"{found[0]:g} and {found[1]:g}; got {'a lower' if high is None else 'an upper'} end "
            f"of {low if high is None else high:g}."
        )
    return ends


def span(truth: ArrayLike, *others: ArrayLike) -> Ends:
    """Range that holds almost all of the truth, and of other values what is near it."""
    low, high = _span_of(truth, CUT_OF_TRUTH)
    beyond = BEYOND * (high - low) or np.inf
    for other in others:
        if len(np.asarray(other)):
            theirs = _span_of(other, CUT_OF_DATA)
            low, high = (
                min(low, max(theirs[0], low - beyond)),
                max(high, min(theirs[1], high + beyond)),
            )
    pad = PAD * (high - low) or 0.5
    return float(low - pad), float(high + pad)


def _span_of(values: ArrayLike, cut: float) -> Ends:
    """Range of most values: without the far parts of long tails, which would hide the rest."""
    seen = np.asarray(values, dtype=float)
    seen = seen[np.abs(seen) <= LARGEST]
    shares = [OUTERMOST, cut, 0.16, 0.5, 0.84, 1 - cut, 1 - OUTERMOST]
    least, low, below, middle, above, high, most = np.quantile(seen, shares)
    return (
        float(np.clip(below - SPREADS * (middle - below), least, low)),
        float(np.clip(above + SPREADS * (above - middle), high, most)),
    )


def _coordinates(values: Array, log: bool) -> Array:
    """Finite values as they lie on paper; those that a logarithm has none of are left out."""
    seen = np.asarray(values, dtype=float)
    seen = seen[np.abs(seen) <= LARGEST]
    return np.log10(seen[seen > 0]) if log else seen


def _suitable_bins(values: Array, width: float) -> int:
    """Number of bins, finer than by the rule of Freedman and Diaconis (1981): the eye smooths."""
    if len(values) < 2:
        return FEWEST_BINS
    low, high = np.quantile(values, [0.25, 0.75])
    each = 1.2 * (high - low) * len(values) ** (-1 / 3)
    return int(np.clip(np.ceil(width / each), FEWEST_BINS, MOST_BINS)) if each > 0 else 40


def _narrowest_spread(values: Array) -> float:
    """Standard deviation of the Gaussian whose densest quarter is as wide as that of the values.

    That of a narrow peak, where there are several: the spread of all would blur it.
    """
    ranked = np.sort(values)
    count = len(ranked) // 4
    if count < 2:
        return float(values.std()) if len(values) else 0.0
    return float((ranked[count:] - ranked[:-count]).min() / 0.637)
