"""Engines of densities on a grid: kernels, wavelets and log-splines."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import as_floats, warn_caller
from deconflow.classical import (
    MOST_ORDERS,
    UNBOUNDED,
    FourierFit,
    GridDensity,
    enclose,
    fit_kde,
    fit_wavelets,
    refuse_unsuitable,
)
from deconflow.core import Run
from deconflow.engines.shared import Engine
from deconflow.fits import GridFit, Replicates
from deconflow.observations import Observations
from deconflow.splines import fit_log_spline
from deconflow.standardising import Standardiser
from deconflow.truth import as_bounds

#: A fit with more error for its signal than this warns.
LARGEST_ERROR = 0.5
#: Largest bandwidth, in spreads of the measurements: one would see nothing but the kernel.
WIDEST = 1e6
#: Largest box, in measured standard deviations, that the finest level of wavelets resolves.
LONGEST = 128.0
#: Draws of a log-spline density that bands are made of.
DRAWS = 30
#: Share of rows that cannot be explained from which on a fit warns; less is rounding.
LEAST_LOST = 1e-6
#: Most knot intervals per number of columns.
MOST_INTERVALS = {1: 200, 2: 30}
FEWEST_INTERVALS = 4


@dataclass(frozen=True)
class GridSolution:
    """A density on a grid.

    Attributes
    ----------
    grid : GridDensity
        The density.
    line : str
        One line on what was fitted.
    learned : dict
        Numbers that the estimator shows.
    draws : list of GridDensity
        Draws of the density that bands are made of.
    """

    grid: GridDensity
    line: str
    learned: dict[str, Any]
    draws: list[GridDensity] = field(default_factory=list)

    def density(self, names: list[str], threads: int | None) -> GridFit:
        """Return the density, with its draws as replicates."""
        density = GridFit(self.grid, names)
        if self.draws:
            density.replicates = Replicates([GridFit(d, names) for d in self.draws], "draws")
        return density

    def words(self) -> str:
        """Return what was fitted."""
        return self.line

    def attributes(self) -> dict[str, Any]:
        """Return what the estimator shows."""
        return {f"{name}_": value for name, value in self.learned.items()}


@dataclass(frozen=True)
class FourierProblem:
    """Rows for Fourier sums, in units in which no product of sizes overflows.

    Attributes
    ----------
    rows : Observations
        The rows, with weights of sum one.
    truth : Standardiser
        Location and scale of the true values.
    spread : array
        ``(D,)`` scatter of the measurements; rows with very large noise do not count.
    units : array
        ``(D,)`` powers of two.
    """

    rows: Observations
    truth: Standardiser
    spread: Array
    units: Array

    @classmethod
    def of(cls, data: Observations, name: str, most_columns: int) -> "FourierProblem":
        """Check what only a classical estimator cannot take, and prepare its rows."""
        refuse_unsuitable(data, name, most_columns)
        units = Standardiser.powers_of_two(data)
        data = units.observations(data)
        weights = np.ones(len(data)) if data.weights is None else data.weights
        rows = replace(data, weights=weights / weights.sum())
        truth = Standardiser.fit(data)
        variance = np.broadcast_to(data.noise.variance(), data.w.shape)
        with np.errstate(divide="ignore"):  # an exact row has all precision that there is
            spread = np.sqrt(np.square(truth.scale) + 1 / (rows.weights @ (1 / variance)))
        return cls(rows, truth, spread, units.scale)

    def solved(self, fit: FourierFit, line: str, **learned: Any) -> GridSolution:
        """Return the density of a fit, and warn if it is mostly noise."""
        if fit.n_far:
            ends = self.units * [fit.lattice.low, fit.lattice.low + fit.lattice.length]
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
        grid = fit.on_grid(self.truth.location, self.spread).in_units(self.units)
        return GridSolution(grid, line, {**learned, "relative_error": fit.relative_error})


class Kernels(Engine):
    """The deconvolving kernel estimate with the bandwidth of an estimator."""

    name = "DeconvolvingKDE"
    solution = GridSolution
    takes = frozenset({"errors to learn", "selected"})

    def fit(self, rows: Observations, run: Run) -> GridSolution:
        """Choose a bandwidth, and sum kernels."""
        problem = FourierProblem.of(rows, self.name, max(MOST_ORDERS))
        given = self._given(problem, self.settings.bandwidth)
        chosen, fit = fit_kde(problem.rows, problem.truth.scale, problem.spread, given)
        bandwidth = chosen * problem.units
        widths = ", ".join(f"{h:.3g}" for h in bandwidth)
        return problem.solved(fit, f"Kernel estimate with bandwidth {widths}.", bandwidth=bandwidth)

    def _given(self, problem: FourierProblem, bandwidth: Any) -> Array | None:
        """Return one bandwidth per dimension, in units of the problem, that a grid can resolve."""
        if bandwidth is None:
            return None
        given, dim = as_floats(bandwidth, "bandwidth"), len(problem.spread)
        smallest = 6 * problem.spread / (2 * np.pi * MOST_ORDERS[dim])
        largest = WIDEST * problem.spread
        values = given / problem.units if given.shape in ((), (dim,)) else np.full(dim, np.nan)
        if not ((values >= smallest) & (values <= largest)).all():
            low, high = (
                [float(f"{h:.3g}") for h in ends * problem.units] for ends in (smallest, largest)
            )
            raise ValueError(
                f"Expected bandwidth as one number or {dim}, one for each column of w, that a grid "
                f"can resolve: of at least {low} and at most {high}; got {bandwidth!r}."
            )
        return values


class Wavelets(Engine):
    """Meyer wavelets with the level of an estimator."""

    name = "WaveletDeconvolver"
    solution = GridSolution
    takes = frozenset({"errors to learn", "selected"})

    def fit(self, rows: Observations, run: Run) -> GridSolution:
        """Keep the wavelets that stand out from the noise."""
        problem = FourierProblem.of(rows, self.name, 1)
        w = problem.rows.w
        low, length = enclose(w, 0.1 * np.ptp(w, axis=0), LONGEST * problem.spread)
        (linear, *finer), fit = fit_wavelets(problem.rows, low, length, self.settings.level)
        count = sum(int((part.values != 0).sum()) for part in finer)
        line = f"Wavelet estimate of level {linear.level}, with {count} finer wavelets."
        return problem.solved(fit, line, level=linear.level, n_wavelets=count)


class LogSplines(Engine):
    """Penalised log densities with the settings of an estimator."""

    name = "LogSplineDeconvolver"
    solution = GridSolution
    takes = frozenset({"missing", "bounds", "own bounds", "atoms", "background", "selected",
                       "errors to learn"})  # fmt: skip

    def fit(self, rows: Observations, run: Run) -> GridSolution:
        """Fit a log density in one or two columns."""
        intervals = self.settings.n_intervals
        most = MOST_INTERVALS.get(rows.dim)
        if most and (intervals or 0) > most:
            raise ValueError(
                f"Expected n_intervals of at most {most} with {rows.dim} columns; got {intervals}."
            )
        bounds = as_bounds(self.settings.bounds, rows.names)
        limits = UNBOUNDED if bounds is None else np.stack([bounds.lower, bounds.upper])
        fit = fit_log_spline(rows, bounds=limits, n_intervals=intervals)
        for wrong, words in (
            (fit.far, f"{fit.far:.2g} of the rows lie too far out for a grid: a normal "
             "distribution behind it has their share. Drop them, or use XDGMM."),
            (fit.lost > LEAST_LOST, f"{fit.lost:.2g} of the rows are left out: no true value "
             "within reach is near enough to their measurements. Check the noise and the bounds."),
            (not fit.converged, "The fit stopped before it converged. Check the noise and the "
             "bounds, or use XDGMM."),
        ):  # fmt: skip
            if wrong:
                warn_caller(words)
        bins = "" if fit.n_bins == fit.n_rows else f" in {fit.n_bins:,} bins"
        used = float(np.mean([curve.free for curve in fit.curves]))
        return GridSolution(
            fit.density,
            f"Penalised log density with {used:.3g} free parameters, "
            f"from {fit.n_rows:,} rows{bins}.",
            {"n_rows": fit.n_rows, "n_bins": fit.n_bins, "used": used},
            fit.draws(DRAWS, random_state=0),
        )
