"""Densities on a grid, in few dimensions."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from deconflow._types import Array, IntArray
from deconflow.classical import (
    GridDensity,
    WeightedPoints,
    grid_mixture,
    resample,
    weighted_points,
)
from deconflow.evaluation import Estimate
from deconflow.fits.fitted import FittedDensity
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.observations import Observations
from deconflow.randomness import RandomState


class GridFit(FittedDensity):
    """A density on a grid; a mixture of Gaussians stands for it where rows measure less."""

    def __init__(self, grid: GridDensity, names: list[str]) -> None:
        self.grid, self.names = grid, names
        lower, upper = np.broadcast_to(grid.bounds, (2, len(names)))
        self.ends = lower, upper

    @cached_property
    def _mixture(self) -> MixtureFit:
        """The same density in closed form; see :func:`deconflow.classical.grid_mixture`."""
        return MixtureFit([grid_mixture(self.grid)], self.names, self.threads)

    def _log_prob(self, v: Array) -> Array:
        return self.grid.log_prob(v)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        return self.grid.sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row.

        Rows with noise wider than the grid's cells are summed over the grid, and over ``n_draws``
        draws of their noise for the density behind it; the others over draws alone.
        """
        log_p, error = np.empty(len(data)), np.zeros(len(data))
        complete, others = _complete_and_others(data)
        if len(others):
            log_p[others] = self._mixture.log_marginal(data[others]).log_p
        n_draws = 1000 if n_draws is None else n_draws
        for rows, weighed in self._weighed(data, complete, n_draws, random_state):
            log_p[rows], error[rows] = weighed.log_marginal(), weighed.relative_error()
        return Estimate(log_p, error, 0.5 * np.square(error))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, at grid points and draws of its noise."""
        pieces = self._pieces(data, n_samples, n_proposals, check_random_state(random_state))
        return WeightedPosterior.of_pieces(len(data), n_samples, self.names, pieces)

    def _pieces(
        self, data: Observations, n_samples: int, n_proposals: int, rng: np.random.RandomState
    ) -> Iterator[tuple[IntArray, tuple[Any, ...]]]:
        """Walk through rows and their answers."""
        complete, incomplete = _complete_and_others(data)
        for rows, weighed in self._weighed(data, complete, n_proposals, rng):
            yield rows, resample(self.grid, weighed, n_samples, rng)
        if len(incomplete):
            exact = self._mixture.posterior(data[incomplete])
            drawn = exact.sample(n_samples, rng)
            yield incomplete, (drawn, exact.mean, exact.covariance, n_samples)

    def _weighed(
        self, data: Observations, rows: IntArray, n_draws: int, random_state: RandomState
    ) -> Iterator[tuple[IntArray, WeightedPoints]]:
        """Weigh points for complete rows, in pieces; with their numbers."""
        if len(rows):
            complete = replace(data[rows], observed=None)
            for weighed in weighted_points(self.grid, complete, n_draws, random_state):
                yield rows[weighed.rows], weighed

    def _marginal(self, columns: IntArray) -> "GridFit":
        return GridFit(self.grid.marginal(columns), [self.names[d] for d in columns])


def _complete_and_others(data: Observations) -> tuple[IntArray, IntArray]:
    """Numbers of the rows that measure all columns, and of the others."""
    complete = np.full(len(data), data.projection is None)
    if data.observed is not None:
        complete &= np.asarray(data.observed).all(1)
    return np.flatnonzero(complete), np.flatnonzero(~complete)
