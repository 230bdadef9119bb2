r"""Fits of a penalised log density to rows in one or two columns.

.. math:: \log p(v) = B(v)' \beta - \log Z, \quad \max_\beta \; \sum_i c_i \log \int p(v) \,
          p(w_i \mid v) \, dv - \tfrac12 \sum_j \lambda_j \beta' S_j \beta

References
----------
Silverman (1982), "On the estimation of a probability density function by the maximum penalized
likelihood method", Annals of Statistics 10. Wood and Fasiolo (2017), "A generalized
Fellner-Schall method for smoothing parameter optimization", Biometrics 73.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from deconflow._types import Array, BoolArray
from deconflow.classical import UNBOUNDED, GridDensity, grid_mixture, refuse_unsuitable
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.splines.line import LineFrame
from deconflow.splines.newton import Fitted, Likelihood, Penalty, masses, maximise, solver
from deconflow.splines.planes import PlaneFrame
from deconflow.splines.rows import Rows, as_rows, domain_of
from deconflow.standardising import Standardiser

#: Share of a normal law behind the grid, over the number of rows; rows added to these; and its
#: width in scales of the truth. So many rows cannot tell what is beyond the grid.
BEHIND, BEHIND_ROWS, WIDTH_BEHIND = 0.1, 10.0, 2.0
#: Share of the smoothing that is left for bands: smoothing is a bias that no variance knows.
BAND_SMOOTHING = 0.2
#: Draws of the Laplace approximation per draw that is kept, per number of columns, and the largest
#: logarithm of a weight: where a tail is straight a Gaussian knows little of what it may do.
PROPOSALS, MOST_LOG_WEIGHT = {1: 10, 2: 1}, 3.0
MOST_COLUMNS = 2
#: Steps on a plane from a fit to other rows: what is left then lies where no rows are.
ROUNDS_FROM_A_START = 25
#: More rows or bins than these are fitted from where a fit to half as many ended.
MANY_ROWS = 6_000

Frame = LineFrame | PlaneFrame


@dataclass(frozen=True)
class LogSplineFit:
    """A fitted log density.

    Attributes
    ----------
    units : Standardiser
        The units in which the fit was made.
    frame : LineFrame or PlaneFrame
        Knots, nodes and penalties.
    curves : list of Fitted
        One for each order of derivatives that was penalised; the density is their average.
    n_rows, n_bins : int
        Number of rows, and of rows or bins that the likelihood was made of.
    far : float
        Share of rows that are out of the grid's reach.
    lost : float
        Share of rows that no truth on the grid explains, as those far beyond a bound.
    bounds : array
        Bounds of the truth in the units of the data, as of a :class:`GridDensity`.
    """

    units: Standardiser
    frame: Frame
    curves: list[Fitted]
    n_rows: int
    n_bins: int
    far: float
    lost: float
    bounds: Array
    _rows: Likelihood = field(repr=False)

    @property
    def converged(self) -> bool:
        """Whether all steps sufficed."""
        return all(curve.converged for curve in self.curves)

    @cached_property
    def density(self) -> GridDensity:
        """The density in the units of the data."""
        return self._as_density([curve.penalty.basis @ curve.point.theta for curve in self.curves])

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The density as a mixture of Gaussians; see :func:`deconflow.classical.grid_mixture`."""
        return grid_mixture(self.density)

    def draws(self, n: int, random_state: RandomState = None) -> list[GridDensity]:
        r"""Draw densities from the Laplace approximation of their posterior.

        .. math:: \theta \sim N(\hat\theta, (H + P)^{-1})

        about the answer at a fifth of the smoothing: the bias of a smooth answer is not in its
        variance, and with less smoothing there is less of it. On a line, where tails are far
        from Gaussian, draws are resampled by their true posterior.
        """
        rng = check_random_state(random_state)
        counts = np.bincount(np.arange(n) % len(self.curves), minlength=len(self.curves))
        return [
            self._as_density([curve.penalty.basis @ theta])
            for curve, count in zip(self.curves, counts.tolist(), strict=True)
            for theta in self._drawn(curve, count, rng)
        ]

    def _drawn(self, curve: Fitted, n: int, rng: np.random.RandomState) -> Array:
        """Draw parameters ``(n, K)``; on a line resampled by how likely they really are."""
        penalty, strength = curve.penalty, BAND_SMOOTHING * curve.strength
        rough = maximise(self._rows, penalty, curve.point.theta, strength, choose=False).point
        P = penalty.matrix(strength)
        factor, _ = solver(rough.hessian, rough.information, P)
        white = rng.standard_normal((n * PROPOSALS[len(self.units.scale)], len(P)))
        thetas = rough.theta + solve_triangular(factor, white.T, lower=True, trans="T").T
        if len(thetas) == n:
            return thetas
        log_p = [self._rows.log_likelihood(masses(self._rows, penalty.basis @ t)) for t in thetas]
        log_posterior = log_p - 0.5 * np.einsum("ni,ij,nj->n", thetas, P, thetas)
        log_weight = log_posterior + 0.5 * np.square(white).sum(1)
        weight = np.exp(np.minimum(log_weight - np.median(log_weight), MOST_LOG_WEIGHT))
        return thetas[rng.choice(len(thetas), n, p=weight / weight.sum())]

    def _as_density(self, betas: list[Array]) -> GridDensity:
        scale, location = self.units.scale, self.units.location
        behind = 1 - (1 - BEHIND / (self.n_rows + BEHIND_ROWS)) * (1 - self.far)
        width = WIDTH_BEHIND * np.eye(len(scale))
        grid = GridDensity(*self.frame.grid(betas), behind, np.zeros(len(scale)), width)
        return replace(grid.in_units(scale, location), bounds=self.bounds)


def fit_log_spline(
    data: Observations,
    *,
    bounds: Array = UNBOUNDED,
    n_intervals: int | None = None,
    start: LogSplineFit | None = None,
) -> LogSplineFit:
    """Fit a penalised log density.

    Parameters
    ----------
    data
        Rows with one or two columns, in any units, without a projection; values may be missing.
    bounds
        ``(2, D)``, infinite where there is none: the truth lies within.
    n_intervals
        Knot intervals per column; None for 60 in one column and 16 in two.
    start
        A fit to other rows of the same law: this one has its units and knots and starts where it
        ended; in two columns it has its smoothing, too.

    Raises
    ------
    ValueError
        If the rows do not allow a fit.
    """
    units, frame, rows, far = _laid_out(data, bounds, n_intervals, start)
    near = rows[~far]
    seen = frame.likelihood(near)
    if start is None:
        begin = _begin(frame, near, many=len(seen.row_counts) > MANY_ROWS)
    else:
        begin = _ends(start.curves)
    fixed = {"choose": False, "rounds_at_most": ROUNDS_FROM_A_START}
    how: dict[str, Any] = fixed if start is not None and data.dim > 1 else {}
    curves = [maximise(seen, *each, **how) for each in begin]
    total, explained = float(rows.count.sum()), min(curve.point.explained for curve in curves)
    return LogSplineFit(
        units,
        frame,
        curves,
        len(data),
        len(seen.row_counts),
        far=float(rows.count[far].sum()) / total,
        lost=float(seen.row_counts.sum() - explained) / total,
        bounds=bounds,
        _rows=seen,
    )


def _begin(frame: Frame, rows: Rows, *, many: bool) -> list[tuple[Penalty, Array, Array]]:
    """Where a fit starts: where one to some of the rows ends, if there are many."""
    penalties = [frame.penalty(order) for order in frame.orders]
    begin = [(p, p.parameters(frame.start()), np.ones(len(p.parts))) for p in penalties]
    if not many:
        return begin
    some = np.random.default_rng(0).permutation(len(rows))[: MANY_ROWS // 2]
    few = frame.likelihood(rows[some])
    return _ends([maximise(few, *each) for each in begin])


def _ends(curves: list[Fitted]) -> list[tuple[Penalty, Array, Array]]:
    """What is penalised, parameters and smoothing parameters."""
    return [(curve.penalty, curve.point.theta, curve.strength) for curve in curves]


def _laid_out(
    data: Observations, bounds: Array, n_intervals: int | None, start: LogSplineFit | None
) -> tuple[Standardiser, Frame, Rows, BoolArray]:
    """Units, knots and nodes, the rows in these units, and which of them are out of reach."""
    refuse_unsuitable(data, "a log spline", MOST_COLUMNS)
    units = Standardiser.fit(data) if start is None else start.units
    rows = as_rows(units.observations(data))
    bounds = np.broadcast_to((bounds - units.location) / units.scale, (2, data.dim))
    ends, far = domain_of(rows, bounds)
    if start is not None:
        return units, start.frame, rows, far
    kind = LineFrame if data.dim == 1 else PlaneFrame
    return units, kind(ends, bounds, n_intervals), rows, far


def work_of_fit(data: Observations) -> int:
    """Count what a fit sums over in every step: bins or rows, on a plane times their Gaussians."""
    _, frame, rows, far = _laid_out(data, UNBOUNDED, None, None)
    bins = frame.binned(rows[~far])
    return len(bins) * (1 if data.dim == 1 else bins.weights.shape[1])
