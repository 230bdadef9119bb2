"""How many of many rows are unusual, beside how many should be by chance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control

from deconflow._types import Array, IntArray
from deconflow.checks import as_floats, check_number, first_bad

THRESHOLDS = (0.001, 0.002, 0.005, 0.01)
#: So many rows should be below a threshold by chance, for their number to tell something.
EXPECTED = 10


@dataclass(frozen=True)
class UnusualRows:
    """How many of many rows are unusual, beside how many should be by chance.

    Attributes
    ----------
    threshold : float
        P-values up to this are counted.
    n_rows, count : int
        Rows with a p-value, and those of them that are counted.
    expected : float
        How many should be, if the model and the errors are right.
    smallest : float
        The smallest p-value.
    rows : array
        The numbers of the rows that have it; the first row of all is 0.
    q_values : array
        ``(N,)``: the share of false alarms among the rows up to each one's p-value, by Benjamini
        and Hochberg; NaN where there is no p-value.
    """

    threshold: float
    n_rows: int
    count: int
    expected: float
    smallest: float
    rows: IntArray
    q_values: Array

    def __str__(self) -> str:
        return _words(
            self.threshold,
            self.n_rows,
            self.count,
            self.smallest,
            int(self.rows[0]),
            len(self.rows),
        )


def unusual_rows(p: ArrayLike, threshold: float | None = None) -> UnusualRows:
    """Say how many rows are unusual, beside how many should be by chance.

    Parameters
    ----------
    p
        ``(N,)`` p-values, as those of ``model.p_values``; NaN for a row without one.
    threshold
        P-values up to this are counted; None for the smallest of 0.001, 0.002, 0.005 and 0.01 that
        ten rows should reach by chance, or 0.01 for fewer than a thousand rows.

    Examples
    --------
    >>> print(unusual_rows([0.5, 0.0001, 0.3]))
    p-values: 1 of 3 rows at 0.01 or below (0.03 expected if the model and the errors are right); \
smallest 0.0001, in row 1 (the first is 0)
    """
    p = as_floats(p, "p")
    used = ~np.isnan(p)
    if p.ndim != 1 or not used.any():
        raise ValueError(f"Expected one or more p-values of shape (N,); got shape {p.shape}.")
    position = first_bad((p < 0) | (p > 1))
    if position is not None:
        raise ValueError(
            f"Expected p-values between 0 and 1; got {p[position]:g} in row {position[0]}."
        )
    n_rows = int(used.sum())
    if threshold is None:
        threshold = _usual_threshold(n_rows)
    check_number("threshold", threshold, 0, 1)
    q_values = np.full(len(p), np.nan)
    q_values[used] = false_discovery_control(p[used])
    count = _count_up_to(threshold, p)
    smallest = float(p[used].min())
    rows = np.flatnonzero(p == smallest)
    return UnusualRows(threshold, n_rows, count, threshold * n_rows, smallest, rows, q_values)


@dataclass
class PValueCounts:
    """What :func:`unusual_rows` says of p-values that come in chunks, in a few numbers.

    Attributes
    ----------
    n_rows, n_used : int
        Rows, and those of them with a p-value.
    counts : tuple of int
        How many are at or below each of the thresholds to choose from.
    smallest : float
        The smallest p-value; 2 if there is none.
    first : int
        The first row that has it.
    n_smallest : int
        How many rows have it.
    """

    n_rows: int = 0
    n_used: int = 0
    counts: tuple[int, ...] = (0,) * len(THRESHOLDS)
    smallest: float = 2.0
    first: int = 0
    n_smallest: int = 0

    def add(self, p: Array) -> None:
        """Count the p-values ``(N,)`` of the next rows."""
        used = ~np.isnan(p)
        if used.any():
            smallest = float(p[used].min())
            rows = np.flatnonzero(p == smallest)
            if smallest < self.smallest:
                self.smallest, self.n_smallest = smallest, 0
                self.first = self.n_rows + int(rows[0])
            if smallest == self.smallest:
                self.n_smallest += len(rows)
        self.n_rows += len(p)
        self.n_used += int(used.sum())
        more = (_count_up_to(threshold, p) for threshold in THRESHOLDS)
        self.counts = tuple(a + b for a, b in zip(self.counts, more, strict=True))

    def __str__(self) -> str:
        threshold = _usual_threshold(self.n_used)
        count = self.counts[THRESHOLDS.index(threshold)]
        return _words(threshold, self.n_used, count, self.smallest, self.first, self.n_smallest)


def _usual_threshold(n_rows: int) -> float:
    """Return the smallest threshold that enough rows should reach by chance."""
    enough = [each for each in THRESHOLDS if each * n_rows >= EXPECTED]
    return enough[0] if enough else THRESHOLDS[-1]


def _count_up_to(threshold: float, p: Array) -> int:
    return int((p <= threshold * (1 + 1e-9)).sum())  # 10 / 5000 is 0.002, but for rounding


def _words(
    threshold: float, n_rows: int, count: int, smallest: float, first: int, n_smallest: int
) -> str:
    by_chance = threshold * n_rows
    expected = f"{by_chance:.0f}" if by_chance >= 10 else f"{by_chance:.2g}"
    others = f" and {n_smallest - 1} more" if n_smallest > 1 else ""
    return (
        f"p-values: {count} of {n_rows} rows at {threshold:g} or below "
        f"({expected} expected if the model and the errors are right); "
        f"smallest {smallest:.2g}, in row {first} (the first is 0){others}"
    )
