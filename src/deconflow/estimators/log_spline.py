"""LogSplineDeconvolver: a penalised log density in one or two columns, in scikit-learn's shape."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deconflow.checks import check_integer, warn_caller
from deconflow.classical import UNBOUNDED, GridDensity
from deconflow.estimators.grid import GridEstimator
from deconflow.estimators.validation import refuse_unseen
from deconflow.fits import GridFit, Replicates
from deconflow.observations import Observations
from deconflow.saving import refuse
from deconflow.splines import LogSplineFit, fit_log_spline
from deconflow.truth import as_bounds

FEWEST, MOST = 4, {1: 200, 2: 30}
"""Fewest knot intervals, and most per number of columns."""
DRAWS = 30
"""Draws of the density that bands are made of."""
LEAST_LOST = 1e-6
"""A share of rows that cannot be explained is told from here on; less is rounding."""


class LogSplineDeconvolver(GridEstimator):
    r"""A penalised log density in one or two columns.

    .. math:: \log p(v) = B(v)' \beta - \log Z, \quad \max_\beta \; \sum_i \log \int p(v) \,
              p(w_i \mid v) \, dv - \frac12 \sum_j \lambda_j \int \omega_j(v) \,
              \| \nabla^k \log p(v) \|^2 \, dv

    with cubic B-splines :math:`B`. Penalties on third derivatives (k = 3) leave the best Gaussian
    as the smoothest answer. In one column nine weights :math:`\omega_j` along the line have a
    smoothing parameter each, and the answer is the average of fits with k = 3 and 2; in two there
    is one parameter, and k = 3. The smoothing parameters maximise the Laplace approximation of
    the marginal likelihood.

    In one column, more than 1,500 rows are put into bins of a fifth of their noise, in classes of
    noise of one form whose widths differ by a tenth. In two columns, more than 1,000 rows that
    share their noise are put into bins of a third of it. Rows with noise of their own are not
    binned, be it diagonal or full, but beyond 4,000 of them a sample of 4,000 gives the curvature
    of the likelihood, from which steps and smoothing are computed; the answer is that of all rows.
    Noise that is not Gaussian is taken as a mixture of Gaussians (:meth:`Noise.as_mixture`). Knots
    are even over all rows: a row that lies far out takes resolution from the others; drop it, or
    raise ``n_intervals``.

    Values may be missing. Posteriors of rows with missing values, and of some columns given others,
    come from a mixture of Gaussians that stands for the density, which does not end at a bound.
    Projections are for :class:`XDGMM`.

    ``band`` has Laplace's approximation: draws of the density given the rows, at a fifth of the
    smoothing, because the bias of a smooth answer is not in its variance.

    Parameters
    ----------
    bounds : dict, sequence or None
        Where the truth can be at all: ``{"x": (0, None)}``, ``(low, high)`` for one column, or one
        pair per column; None, as a whole or as an end, for no bound. Outside the density is zero.
    n_intervals : int or None
        Knot intervals per column; None for 60 in one column and 16 in two. More follow narrower
        features, at more cost.
    atoms, background
        What is known of the truth: see :class:`XDGMM`.

    Attributes
    ----------
    density_ : FittedDensity
        The density; ``density_.grid`` has its values.
    fit_ : LogSplineFit
        What was fitted; not saved.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Silverman (1982), "On the estimation of a probability density function by the maximum
    penalized likelihood method", Annals of Statistics 10.
    Wood and Fasiolo (2017), "A generalized Fellner-Schall method for smoothing parameter
    optimization", Biometrics 73.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.gamma(5.0, size=(2000, 1))
    >>> model = LogSplineDeconvolver().fit(v + rng.normal(size=v.shape), noise=1.0)
    >>> np.exp(model.score_samples([[2.0], [4.0], [9.0]])).round(2)  # the truth: .09, .2, .03
    array([0.09, 0.19, 0.04])
    """

    _takes_missing_values = True
    _bounds_itself = True

    _saved: ClassVar = {
        "grid": GridDensity, "_draws": list[GridDensity],
        "n_rows_": int, "n_bins_": int, "used_": float,
    }  # fmt: skip

    fit_: LogSplineFit
    n_rows_: int
    n_bins_: int
    used_: float

    def __init__(
        self,
        *,
        bounds: Any = None,
        n_intervals: int | None = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
    ) -> None:
        self.bounds = bounds
        self.n_intervals = n_intervals
        self.atoms = atoms
        self.background = background

    def describe(self) -> str:
        """Say in one line what was fitted."""
        rows = f"{self.n_rows_:,} rows"
        if self.n_bins_ != self.n_rows_:
            rows += f" in {self.n_bins_:,} bins"
        return f"Penalised log density with {self.used_:.3g} free parameters, from {rows}."

    def _check_parameters(self) -> None:
        if self.n_intervals is not None:
            check_integer("n_intervals", self.n_intervals, FEWEST)
            if self.n_intervals > MOST[1]:
                raise ValueError(
                    f"Expected n_intervals of at most {MOST[1]}; got {self.n_intervals!r}."
                )

    def _fit(self, data: Observations) -> None:
        if data.dim in MOST and (self.n_intervals or 0) > MOST[data.dim]:
            raise ValueError(
                f"Expected n_intervals of at most {MOST[data.dim]} with {data.dim} columns; "
                f"got {self.n_intervals}."
            )
        refuse_unseen(data)
        bounds = as_bounds(self.bounds, self._names)
        limits = UNBOUNDED if bounds is None else np.stack([bounds.lower, bounds.upper])
        fit = fit_log_spline(data, bounds=limits, n_intervals=self.n_intervals)
        self.fit_ = fit
        self._own_density = GridFit(fit.density, self._names)
        self._draw(fit.draws(DRAWS, random_state=0))
        self.n_rows_, self.n_bins_, self.used_ = fit.n_rows, fit.n_bins, fit.used_parameters
        _warn_of(fit)

    def _draw(self, draws: list[GridDensity]) -> None:
        """Let bands be made of draws of the density."""
        self._draws = draws
        self._own_density.replicates = Replicates([GridFit(d, self._names) for d in draws], "draws")

    def _restore(self, values: dict[str, Any]) -> None:
        super()._restore(values)
        refuse("n_rows_", self.n_rows_ < 1 or self.n_bins_ < 1, "a count of rows")
        others = len(self._draws) < 2 or any(d.dim != self.n_latent_ for d in self._draws)
        refuse("draws", others, "several grids of these columns")
        self._draw(self._draws)


def _warn_of(fit: LogSplineFit) -> None:
    if fit.far:
        warn_caller(
            f"{fit.far:.2g} of the rows lie too far out for a grid: a normal law behind it has "
            "their share. Drop them, or use XDGMM."
        )
    if fit.lost > LEAST_LOST:
        warn_caller(
            f"{fit.lost:.2g} of the rows are left out: no truth within reach is near enough to "
            "their measurements. Check the noise and the bounds."
        )
    if not fit.converged:
        warn_caller(
            "The fit stopped before it converged. Check the noise and the bounds, or use XDGMM."
        )
