r"""Where the truth may be: the rows widened by two errors, within bounds.

Rows with far more noise than others say little about where the truth ends: they count where a
standard normal truth would put them, at :math:`w / (1 + s^2)` with an error of
:math:`s / \sqrt{1 + s^2}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.splines.rows import Rows

ERRORS = 2.0
PRECISE, TWICE, WIDEST = 0.05, 2.0, 20.0
"""Rows with at most twice the noise of this share of the rows, or less than the truth's scale,
are taken at their word; never those with more noise than so many scales."""
FARTHEST = 40.0
"""Scales of the truth beyond which a row is out of a grid's reach."""
LEAST = 1.0
"""A domain reaches at least so many scales to both sides."""


@dataclass(frozen=True)
class Domain:
    """Ends of the truth in standardised units.

    Attributes
    ----------
    low, high : array
        ``(D,)``.
    low_bound, high_bound : array
        ``(D,)`` bounds of the truth; infinite where there is none.
    far : array
        Rows out of reach.
    """

    low: Array
    high: Array
    low_bound: Array
    high_bound: Array
    far: NDArray[np.bool_]


def domain_of(rows: Rows, low_bound: Array, high_bound: Array) -> Domain:
    """Return the domain of some rows, in standardised units."""
    place, sd = rows.location, np.where(np.isfinite(rows.sd), rows.sd, 1e150)
    seen = np.ones(place.shape, bool) if rows.observed is None else rows.observed
    precise = [np.quantile(s[use], PRECISE) for s, use in zip(sd.T, seen.T, strict=True)]
    trusted = sd <= np.clip(TWICE * np.array(precise), 1.0, WIDEST)
    shrunk = 1 / (1 + np.square(np.where(trusted, 0.0, sd)))
    centre, error = place * shrunk, sd * np.sqrt(shrunk)
    near = ~seen | (np.abs(centre) <= FARTHEST)
    use = seen & near
    low = np.where(use, centre - ERRORS * error, np.inf).min(0)
    high = np.where(use, centre + ERRORS * error, -np.inf).max(0)
    low = np.clip(np.minimum(low, -LEAST), low_bound, None)
    high = np.clip(np.maximum(high, LEAST), None, high_bound)
    return Domain(low, high, low_bound, high_bound, np.atleast_1d(~near.all(1)))
