"""DeconvolvingKDE: kernel density deconvolution in scikit-learn's shape."""

from numpy.typing import ArrayLike

from deconflow.engines import Kernels
from deconflow.estimators.base import DensityEstimator


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
