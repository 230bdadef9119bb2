"""Estimators whose densities are tables on a grid: log-splines, kernels and wavelets."""

from typing import Any

from numpy.typing import ArrayLike

from deconflow.engines import Kernels, LogSplines, Wavelets
from deconflow.estimators.base import DensityEstimator


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
        super().__init__(bounds=bounds, atoms=atoms, background=background)
        self.n_intervals = n_intervals


class DeconvolvingKDE(DensityEstimator):
    r"""The deconvolving kernel density estimator, in one to three dimensions.

    .. math:: \hat f(x) = (2 \pi)^{-D} \int e^{-i t \cdot x} \, \prod_d \phi_K(h_d t_d) \,
              \frac{\sum_j a_j \, \bar\phi_j(t) \, e^{i t \cdot w_j}}{\sum_j a_j |\phi_j(t)|^2} dt

    with :math:`\phi_j` the characteristic function of row j's noise, :math:`a_j` its weight, and
    :math:`\phi_K` one up to a half, then a line to zero at one. What is negative is cut off and
    the rest scaled to one.

    Parameters
    ----------
    bandwidth : float, sequence of float or None
        The bandwidth ``h``, or one for each dimension: frequencies up to ``1 / h`` count. None
        chooses by least-squares cross-validation.

    Attributes
    ----------
    bandwidth_ : array
        ``(D,)`` bandwidths.
    density_ : FittedDensity
        The density; ``density_.grid`` has its values.
    relative_error_ : float
        Integrated squared error that the noise causes, over the integrated square of the density.
        Above 0.5, the fit warns.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Stefanski and Carroll (1990), "Deconvolving kernel density estimators", Statistics 21.
    Fan (1991), "On the optimal rates of convergence for nonparametric deconvolution problems",
    Annals of Statistics 19.
    Delaigle and Meister (2008), "Density estimation with heteroscedastic error", Bernoulli 14.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> v = rng.choice([-1.0, 1.0], size=(5000, 1)) + 0.3 * rng.normal(size=(5000, 1))
    >>> w = v + rng.laplace(scale=0.2, size=v.shape)
    >>> from deconflow import noise
    >>> model = DeconvolvingKDE().fit(w, noise=noise.laplace([0.2]))
    >>> np.exp(model.score_samples([[-1.0], [0.0], [1.0]])).round(1)  # the truth has 0.7, 0.0, 0.7
    array([0.6, 0. , 0.6])
    """

    _engine_type = Kernels

    def __init__(self, bandwidth: ArrayLike | None = None) -> None:
        self.bandwidth = bandwidth


class WaveletDeconvolver(DensityEstimator):
    r"""Density deconvolution with Meyer wavelets, in one dimension.

    .. math:: \hat f = \sum_k \hat a_{Jk} \, \varphi_{Jk}
              + \sum_{j \ge J} \sum_k \hat b_{jk} \, 1[|\hat b_{jk}| > \lambda_{jk}] \, \psi_{jk}

    with :math:`\lambda_{jk} = \hat\sigma_{jk} \sqrt{2 \log n}` and the level J by its gain in
    squared error. The coefficients are sums over rows in Fourier space, divided by the
    characteristic function of the noise as in :class:`DeconvolvingKDE`; Meyer's wavelets have
    finitely many frequencies, so this is exact. What is negative is cut off and the rest scaled
    to one.

    Parameters
    ----------
    level : int or None
        Level below which wavelets are kept. None chooses from the data, by where the noise ends
        all information.

    Attributes
    ----------
    level_ : int
        Level of the linear part, which has ``2**level_`` functions.
    n_wavelets_ : int
        Number of wavelets that were kept above it.
    density_ : FittedDensity
        The density; ``density_.grid`` has its values.
    relative_error_ : float
        Variance of all kept coefficients over the sum of their squares. Above 0.5, the fit warns.
    n_features_in_ : int
        Number of columns of ``w``: one.

    References
    ----------
    Pensky and Vidakovic (1999), "Adaptive wavelet estimator for nonparametric density
    deconvolution", Annals of Statistics 27.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> v = rng.choice([-1.0, 1.0], size=(5000, 1)) + 0.3 * rng.normal(size=(5000, 1))
    >>> w = v + rng.laplace(scale=0.2, size=v.shape)
    >>> from deconflow import noise
    >>> model = WaveletDeconvolver().fit(w, noise=noise.laplace([0.2]))
    >>> np.exp(model.score_samples([[-1.0], [0.0], [1.0]])).round(1)  # the truth has 0.7, 0.0, 0.7
    array([0.7, 0. , 0.6])
    """

    _engine_type = Wavelets

    def __init__(self, level: int | None = None) -> None:
        self.level = level
