"""Log-likelihoods of rows, with their errors."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

REPEATS = 8
"""Sets of quasi-random points of an estimate, whose spread is its error."""
FEWEST_POINTS = 4 * REPEATS


@dataclass(frozen=True)
class Estimate:
    """Log-likelihoods of rows, with how exact they are; all ``(N,)``.

    Attributes
    ----------
    log_p : array
        The log-likelihoods.
    error : array
        Their standard errors; zero for a closed form.
    bias : array
        How much too low they still are on average; zero where that was taken off.
    """

    log_p: NDArray[np.float64]
    error: NDArray[np.float64]
    bias: NDArray[np.float64]

    @classmethod
    def exact(cls, log_p: NDArray[np.float64]) -> Estimate:
        """Return log-likelihoods without error."""
        return cls(log_p, np.zeros_like(log_p), np.zeros_like(log_p))

    def shifted(self, by: NDArray[np.float64]) -> Estimate:
        """Return the same in other units."""
        return Estimate(self.log_p + by, self.error, self.bias)

    @classmethod
    def joined(cls, parts: list[Estimate]) -> Estimate:
        """Put rows one after another."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))
