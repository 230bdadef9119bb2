"""What is found in rows before they are fitted, in a few numbers that chunks add to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from deconflow._types import Array
from deconflow.tables import Columns, Measurements

SUSPECTS = (-99.0, -999.0, -9999.0, -99999.0)
"""What many tables write for a missing value, and few measure."""


@dataclass
class Found:
    """Counts and moments of rows; of columns, ``(D,)`` each.

    Attributes
    ----------
    n_rows, used : int
        Rows, and how many of them can be used.
    reasons : Counter
        How many cannot be, by the reason.
    without_error : int
        How many values had no error, and count as missing.
    measured, mean, squares : array
        Number of values, their mean, and the sum of squares around it.
    lowest : array
        The smallest value.
    limits : array of int
        ``(2, D)``: upper and lower limits.
    suspects : array of int
        ``(D, S)``: how often each of :data:`SUSPECTS` occurs.
    weights : tuple or None
        Smallest and largest weight, and how many are zero, if rows have weights.
    median_errors : array or None
        Medians of the errors of measured values, of these rows or of a sample of them.
    """

    n_rows: int
    used: int
    reasons: Counter[str]
    without_error: int
    measured: Array
    mean: Array
    squares: Array
    lowest: Array
    limits: Array
    suspects: Array
    weights: tuple[float, float, int] | None = None
    median_errors: Array | None = None

    @classmethod
    def of(cls, rows: Measurements) -> Self:
        """Look at rows."""
        seen = ~np.isnan(rows.w)
        measured = seen.sum(0)
        w = np.where(seen, rows.w, 0.0)
        mean = w.sum(0) / np.maximum(measured, 1)
        flags = np.zeros((1, rows.w.shape[1])) if rows.limits is None else rows.limits
        weights = None
        if rows.weights is not None and len(rows.weights):
            low, high = float(rows.weights.min()), float(rows.weights.max())
            weights = low, high, int((rows.weights == 0).sum())
        return cls(
            n_rows=len(rows),
            used=len(rows.w),
            reasons=Counter(rows.reasons[~rows.usable].tolist()),
            without_error=rows.without_error,
            measured=measured,
            mean=mean,
            squares=np.where(seen, (w - mean) ** 2, 0.0).sum(0),
            lowest=np.where(seen, rows.w, np.inf).min(0, initial=np.inf),
            limits=np.array([(flags < 0).sum(0), (flags > 0).sum(0)]),
            suspects=np.array([(rows.w == number).sum(0) for number in SUSPECTS]).T,
            weights=weights,
        )

    def merged(self, other: Found) -> Self:
        """Return what was found in these rows and in others."""
        both = np.maximum(self.measured + other.measured, 1)
        step = other.mean - self.mean
        between = step**2 * self.measured * other.measured / both
        weights = [each for each in (self.weights, other.weights) if each is not None]
        low, high, zeros = zip(*weights, strict=True) if weights else ((), (), ())
        return type(self)(
            n_rows=self.n_rows + other.n_rows,
            used=self.used + other.used,
            reasons=self.reasons + other.reasons,
            without_error=self.without_error + other.without_error,
            measured=self.measured + other.measured,
            mean=self.mean + step * other.measured / both,
            squares=self.squares + other.squares + between,
            lowest=np.minimum(self.lowest, other.lowest),
            limits=self.limits + other.limits,
            suspects=self.suspects + other.suspects,
            weights=(min(low), max(high), sum(zeros)) if weights else None,
        )

    def take_errors(self, rows: Measurements) -> None:
        """Take the medians of the errors of rows."""
        errors, seen = rows.rows.errors, ~np.isnan(rows.w)
        columns = zip(errors.T, seen.T, strict=True)
        self.median_errors = np.array([float(np.median(e[s])) for e, s in columns])

    def in_words(self, columns: Columns) -> list[str]:
        """Say what is measured, how many rows can be used, and what is odd about them."""
        lines = [f"{line} ({columns.law})" for line in columns.describe()]
        lines.append(f"{self.used} of {self.n_rows} rows can be used")
        lines += [f"  {n} left out: {reason}" for reason, n in sorted(self.reasons.items())]
        if self.without_error:
            lines.append(f"  {self.without_error} values have no error and are taken as missing")
        for name, upper, lower in zip(columns.names, *self.limits, strict=True):
            counts = {"upper": upper, "lower": lower}
            said = " and ".join(f"{n:.0f} {word} limits" for word, n in counts.items() if n)
            if said:
                lines.append(f"  {said} of {name}")
        return lines + [
            f"  {count} values of {name} are {number:g} and count as measured; "
            f"if they are missing, give --missing {number:g}"
            for name, counts, lowest in zip(columns.names, self.suspects, self.lowest, strict=True)
            for number, count in zip(SUSPECTS, counts, strict=True)
            if count > 1 and lowest >= number
        ]

    def of_weights(self, column: str | None) -> list[str]:
        """Say how far weights go."""
        if self.weights is None:
            return []
        low, high, zeros = self.weights
        said = f"; {zeros} of them do not count" if zeros else ""
        return [f"rows count by {column}, from {low:g} to {high:g}{said}"]

    def figures(self, columns: Columns) -> dict[str, Any]:
        """Return the same as JSON can hold it."""
        assert self.median_errors is not None
        sd = np.sqrt(self.squares / np.maximum(self.measured, 1))
        numbers = zip(columns.names, self.measured, self.mean, sd, self.median_errors, strict=True)
        return {
            "rows": self.n_rows,
            "used": self.used,
            "columns": [
                {
                    "name": name,
                    "measured": int(measured),
                    "mean": float(mean),
                    "sd": float(sd),
                    "median_error": float(error),
                }
                for name, measured, mean, sd, error in numbers
            ],
        }
