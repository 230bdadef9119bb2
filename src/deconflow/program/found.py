"""Counts and moments of rows before they are fitted, which chunks add to."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.tables import Columns, Measurements, Rows

#: What many tables write for a missing value, and few measure.
SUSPECTS = (-99.0, -999.0, -9999.0, -99999.0)


@dataclass
class Found:
    """Counts and moments of rows; of columns, ``(D,)`` each.

    Attributes
    ----------
    sums : dict
        Numbers that add up: of rows, usable rows, values without errors, weights of zero; for each
        column of measured values, limits and suspects.
    reasons : Counter
        Number of rows that cannot be used, by the reason.
    least : dict
        Smallest numbers: of each column, of weights, and of their negatives.
    mean, squares : array
        Mean of measured values, and the sum of squares around it.
    """

    sums: dict[str, Any]
    reasons: Counter[str]
    least: dict[str, Any]
    mean: Array
    squares: Array

    @classmethod
    def of(cls, found: Measurements) -> "Found":
        """Count rows."""
        rows, seen = found.rows, ~np.isnan(found.rows.w)
        w = np.where(seen, rows.w, 0.0)
        mean = w.sum(0) / np.maximum(seen.sum(0), 1)
        flags = np.zeros_like(rows.w) if rows.limits is None else rows.limits
        weights = np.ones(1) if rows.weights is None else rows.weights
        sums = {
            "rows": len(found), "used": len(rows), "without_error": found.without_error,
            "measured": seen.sum(0), "limits": np.array([(flags < 0).sum(0), (flags > 0).sum(0)]),
            "suspects": np.array([(rows.w == number).sum(0) for number in SUSPECTS]).T,
            "uncounted": (weights == 0).sum(),
        }  # fmt: skip
        least = {
            "values": np.where(seen, rows.w, np.inf).min(0, initial=np.inf),
            "weight": weights.min(initial=np.inf), "negative": -weights.max(initial=-np.inf),
        }  # fmt: skip
        reasons = Counter({reason: len(at) for reason, at in found.reasons.items()})
        return cls(sums, reasons, least, mean, np.where(seen, (w - mean) ** 2, 0.0).sum(0))

    def merged(self, other: "Found") -> "Found":
        """Return the counts of these rows and of others."""
        one, two = self.sums["measured"], other.sums["measured"]
        both, step = np.maximum(one + two, 1), other.mean - self.mean
        return Found(
            {name: value + other.sums[name] for name, value in self.sums.items()},
            self.reasons + other.reasons,
            {name: np.minimum(value, other.least[name]) for name, value in self.least.items()},
            self.mean + step * two / both,
            self.squares + other.squares + step**2 * one * two / both,
        )

    def in_words(self, columns: Columns, weights: str | None) -> list[str]:
        """Say what is measured, how many rows can be used, and what is odd about them."""
        sums = self.sums
        lines = [f"{line} ({columns.law})" for line in columns.describe()]
        lines.append(f"{sums['used']} of {sums['rows']} rows can be used")
        lines += [f"  {n} left out: {reason}" for reason, n in sorted(self.reasons.items())]
        if sums["without_error"]:
            lines.append(f"  {sums['without_error']} values have no error and count as missing")
        for name, upper, lower in zip(columns.names, *sums["limits"], strict=True):
            counts = {"upper": upper, "lower": lower}
            words = " and ".join(f"{n:.0f} {word} limits" for word, n in counts.items() if n)
            lines += [f"  {words} of {name}"] if words else []
        for name, counts, least in zip(
            columns.names, sums["suspects"], self.least["values"], strict=True
        ):
            lines += [
                f"  {count} values of {name} are {number:g} and count as measured; "
                f"if they are missing, give --missing {number:g}"
                for number, count in zip(SUSPECTS, counts, strict=True)
                if count > 1 and least >= number
            ]
        if weights is not None:
            low, high, zeros = self.least["weight"], -self.least["negative"], sums["uncounted"]
            words = f"; {zeros} of them do not count" if zeros else ""
            lines.append(f"rows count by {weights}, from {low:g} to {high:g}{words}")
        return lines

    def figures(self, columns: Columns, rows: Rows) -> dict[str, Any]:
        """Return the same as JSON can hold it; medians of the errors are those of some rows."""
        sd = np.sqrt(self.squares / np.maximum(self.sums["measured"], 1))
        errors = [e[s] for e, s in zip(rows.errors.T, ~np.isnan(rows.w.T), strict=True)]
        numbers = zip(columns.names, self.sums["measured"], self.mean, sd, errors, strict=True)
        return {
            "rows": int(self.sums["rows"]),
            "used": int(self.sums["used"]),
            "columns": [
                {
                    "name": name, "measured": int(measured), "mean": float(mean),
                    "sd": float(spread), "median_error": float(np.median(error)),
                }
                for name, measured, mean, spread, error in numbers
            ],
        }  # fmt: skip
