"""WaveletDeconvolver: wavelet density deconvolution in scikit-learn's shape."""

from deconflow.engines import Wavelets
from deconflow.estimators.base import DensityEstimator


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
