"""Means and covariances of a density and its replicates: closed forms, else weighted points.

The points are draws of the density that is asked about; for another density the same draws are
weighed by the ratio of the two. So chance is the same for all, and cancels in their differences.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.fits import FittedDensity, PartsFit

DRAWS = 20_000


def continuous_part(answer: Any) -> Any:
    """Return a density without its atoms, if it has some."""
    return answer.inner if isinstance(answer, PartsFit) else answer


@dataclass(frozen=True)
class Points:
    """A density as points: its draws, and its atoms.

    Attributes
    ----------
    density : FittedDensity
        Whose points these are. Its replicates have the same atoms, with the same shares.
    """

    density: FittedDensity

    @cached_property
    def draws(self) -> Array:
        """Draws of the continuous part."""
        drawn = continuous_part(self.density).sample(DRAWS, 0)
        return drawn[np.isfinite(drawn).all(1)]  # a flow may leave the finite

    @cached_property
    def values(self) -> Array:
        """All points ``(P, D)``: draws first, then atoms."""
        return np.concatenate([self.draws, self._atoms[0]])

    def weights(self, answer: FittedDensity) -> Array:
        """Return the share of each point in the density, or in one of its replicates."""
        if answer is self.density:
            own = np.ones(len(self.draws))
        else:
            ratio = continuous_part(answer).log_prob(self.draws) - self._log_p
            own = np.exp(ratio - ratio.max())
        shares = self._atoms[1]
        return np.concatenate([own / own.sum() * (1 - shares.sum()), shares])

    def moments(self, answer: FittedDensity) -> tuple[Array, Array]:
        """Return mean ``(D,)`` and covariance ``(D, D)``."""
        mixture = answer.as_mixture()
        if mixture is not None:
            return mixture.mean, mixture.covariance
        weights = self.weights(answer)
        mean = np.average(self.values, axis=0, weights=weights)
        return mean, np.atleast_2d(np.cov(self.values.T, aweights=weights, bias=True))

    @cached_property
    def _log_p(self) -> Array:
        return np.asarray(continuous_part(self.density).log_prob(self.draws), dtype=np.float64)

    @property
    def _atoms(self) -> tuple[Array, Array]:
        if isinstance(self.density, PartsFit):
            return self.density.atoms, self.density.atom_weights
        return np.empty((0, self.density.dim)), np.empty(0)
