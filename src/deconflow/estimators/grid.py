"""What estimators of a density on a grid share; for kernels and wavelets, rows for Fourier sums."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch

from deconflow._types import Array
from deconflow.checks import check_number, warn_caller
from deconflow.classical import FourierFit, FourierRows, GridDensity, clip_and_normalise
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.grid_fit import GridFit
from deconflow.estimators.saved_values import CLOSE, refuse, saved_arrays
from deconflow.model_files import check_form
from deconflow.observations import Observations
from deconflow.standardising import Standardiser

LARGEST_ERROR = 0.5
"""A fit with more error for its signal than this warns."""
GRID_ARRAYS = ("low", "step", "values", "mean", "factor")
SAVED_DETAILS = {"background": float, "relative_error": (float, None), "learned": {str: object}}


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
    background: float

    _takes_missing_values = False
    _takes_projections = False
    _takes_limits = False

    @abstractmethod
    def _learned(self) -> dict[str, Any]:
        """Return what is saved beside the density."""

    @abstractmethod
    def _learn(self, learned: dict[str, Any]) -> None:
        """Take what :meth:`_learned` gave."""

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        grid = self._own_density.grid
        arrays = {name: torch.from_numpy(np.array(getattr(grid, name))) for name in GRID_ARRAYS}
        error = getattr(self, "relative_error_", None)
        details = {"background": grid.background, "relative_error": error}
        return {**details, "learned": self._learned()}, arrays

    def _restore(self, details: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        check_form(details, SAVED_DETAILS, "details")
        values = dict(zip(GRID_ARRAYS, saved_arrays(arrays, GRID_ARRAYS), strict=True))
        grid = GridDensity(background=details["background"], **values)
        check_grid(grid, self.n_latent_)
        self._own_density = GridFit(grid, self._names)
        if details["relative_error"] is not None:
            self.relative_error_ = details["relative_error"]
        self._learn(details["learned"])

    def _check_background(self) -> None:
        """Check the share of the normal law behind the grid."""
        check_number("background", self.background, 0, 1)

    def _take(self, fit: FourierFit, location: Array, spread: Array, units: Array) -> None:
        """Make the density of a fit in some units, and say so if it is mostly noise."""
        values = fit.lattice.density(fit.characteristic)
        step = fit.lattice.length / np.array(values.shape)
        grid = GridDensity(
            low=fit.lattice.low,
            step=step,
            values=clip_and_normalise(values, float(step.prod())),
            background=1 - (1 - float(self.background)) * (1 - float(fit.far_weights.sum())),
            mean=location,
            factor=np.diag(spread),
        )
        self._own_density = GridFit(grid.in_units(units), self._names)
        self.relative_error_ = fit.relative_error
        _warn_of(fit, units)


def check_grid(grid: GridDensity, dim: int) -> None:
    """Raise if a saved density is none."""
    refuse("background", not 0 <= grid.background <= 1, "a share")
    for name in ("low", "step", "mean"):
        refuse(name, getattr(grid, name).shape != (dim,), f"of {dim} numbers")
    refuse("step", (grid.step <= 0).any(), "positive")
    whole = grid.values.ndim == dim and abs(grid.mass.sum() - 1) < CLOSE
    refuse("values", not whole or (grid.values < 0).any(), "a density")
    lower = grid.factor.shape == (dim, dim) and (np.triu(grid.factor, 1) == 0).all()
    refuse("factor", not lower or (np.diag(grid.factor) <= 0).any(), "that of a normal law")


def _warn_of(fit: FourierFit, units: Array) -> None:
    if len(fit.far_weights):
        first, length = units * fit.lattice.low, units * fit.lattice.length
        ends = (end.tolist() for end in (first, first + length))
        low, high = ([float(f"{x:.5g}") for x in end] for end in ends)
        warn_caller(
            f"{len(fit.far_weights)} of the rows lie too far out for a grid, which is between "
            f"{low} and {high}: a normal law behind it has their share. Drop them, raise the "
            "bandwidth, or use XDGMM."
        )
    if fit.relative_error > LARGEST_ERROR:
        warn_caller(
            f"The noise hides the density at this resolution: error is {fit.relative_error:.2g}"
            " times the signal. Check the noise, smooth more, or bring more rows."
        )


def measured_spread(data: Observations, standardiser: Standardiser) -> Array:
    """Return how widely measurements scatter, ``(D,)``; rows that tell nothing do not count."""
    variance = data.noise.variance().numpy()
    if data.noise.shared:
        typical = variance[0]
    else:
        weights = None if data.weights is None else data.weights.numpy()
        with np.errstate(divide="ignore"):  # an exact row has all precision that there is
            typical = 1 / np.average(1 / variance, axis=0, weights=weights)
    return np.sqrt(np.square(standardiser.scale.numpy()) + typical)


def in_usual_units(data: Observations) -> tuple[Observations, Array]:
    """Return rows in units in which no product of sizes overflows, powers of two, and these."""
    units = Standardiser.powers_of_two(data)
    return units.observations(data), units.scale.numpy()


def fourier_rows(data: Observations, name: str, most_dimensions: int) -> FourierRows:
    """Check what only a classical estimator cannot take, and make its rows."""
    n, dim = data.w.shape
    if n < 2:
        raise ValueError(f"Expected at least 2 rows in w to fit a density; got n_samples = {n}.")
    if dim > most_dimensions:
        word = "one column" if most_dimensions == 1 else f"at most {most_dimensions} columns"
        raise ValueError(
            f"Expected {word} in w with {name}; got {dim}. "
            "Use XDGMM or FlowDeconvolver in more dimensions."
        )
    w = data.w.numpy()
    constant = np.ptp(w, axis=0) == 0
    if constant.any():
        raise ValueError(
            "Expected values that differ in every column of w; "
            f"got one value in column {int(constant.argmax())}. Drop it."
        )
    weights = np.ones(n) if data.weights is None else data.weights.numpy()
    return FourierRows(w, data.noise, weights / weights.sum())
