"""XDGMM: Extreme Deconvolution in scikit-learn's shape."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from deconflow import models
from deconflow._types import Array, IntArray
from deconflow.engines import XD, check_settings
from deconflow.estimators.base import NO_ROUTING, DensityEstimator
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import n_parameters


class XDGMM(DensityEstimator):
    r"""Extreme Deconvolution: a Gaussian mixture of the truth, from noisy rows.

    .. math:: w_i = R_i v_i + n_i, \quad n_i \sim N(0, S_i), \quad
              p(v) = \sum_k \pi_k \, N(v; m_k, V_k)

    Parameters
    ----------
    n_components : int or "auto"
        Number of Gaussians. With ``"auto"`` numbers and floors are tried until more do not help,
        and averaged over fits that leave out one fifth of the rows each, by shares that these rows
        decide; with few rows also with covariances shrunk towards independent columns.
    method : {"anderson", "em", "minibatch"} or dict
        EM with safeguarded acceleration, plain EM, or minibatch gradients (Adam). A dict sets any
        of these three options of the last: ``{"minibatch": {"batch_size": 1000, "epochs": 20,
        "learning_rate": 0.02}}``.
    init : {"kmeans", "random"}, GaussianMixture or dict
        Where to start. Of a dict with any of ``"weights"`` ``(K,)``, ``"means"`` ``(K, D)`` and
        ``"covariances"`` ``(K, D, D)`` the rest comes from k-means. The ``mixture_`` of another
        fit continues that fit.
    n_init : int
        Number of starts, of which the best is kept.
    tol, max_iter
        EM stops when a step gains at most ``tol`` in mean log-likelihood, or after ``max_iter``.
    floor : float
        Smallest covariance of a component, in units of the mean noise covariance (of Student-t
        and Laplace noise: the inverse of its mean precision). Without a floor components collapse
        onto single rows, and the noisy likelihood hardly changes when they do.
    fixed : dict or None
        Components that keep what they start with: ``"weights"``, ``"means"`` or ``"covariances"``,
        each with a boolean, or one for each component: ``{"means": True}``.
    bounds : dict, sequence or None
        Where the truth can be at all: ``{"x": (0, None)}``, or a pair ``(low, high)`` per column,
        None for no bound. Mixtures are fitted to the rows and their mirror images, and folded.
    atoms : sequence or None
        Places where a share of the truth sits exactly: numbers in one column, else points
        ``(A, D)``. The components are those of the rest.
    background : "uniform", density or None
        The law of rows that are no measurements of a truth: uniform over the measured range, or a
        log density of ``w`` of your own. Its share is estimated.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Threads; None or -1 for one per processor that the process was allowed. The answer does not
        depend on it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    weights_ : array
        ``(K,)`` shares of the Gaussians. With bounds there are none of these three: the density is
        that of Gaussians folded at the bounds, ``density_``.
    means_ : array
        ``(K, D)``.
    covariances_ : array
        ``(K, D, D)``.
    n_components_ : int
        Number of Gaussians of a fit; with ``"auto"``, the most frequent of ``component_counts_``.
    component_counts_ : array
        Number of Gaussians of each fit that is averaged: with ``"auto"`` one for each fold that is
        left out, else a single one.
    converged_ : bool
        Whether the fit converged: EM by ``tol``; minibatches if the last quarter of the epochs
        gained at most ``tol`` (or 1e-4) per epoch over the quarter before.
    n_iter_ : int
        Number of passes over the rows.
    lower_bound_ : float
        Mean log-likelihood of the rows; with ``"auto"``, of the rows that each fit leaves out.
    lower_bounds_ : array
        The same for every step of EM, where it never falls; with ``"auto"`` a single value. For
        minibatches one per epoch, the mean over its rows, each before the step of its batch: these
        may fall.
    selection_ : dict of arrays
        With ``"auto"``: all that was tried, with its held-out log-likelihood and its share.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Bovy, Hogg, Roweis (2011), "Extreme Deconvolution", https://arxiv.org/abs/0905.2979

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.normal(size=(2000, 2)) * [1.0, 0.5]
    >>> w = v + rng.normal(size=(2000, 2)) * [0.3, 0.6]
    >>> model = XDGMM(1, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> np.sqrt(np.diag(model.covariances_[0])).round(1)
    array([1. , 0.5])
    """

    _engine_type = XD

    def __init__(
        self,
        n_components: int | str = 1,
        *,
        method: str | Mapping[str, Mapping[str, float]] = "anderson",
        init: str | GaussianMixture | Mapping[str, ArrayLike] = "kmeans",
        n_init: int = 1,
        tol: float = 1e-6,
        max_iter: int = 1000,
        floor: float = 0.0,
        fixed: Mapping[str, ArrayLike | bool] | None = None,
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.floor = floor
        self.fixed = fixed
        self.bounds = bounds
        self.atoms = atoms
        self.background = background
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    __metadata_request__predict = NO_ROUTING
    __metadata_request__predict_proba = NO_ROUTING

    def _check_together(self) -> None:
        check_settings(self)

    @property
    def mixture_(self) -> GaussianMixture:
        """The fitted density, in closed form."""
        check_is_fitted(self)
        models.refuse_changed(self.fit_, "mixture_")
        return GaussianMixture(self.weights_, self.means_, self.covariances_)

    def predict_proba(self, w: ArrayLike | Observations, noise: Any = None, **facts: Any) -> Array:
        """Probability of each component given each measurement, ``(N, K)``."""
        check_is_fitted(self)
        models.refuse_changed(self.fit_, "components")
        own: Any = self.fit_.own
        return own.memberships(self._rows(w, noise, facts))[1]

    def predict(self, w: ArrayLike | Observations, noise: Any = None, **facts: Any) -> IntArray:
        """Most probable component of each measurement, ``(N,)``."""
        return self.predict_proba(w, noise, **facts).argmax(1)

    def bic(self, w: ArrayLike | Observations, noise: Any = None, **facts: Any) -> float:
        """Bayesian information criterion on these rows; the lower the better."""
        return self._criterion(np.log, w, noise, facts)

    def aic(self, w: ArrayLike | Observations, noise: Any = None, **facts: Any) -> float:
        """Akaike information criterion on these rows; the lower the better."""
        return self._criterion(lambda n: 2.0, w, noise, facts)

    def _criterion(self, penalty: Any, w: Any, noise: Any, facts: dict[str, Any]) -> float:
        rows = self._rows(w, noise, facts)
        free = n_parameters(int(self.component_counts_.sum()), len(self.fit_.names))
        return models.criterion(self.fit_, rows, free, penalty)
