"""XDGMM: Extreme Deconvolution in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from deconflow._types import Array
from deconflow.checks import as_floats, warn_caller
from deconflow.estimators.base import MEASURED, DensityEstimator
from deconflow.estimators.stream_fits import everything_of, fit_stream, folds_of_sample, in_memory
from deconflow.estimators.validation import refuse_unseen
from deconflow.estimators.xd_settings import (
    Start,
    as_settings,
    check_settings,
    describe_average,
    given_start,
    is_auto,
    minibatches,
    threads,
)
from deconflow.fits import MixtureFit, Replicates, clear_errors
from deconflow.guests import as_guest
from deconflow.mixtures import GaussianMixture
from deconflow.noise import Noise, as_noise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.saving import refuse
from deconflow.streams import Overview, RowStream
from deconflow.xd import (
    FITTING,
    N_FOLDS,
    Adam,
    AveragedFit,
    EMResult,
    FitSettings,
    PreparedData,
    fit_averaged,
    fit_minibatch,
    lay_out,
    n_parameters,
    row_weights,
)

LEARNED = ("weights_", "means_", "covariances_")


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
        ``(K,)`` shares of the Gaussians.
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

    _takes_covariates = True
    _fits_streams = True

    __metadata_request__predict = MEASURED
    __metadata_request__predict_proba = MEASURED

    _saved: ClassVar = {
        "weights_": Array, "means_": Array, "covariances_": Array,
        "component_counts_": NDArray[np.int64], "n_components_": int, "converged_": bool,
        "n_iter_": int, "lower_bound_": float, "lower_bounds_": Array,
        "selection_": dict[str, NDArray[Any]] | None,
    }  # fmt: skip

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

    @property
    def mixture_(self) -> GaussianMixture:
        """The fitted density, in closed form."""
        check_is_fitted(self)
        return GaussianMixture(self.weights_, self.means_, self.covariances_)

    @property
    def _own_density(self) -> MixtureFit:  # type: ignore[override]
        """The density of the truth: all answers are closed forms."""
        density = MixtureFit(self.mixtures_, self._names, threads(self))
        parts = density.averaged()
        if parts:
            density.replicates = Replicates(parts, "folds")
        return density

    @property
    def mixtures_(self) -> list[GaussianMixture]:
        """The mixtures that are averaged; a single one without an average."""
        whole, count = self.mixture_, len(self.component_counts_)
        edges = np.cumsum(self.component_counts_)[:-1]
        parts = (np.split(part, edges) for part in (whole.weights, whole.means, whole.covariances))
        return [GaussianMixture(count * a, b, c) for a, b, c in zip(*parts, strict=True)]

    def predict_proba(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> Array:
        """Probability of each component given each measurement, ``(N, K)``."""
        check_is_fitted(self)
        _refuse_changed_rows(self, "components")
        data = self._observe(w, noise, projection)
        _, responsibilities = self._own_density.memberships(data)
        assert responsibilities is not None
        return responsibilities

    def predict(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Most probable component of each measurement, ``(N,)``."""
        return self.predict_proba(w, noise, projection=projection).argmax(1)

    def bic(self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None) -> float:
        """Bayesian information criterion on these rows; the lower the better."""
        check_is_fitted(self)
        _refuse_changed_rows(self, "bic")
        log_p = self.score_observations(w, noise, projection=projection)
        return float(self._n_parameters() * np.log(len(log_p)) - 2 * log_p.sum())

    def aic(self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None) -> float:
        """Akaike information criterion on these rows; the lower the better."""
        check_is_fitted(self)
        _refuse_changed_rows(self, "aic")
        log_p = self.score_observations(w, noise, projection=projection)
        return float(2 * self._n_parameters() - 2 * log_p.sum())

    def convolve(self, noise: Any) -> GaussianMixture:
        """Return the density of ``v + n``, for one noise law: what a measurement would follow."""
        check_is_fitted(self)
        dim = self.n_latent_
        if not isinstance(noise, Noise | Distribution):
            noise = as_floats(noise, "noise")
            noise = noise[None] if noise.ndim == 2 else noise
        with as_guest():
            parts = as_noise(noise, 1, dim).as_mixture().take()
        covariances = parts.covariances[0]
        if parts.diagonal:
            covariances = covariances[:, :, None] * np.eye(dim)
        shifts = np.zeros((1, dim)) if parts.means is None else parts.means[0]
        K, J = len(self.weights_), len(covariances)
        return GaussianMixture(
            np.outer(self.weights_, parts.weights[0]).ravel(),
            np.broadcast_to(self.means_[:, None] + shifts, (K, J, dim)).reshape(-1, dim),
            (self.covariances_[:, None] + covariances).reshape(-1, dim, dim),
        )

    def describe(self) -> str:
        """Say in one line what was fitted, and what it was chosen from."""
        count = len(self.component_counts_)
        if count > 1:
            return describe_average(self.selection_, count)
        return (
            f"Gaussian mixture with {self.n_components_} component{'s' * (self.n_components_ > 1)}."
        )

    def _check_parameters(self) -> None:
        check_settings(self)

    def _fit(self, data: Observations) -> None:
        refuse_unseen(data)
        self.__dict__.pop("selection_", None)
        rng = check_random_state(self.random_state)
        if is_auto(self) and len(data) > 1:
            self._climb(data, rng)
            return
        count = 1 if is_auto(self) else int(self.n_components)
        # With bounds every component has a mirror image, which is a component of the same fit.
        settings, start = self._settings(count * self._images, data)
        with clear_errors():
            result = self._fitted(data, settings, start, rng)
        self._take(result, [settings.n_components])
        self._warn_unless_converged()

    def _fit_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        refuse_unseen(sample)
        if minibatches(self) is not None:
            raise ValueError(
                "Expected method='anderson' with rows beyond memory; got "
                f"{self.method!r}. Leave it out."
            )
        self.__dict__.pop("selection_", None)
        if is_auto(self):
            self._climb_stream(sample, stream, overview)
            return
        settings, start = self._settings(int(self.n_components), sample)
        with clear_errors():
            result = fit_stream(
                stream, overview, sample, settings, n_init=1 if start.whole else self.n_init,
                rng=np.random.RandomState(self._stream_seed()), progress=self._progress,
            )  # fmt: skip
        self._take(result, [settings.n_components])
        self._warn_unless_converged()

    def _settings(self, count: int, data: Observations) -> tuple[FitSettings, Start]:
        """Return the settings of a single fit, and what is given of its start."""
        settings, start = as_settings(self, count), given_start(self, count, data.latent_dim)
        return (settings if start.empty else replace(settings, complete=start.complete)), start

    def _warn_unless_converged(self) -> None:
        if not self.converged_ and self.tol > 0:
            advice = f"EM did not converge in {self.max_iter} steps. Raise max_iter or tol, "
            advice += "or set a floor."
            batches = minibatches(self)
            if batches is not None:
                advice = f"Minibatches still gained after {batches.epochs} epochs. Raise epochs."
            warn_caller(advice, ConvergenceWarning)

    def _climb_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        """Leave the number of components and the floor to a sample, and fit all rows."""
        rng = np.random.RandomState(self._stream_seed())
        if in_memory(overview):
            self._climb(sample, rng)
            return
        everything = everything_of(
            stream, overview, sample, N_FOLDS, threads=threads(self), progress=self._progress
        )
        folds = folds_of_sample(overview, N_FOLDS)
        self._climb(sample, rng, folds=folds, everything=everything)

    def _climb(self, data: Observations, rng: np.random.RandomState, **beyond: Any) -> None:
        """Leave the number of components and the floor to the rows.

        With ``beyond`` these are a sample of rows beyond memory.
        """
        lay_out(data)  # so that an error counts the rows of all data, not of a fold
        with clear_errors():
            fit = fit_averaged(data, as_settings(self, 1), rng, progress=self._progress, **beyond)
        self._take_averaged(fit, data)

    def _take_averaged(self, fit: AveragedFit, data: Observations) -> None:
        """Take an average of fits that leave out a fold each."""
        self.selection_ = fit.table
        value = float(np.average(fit.held_out, weights=row_weights(data)))
        result = EMResult(fit.mixture, value, [value], fit.converged, fit.n_iter)
        self._take(result, [part.n_components for part in fit.mixtures])
        self._warn_unless_converged()

    def _restore(self, values: dict[str, Any]) -> None:
        super()._restore(values)
        self.mixture_.validate()
        counts = self.component_counts_
        refuse("mixture", self.mixture_.dim != self.n_latent_, f"of {self.n_latent_} columns")
        bad = (counts < 1).any() or counts.sum() != len(self.weights_)
        refuse("component_counts_", bad or self.n_components_ not in counts, "those of the weights")
        if self.selection_ is None:
            del self.selection_

    def _fitted(
        self, data: Observations, settings: FitSettings, start: Start, rng: np.random.RandomState
    ) -> EMResult:
        batches = minibatches(self)
        if batches is not None:
            adam = Adam.start(data, settings, rng)
            return fit_minibatch(adam, data, settings.stopping, batches, rng, self._progress)
        self._progress.begin(FITTING)
        n_init = 1 if start.whole else self.n_init
        return PreparedData(data).fit_best(settings, n_init, rng)

    def _take(self, result: EMResult, component_counts: Sequence[int]) -> None:
        """Learn what a fit answers."""
        if not all(np.isfinite(getattr(result.mixture, name[:-1])).all() for name in LEARNED):
            raise ValueError(
                "Expected steps that lead to finite weights, means and covariances; got NaN or "
                "inf. Lower learning_rate, set a floor, or look for rows far from all others."
            )
        self.weights_ = result.mixture.weights
        self.means_ = result.mixture.means
        self.covariances_ = result.mixture.covariances
        self.component_counts_ = np.array(component_counts)
        self.n_components_ = int(np.bincount(self.component_counts_).argmax())
        self.converged_, self.n_iter_ = result.converged, result.n_iter
        self.lower_bound_, self.lower_bounds_ = result.log_likelihood, np.array(result.history)

    def _n_parameters(self) -> int:
        return n_parameters(len(self.weights_), self.n_latent_)


def _refuse_changed_rows(model: XDGMM, what: str) -> None:
    """The components are those of rows that were changed by what is known of the truth."""
    if model._knowledge is not None:
        raise ValueError(
            f"Expected a model without covariates, bounds, atoms or background for {what}; got one "
            f"with some: {' '.join(model.known_)}"
        )
