"""The axis of one column: its ends, its bins, and curves along it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d

from deconflow._types import Array

POINTS = 400
#: Values beyond this are not drawn: their squares overflow.
LARGEST = 1e100
#: An axis leaves out the first share of the values at each end; of a tail that is longer than this
#: many widths of its half, more, but no more than the last share.
OUTERMOST, LONGEST_TAIL, MOST_OF_A_TAIL = 0.002, 6.0, 0.025
#: An axis reaches at most this many widths of the truth beyond it, to show measurements.
BEYOND = 1.5
PAD = 0.04
FEWEST_BINS, MOST_BINS = 8, 200


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

        Values beyond the ends count as there.
        """
        edges = self._edges(values if like is None else like)
        counts = np.histogram(values, edges)[0]
        return counts / (max(1, np.isfinite(values).sum()) * (edges[1] - edges[0])), edges

    def _edges(self, values: Array) -> Array:
        """Return edges of bins: around each number, if all of them are whole.

        The width of others decreases with their number as that of Scott (1979), but for the
        narrowest peak, and is finer, because the eye smooths by itself.
        """
        if are_whole(values) and self.high - self.low < MOST_BINS:
            return np.arange(np.floor(self.low + 0.5) - 0.5, self.high + 1.0)
        inside = values[(values >= self.low) & (values <= self.high)]
        width = 2.0 * _narrowest_spread(inside) * max(1, len(inside)) ** (-1 / 3)
        bins = (self.high - self.low) / width if width > 0 else 5 * FEWEST_BINS
        return self.points(int(np.clip(np.ceil(bins), FEWEST_BINS, MOST_BINS)) + 1)

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
