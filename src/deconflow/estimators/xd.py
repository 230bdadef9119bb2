"""Gaussian mixtures: Extreme Deconvolution, and its Bayesian form."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow import models
from deconflow._types import Array, IntArray
from deconflow.checks import check_integer, check_number
from deconflow.engines import XD, Bayes, check_settings
from deconflow.estimators.base import NO_ROUTING, DensityEstimator
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import FLOORS, n_parameters


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
        super().__init__(
            bounds=bounds,
            atoms=atoms,
            background=background,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.n_components = n_components
        self.method = method
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.floor = floor
        self.fixed = fixed

    __metadata_request__predict = NO_ROUTING
    __metadata_request__predict_proba = NO_ROUTING

    def _check_together(self) -> None:
        check_settings(self)

    @property
    def mixture_(self) -> GaussianMixture:
        """The fitted density, in closed form."""
        models.refuse_changed(self.fit_, "mixture_")
        return GaussianMixture(self.weights_, self.means_, self.covariances_)

    def predict_proba(self, w: ArrayLike | Observations, noise: Any = None, **facts: Any) -> Array:
        """Probability of each component given each measurement, ``(N, K)``."""
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


class BayesianXDGMM(DensityEstimator):
    r"""A Dirichlet mixture of Gaussians under noise, by Gibbs sampling: nothing to choose.

    .. math:: w_i = R_i v_i + n_i, \quad
              p(v) = E \Bigl[ \sum_k \pi_k \, N(v; \mu_k, U_k + F) \;\Bigl|\; w \Bigr]

    The mean is over the posterior of all weights, means and covariances, as several chains of
    draws see it. The prior has a scale of its own for every component and needs no setting. Every
    two chains leave out one of five folds of the rows, which tell how well the chains agree.

    Parameters
    ----------
    n_chains : int
        Number of chains, whose densities are averaged. More are better, and take longer: one does
        not find all ways in which components can share the rows.
    n_components : int or None
        Most components that a chain can use; None for a number that grows with rows and columns.
        Those that the rows do not ask for stay empty.
    floor : float or sequence of float
        The least covariance ``F`` of a component, in units of the mean noise covariance, as in
        :class:`XDGMM`; of several, the folds take turns, or the chains where there are no folds.
    n_sweeps : int or None
        Draws of everything by each chain, the first third of which is not used; None for a number
        that takes the rows into account.
    n_snapshots : int
        Mixtures that are kept of each chain.
    bounds, atoms, background
        What is known of the truth: see :class:`XDGMM`.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Chains to sample at a time; None or -1 for one per processor that the process was allowed.
        The answer does not depend on it.
    checkpoint : path or None
        A file to keep finished chains in; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    mixtures_ : list of GaussianMixture
        One for each chain, the average of its snapshots.
    n_components_ : int
        Most components that a chain could use.
    n_used_ : array
        Mean number of components with rows, for each chain.
    floors_ : array
        The floor of each chain.
    n_sweeps_ : int
        Number of sweeps.
    n_rows_ : int
        Rows that were sampled: those whose noise is so wide that all of them together say less than
        a hundredth of the whole are left out.
    held_out_score_ : float or None
        Mean ``log p(w)`` of the rows of the folds, each under the chains that left it out; None
        with fewer than four chains, or few rows: then chains leave nothing out.
    chain_spread_ : float or None
        Standard deviation between chains of their mean ``log p(w)`` on the same rows, held-out ones
        if there are any; None for a single chain. Above 0.1, the fit warns.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Malsiner-Walli, Frühwirth-Schnatter, Grün (2016), "Model-based clustering based on sparse finite
    Gaussian mixtures", https://arxiv.org/abs/1606.06828

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.normal(size=(500, 2)) * [1.0, 0.5]
    >>> w = v + rng.normal(size=(500, 2)) * [0.3, 0.6]
    >>> model = BayesianXDGMM(2, n_sweeps=60, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.density_.mixture.sd.round(1)
    array([1. , 0.5])
    """

    _engine_type = Bayes

    def __init__(
        self,
        n_chains: int = 10,
        *,
        n_components: int | None = None,
        floor: float | Sequence[float] = FLOORS,
        n_sweeps: int | None = None,
        n_snapshots: int = 10,
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            bounds=bounds,
            atoms=atoms,
            background=background,
            random_state=random_state,
            n_jobs=n_jobs,
            checkpoint=checkpoint,
            verbose=verbose,
        )
        self.n_chains = n_chains
        self.n_components = n_components
        self.floor = floor
        self.n_sweeps = n_sweeps
        self.n_snapshots = n_snapshots

    def _check_together(self) -> None:
        if self.n_components is not None:
            check_integer("n_components", self.n_components, 1)
        floors = np.ravel(np.asarray(self.floor, object))
        if not len(floors):
            raise ValueError("Expected at least one value of floor; got none.")
        for value in floors:
            check_number("floor", value, 0.0)
