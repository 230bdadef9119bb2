"""What estimators of a density on a grid share; for kernels and wavelets, rows for Fourier sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import warn_caller
from deconflow.classical import FourierFit, FourierRows, refuse_unsuitable
from deconflow.estimators.base import DensityEstimator
from deconflow.fits import GridFit
from deconflow.observations import Observations
from deconflow.saving import refuse
from deconflow.standardising import Standardiser

LARGEST_ERROR = 0.5
"""A fit with more error for its signal than this warns."""


class GridEstimator(DensityEstimator):
    """An estimator whose density lives on a grid.

    Attributes
    ----------
    density_ : FittedDensity
        The density; ``density_.grid`` has its values.
    relative_error_ : float
        Integrated squared error that comes from the noise, over the density's integrated square;
        kernels and wavelets have it.
    """

    _own_density: GridFit
    relative_error_: float

    _takes_missing_values = False
    _takes_projections = False
    _takes_limits = False

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "grid": self._own_density.grid}

    def _restore(self, values: dict[str, Any]) -> None:
        grid = values.pop("grid")
        super()._restore(values)
        refuse("grid", grid.dim != self.n_latent_, f"of {self.n_latent_} columns")
        self._own_density = GridFit(grid, self._names)

    def _take(self, fit: FourierFit, problem: FourierProblem) -> None:
        """Take the density of a fit, and warn if it is mostly noise."""
        grid = fit.on_grid(problem.location, problem.spread)
        self._own_density = GridFit(grid.in_units(problem.units), self._names)
        self.relative_error_ = fit.relative_error
        if fit.n_far:
            ends = problem.units * [fit.lattice.low, fit.lattice.low + fit.lattice.length]
            low, high = ([float(f"{x:.5g}") for x in end] for end in ends)
            warn_caller(
                f"{fit.n_far} of the rows are left out: they lie too far out for a grid, which is "
                f"between {low} and {high}. Use a larger bandwidth, or XDGMM."
            )
        if fit.relative_error > LARGEST_ERROR:
            warn_caller(
                f"The noise hides the density at this resolution: error is "
                f"{fit.relative_error:.2g} times the signal. Check the noise, smooth more, or "
                "bring more rows."
            )


@dataclass(frozen=True)
class FourierProblem:
    """Rows for Fourier sums, in units in which no product of sizes overflows.

    Attributes
    ----------
    rows : FourierRows
        The rows.
    location, scale : array
        ``(D,)`` location and scale of the true values.
    spread : array
        ``(D,)`` scatter of the measurements; rows with very large noise do not count.
    units : array
        ``(D,)`` powers of two.
    """

    rows: FourierRows
    location: Array
    scale: Array
    spread: Array
    units: Array

    @classmethod
    def of(cls, data: Observations, name: str, most_columns: int) -> FourierProblem:
        """Check what only a classical estimator cannot take, and prepare its rows."""
        refuse_unsuitable(data, name, most_columns)
        units = Standardiser.powers_of_two(data)
        data = units.observations(data)
        w, noise = np.asarray(data.w), data.noise
        weights = np.ones(len(w)) if data.weights is None else np.asarray(data.weights)
        weights = weights / weights.sum()
        truth = Standardiser.fit(data)
        location, scale = np.asarray(truth.location), np.asarray(truth.scale)
        variance = np.broadcast_to(np.asarray(noise.variance()), w.shape)
        with np.errstate(divide="ignore"):  # an exact row has all precision that there is
            spread = np.sqrt(np.square(scale) + 1 / (weights @ (1 / variance)))
        return cls(FourierRows(w, noise, weights), location, scale, spread, np.asarray(units.scale))
