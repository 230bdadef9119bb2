"""WaveletDeconvolver: wavelet density deconvolution in scikit-learn's shape."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils._metadata_requests import UNUSED

from deconflow.checks import check_integer
from deconflow.classical import COARSEST, FINEST, enclose, fit_wavelets
from deconflow.estimators.door import refuse_noise_as_y, unchanged_on_failure
from deconflow.estimators.grid_queries import GridQueries, Units, as_rows, check_background

THRESHOLDS = ("hard", "soft")
LONGEST = 128.0
"""Largest box, in measured standard deviations, that the finest level resolves."""


class WaveletDeconvolver(GridQueries, DensityMixin, BaseEstimator):
    r"""Density deconvolution with Meyer wavelets, in one dimension.

    .. math:: \hat f = \sum_k \hat a_{Jk} \, \varphi_{Jk}
              + \sum_{j \ge J} \sum_k \hat b_{jk} \, 1[|\hat b_{jk}| > \lambda_{jk}] \, \psi_{jk}

    The coefficients are sums over rows in Fourier space, divided by the characteristic function
    of the noise as in :class:`DeconvolvingKDE`; Meyer's wavelets have finitely many frequencies,
    so this is exact. What is negative is cut off and the rest scaled to one.

    Parameters
    ----------
    threshold : {"hard", "soft"} or None
        How wavelets above the linear estimator's level are kept: those that exceed
        :math:`\lambda = \hat\sigma_{jk} \sqrt{2 \log n}` as they are or by what they exceed, or
        none of them (the linear estimator).
    level : int or None
        Resolution: of the linear estimator, or of the finest wavelets. None chooses from the data:
        the linear level by its gain in squared error, the finest by where the noise ends all
        information.
    background : float
        Share of a normal law as wide as the measurements, which keeps log densities finite where
        the estimate is zero.

    Attributes
    ----------
    level_ : int
        Level of the linear part, which has ``2**level_`` functions.
    n_wavelets_ : int
        Number of wavelets that were kept above it.
    density_ : GridDensity
        The density on its grid.
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
    >>> rng = np.random.default_rng(0)
    >>> v = rng.choice([-1.0, 1.0], size=(5000, 1)) + 0.3 * rng.normal(size=(5000, 1))
    >>> w = v + rng.laplace(scale=0.2, size=v.shape)
    >>> from deconflow import noise
    >>> model = WaveletDeconvolver().fit(w, noise=noise.laplace([0.2]))
    >>> np.exp(model.score_samples([[-1.0], [0.0], [1.0]])).round(1)  # the truth has 0.7, 0.0, 0.7
    array([0.7, 0. , 0.6])
    """

    __metadata_request__fit = {"w": UNUSED, "noise": True, "projection": True, "weights": True}
    __metadata_request__score = {"w": UNUSED, "noise": True, "projection": True}

    def __init__(
        self,
        threshold: str | None = "hard",
        *,
        level: int | None = None,
        background: float = 1e-3,
    ) -> None:
        self.threshold = threshold
        self.level = level
        self.background = background

    def fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Fit the density of the truth.

        Parameters
        ----------
        w
            ``(N, 1)`` measurements, complete.
        y
            Ignored.
        noise
            Standard deviations ``(1,)`` or ``(N, 1)``, variances ``(N, 1, 1)``, 0.0 for exact
            rows, a :class:`~deconflow.noise.Noise`, or a torch distribution.
        projection
            Must be None: :class:`XDGMM` takes projections.
        weights
            ``(N,)`` row weights.
        """
        self._check_settings()
        refuse_noise_as_y(y, noise)
        with unchanged_on_failure(self):
            data = self._observe(w, noise, projection, weights, reset=True).with_weight()
            rows = as_rows(data, type(self).__name__, 1)
            units = Units(data)
            low, length = enclose(rows.w, 0.1 * np.ptp(rows.w, axis=0), LONGEST * units.spread)
            (linear, *finer), fit = fit_wavelets(rows, low, length, self.threshold, self.level)
            self.level_ = linear.level
            self.n_wavelets_ = sum(int((part.values != 0).sum()) for part in finer)
            self._take(fit, units)
        return self

    def _check_settings(self) -> None:
        if self.threshold is not None and not (
            isinstance(self.threshold, str) and self.threshold in THRESHOLDS
        ):
            raise ValueError(
                f"Expected threshold to be one of {sorted(THRESHOLDS)} or None; "
                f"got {self.threshold!r}."
            )
        if self.level is not None:
            check_integer("level", self.level, COARSEST)
            if self.level > FINEST:
                raise ValueError(f"Expected level of at most {FINEST}; got {self.level}.")
        check_background(self.background)

    def _learned(self) -> dict[str, Any]:
        return {"level": self.level_, "n_wavelets": self.n_wavelets_}

    def _learn(self, learned: dict[str, Any]) -> None:
        self.level_, self.n_wavelets_ = learned["level"], learned["n_wavelets"]
