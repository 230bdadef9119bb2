"""LogSplineDeconvolver: a penalised log density in one or two columns, in scikit-learn's shape."""

from typing import Any

from numpy.typing import ArrayLike

from deconflow.checks import check_integer
from deconflow.engines import MOST_INTERVALS, LogSplines
from deconflow.estimators.base import DensityEstimator

#: Fewest knot intervals.
FEWEST = 4


class LogSplineDeconvolver(DensityEstimator):
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
    fit_ : Fit
        What was learned.
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
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> v = rng.gamma(5.0, size=(2000, 1))
    >>> model = LogSplineDeconvolver().fit(v + rng.normal(size=v.shape), noise=1.0)
    >>> np.exp(model.score_samples([[2.0], [4.0], [9.0]])).round(2)  # the truth: .09, .2, .03
    array([0.09, 0.19, 0.04])
    """

    _engine_type = LogSplines

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

    def _check_parameters(self) -> None:
        if self.n_intervals is not None:
            check_integer("n_intervals", self.n_intervals, FEWEST)
            if self.n_intervals > MOST_INTERVALS[1]:
                raise ValueError(
                    f"Expected n_intervals of at most {MOST_INTERVALS[1]}; "
                    f"got {self.n_intervals!r}."
                )
