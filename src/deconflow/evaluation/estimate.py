"""Log-likelihoods of rows, with their errors."""

from dataclasses import dataclass, fields

import numpy as np

from deconflow._types import Array

#: Sets of quasi-random points of an estimate, whose spread is its error.
REPEATS = 8
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

    log_p: Array
    error: Array
    bias: Array

    @classmethod
    def exact(cls, log_p: Array) -> "Estimate":
        """Return log-likelihoods without error."""
        return cls(log_p, np.zeros_like(log_p), np.zeros_like(log_p))

    def shifted(self, by: Array) -> "Estimate":
        """Return the same in other units."""
        return Estimate(self.log_p + by, self.error, self.bias)

    @classmethod
    def joined(cls, parts: "list[Estimate]") -> "Estimate":
        """Put rows one after another."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))
