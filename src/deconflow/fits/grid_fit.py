"""Densities on a grid, in few dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.classical import (
    GridDensity,
    WeightedPoints,
    condition_on_grid,
    grid_mixture,
    resample,
    weighted_points,
)
from deconflow.evaluation import Estimate
from deconflow.fits.fitted import Columns, FittedDensity
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.observations import Observations
from deconflow.randomness import RandomState


class GridFit(FittedDensity):
    """A density on a grid; rows with missing values are answered by a mixture of Gaussians."""

    def __init__(self, grid: GridDensity, names: list[str]) -> None:
        self.grid, self.names = grid, names

    @cached_property
    def _mixture(self) -> MixtureFit:
        """The same density in closed form; see :func:`deconflow.classical.grid_mixture`."""
        return MixtureFit([grid_mixture(self.grid)], self.names, self.threads)

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        return super().ends if self.grid.bounds is None else (*self.grid.bounds,)

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
        draws of their noise for the law behind it; the others over draws alone.
        """
        log_p, error = np.empty(len(data)), np.zeros(len(data))
        complete, incomplete = _told_apart(data)
        if len(incomplete):
            log_p[incomplete] = self._mixture.log_marginal(data[incomplete]).log_p
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
        n, dim = len(data), self.dim
        arrays = (
            np.empty((n, n_samples, dim)),
            np.empty((n, dim)),
            np.empty((n, dim, dim)),
            np.empty(n),
        )
        rng = check_random_state(random_state)
        complete, incomplete = _told_apart(data)
        for rows, weighed in self._weighed(data, complete, n_proposals, rng):
            parts = resample(self.grid, weighed, n_samples, rng)
            for array, part in zip(arrays, parts, strict=True):
                array[rows] = part
        if len(incomplete):
            exact = self._mixture.posterior(data[incomplete])
            draws = exact.sample(n_samples, rng)
            parts = draws, exact.mean, exact.covariance, np.full(len(incomplete), n_samples)
            for array, part in zip(arrays, parts, strict=True):
                array[incomplete] = part
        return WeightedPosterior(*arrays, self.names)

    def _weighed(
        self, data: Observations, rows: Columns, n_draws: int, random_state: RandomState
    ) -> Iterator[tuple[Columns, WeightedPoints]]:
        """Weigh points for complete rows, in pieces; with their numbers."""
        if len(rows):
            complete = replace(data[rows], observed=None)
            for weighed in weighted_points(self.grid, complete, n_draws, random_state):
                yield rows[weighed.rows], weighed

    def _marginal(self, columns: Columns) -> GridFit:
        return GridFit(self.grid.marginal(columns), [self.names[d] for d in columns])

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, on their grid, given draws of the noise."""
        others = self._others(given)
        answer = condition_on_grid(self.grid, data, given, others, n_samples, random_state)
        return WeightedPosterior(*answer, [self.names[d] for d in others])


def _told_apart(data: Observations) -> tuple[Columns, Columns]:
    """Numbers of the rows without missing values, and of those with some."""
    if data.observed is None:
        return np.arange(len(data)), np.empty(0, np.int64)
    complete = data.observed.all(1).numpy()
    return np.flatnonzero(complete), np.flatnonzero(~complete)
