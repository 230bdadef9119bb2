"""XDGMM: Extreme Deconvolution in scikit-learn's shape."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._metadata_requests import UNUSED
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_integer
from deconflow.estimators.door import refuse_noise_as_y, unchanged_on_failure
from deconflow.estimators.persistence import read_model, write_model
from deconflow.estimators.xd_queries import MixtureQueries, clear_errors
from deconflow.estimators.xd_settings import (
    Start,
    as_settings,
    check_settings,
    given_start,
    several,
    threads,
)
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import (
    Adam,
    EMResult,
    FitSettings,
    Mixture,
    PreparedData,
    choose,
    compare,
    fit_average,
    fit_minibatch,
    step_on_batch,
)

LEARNED = ("weights_", "means_", "covariances_")


class XDGMM(MixtureQueries, DensityMixin, BaseEstimator):
    r"""Extreme Deconvolution: a Gaussian mixture of the truth, from noisy rows.

    .. math:: w_i = R_i v_i + n_i, \quad n_i \sim N(0, S_i), \quad
              p(v) = \sum_k \pi_k \, N(v; m_k, V_k)

    Parameters
    ----------
    n_components : int or sequence of int
        Number of Gaussians; of several, one is chosen on held-out rows.
    method : {"anderson", "em", "minibatch"}
        EM with safeguarded acceleration, plain EM, or minibatch gradients.
    init : {"kmeans", "random"}
        Where to start.
    n_init : int
        Number of starts, of which the best is kept.
    tol, max_iter
        EM stops when a step gains at most ``tol`` in mean log-likelihood, or after ``max_iter``.
    floor : float or sequence of float
        Smallest covariance of a component, in units of the mean noise covariance (of Student-t
        and Laplace noise: the inverse of its mean precision); of several, one is chosen on held-out
        rows, or averaged by how likely each is the best. Without a floor components collapse onto
        single rows, and the noisy likelihood hardly sees it.
    regularisation : float
        The ``w`` of Bovy et al.: covariances are ``(sum + w I) / (q + 1)``.
    n_average : int
        Number of fits whose densities are averaged; the result has as many times the components.
    average_over : {"starts", "folds"}
        Whether these fits differ by their start, or by the fold of rows that they leave out.
    folds : int
        For a choice: the number of parts of the rows, each held out once.
    split_merge : int
        How many split-and-merge moves to try after EM, before giving up; 0 for none.
    weights_init, means_init, covariances_init : array or None
        A start: ``(K,)``, ``(K, D)``, ``(K, D, D)``. What is None comes from ``init``.
    fixed_weights, fixed_means, fixed_covariances : bool, array of bool or None
        Components that keep what they start with.
    warm_start : bool
        Whether the next fit starts from the last.
    batch_size, epochs, learning_rate
        For ``method="minibatch"`` and :meth:`partial_fit`.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Threads; None or -1 for one a processor. The answer does not depend on it.

    Attributes
    ----------
    weights_, means_, covariances_ : array
        The mixture.
    converged_ : bool
        Whether the fit converged: EM by ``tol``; minibatches if the last quarter of the epochs
        gained at most ``tol`` (or 1e-4) per epoch over the quarter before. Never claimed after
        :meth:`partial_fit`, which cannot know.
    n_iter_ : int
        Number of passes over the rows.
    lower_bound_ : float
        Mean log-likelihood of the rows, with the log prior if ``regularisation`` is above 0; for an
        average, of its best fit.
    lower_bounds_ : array
        The same for every step of EM, where it never falls. For minibatches one per epoch, the mean
        over its rows, each before the step of its batch; for :meth:`partial_fit` one per call, of
        its own rows. These two may fall.
    selection_ : dict of arrays
        What a choice was based on, if there was one.
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

    _adam: Adam

    __metadata_request__fit = {"w": UNUSED, "noise": True, "projection": True, "weights": True}
    __metadata_request__partial_fit = __metadata_request__fit
    __metadata_request__score = {"w": UNUSED, "noise": True, "projection": True}
    __metadata_request__predict = {"w": UNUSED, "noise": True, "projection": True}
    __metadata_request__predict_proba = __metadata_request__predict

    def __init__(
        self,
        n_components: int | Sequence[int] = 1,
        *,
        method: str = "anderson",
        init: str = "kmeans",
        n_init: int = 1,
        tol: float = 1e-6,
        max_iter: int = 1000,
        floor: float | Sequence[float] = 0.0,
        regularisation: float = 0.0,
        n_average: int = 1,
        average_over: str = "starts",
        folds: int = 5,
        split_merge: int = 0,
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        covariances_init: ArrayLike | None = None,
        fixed_weights: ArrayLike | bool | None = None,
        fixed_means: ArrayLike | bool | None = None,
        fixed_covariances: ArrayLike | bool | None = None,
        warm_start: bool = False,
        batch_size: int = 1000,
        epochs: int = 20,
        learning_rate: float = 0.02,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.init = init
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.floor = floor
        self.regularisation = regularisation
        self.n_average = n_average
        self.average_over = average_over
        self.folds = folds
        self.split_merge = split_merge
        self.weights_init = weights_init
        self.means_init = means_init
        self.covariances_init = covariances_init
        self.fixed_weights = fixed_weights
        self.fixed_means = fixed_means
        self.fixed_covariances = fixed_covariances
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Fit the density of the truth.

        Parameters
        ----------
        w
            ``(N, M)`` measurements; NaN marks a missing value.
        y
            Ignored.
        noise
            Standard deviations ``(M,)`` or ``(N, M)``, covariances ``(M, M)`` or ``(N, M, M)``,
            0.0 for exact rows, a :class:`~deconflow.noise.Noise` (what is not Gaussian enters as a
            mixture of Gaussians), or a torch distribution over ``M`` values.
        projection
            ``(N, M, D)`` or ``(M, D)``, if what is measured is ``R v + n``.
        weights
            ``(N,)`` row weights.
        """
        check_settings(self)
        refuse_noise_as_y(y, noise)
        with unchanged_on_failure(self), clear_errors():
            data = self._observe(w, noise, projection, weights, reset=True).with_weight()
            self.__dict__.pop("selection_", None)
            rng = check_random_state(self.random_state)
            counts, floors = several(self.n_components), several(self.floor)
            settings = as_settings(self, int(counts[0]), float(floors[0]))
            start = self._start(settings, data.latent_dim)
            if not start.empty:
                settings = replace(settings, complete=start.complete)
            several_settings = [settings] * self.n_average
            if len(counts) > 1 or len(floors) > 1:
                several_settings = self._choose(data, settings, counts, floors, rng)
            self.__dict__.pop("_adam", None)  # a later partial_fit starts from this fit
            self._take(self._fit(data, several_settings, start, rng), data.latent_dim)
        return self

    def partial_fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Take one gradient step on each batch of these rows; the first call also starts.

        Parameters are those of :meth:`fit`. Data that do not fit in memory come in pieces.
        """
        check_settings(self)
        refuse_noise_as_y(y, noise)
        with unchanged_on_failure(self), clear_errors():
            fitted = hasattr(self, "means_")
            data = self._observe(w, noise, projection, weights, reset=not fitted).with_weight()
            self._take_steps(data, fitted)
        return self

    def _take_steps(self, data: Observations, fitted: bool) -> None:
        """Take the steps of :meth:`partial_fit`."""
        if hasattr(self, "_adam"):
            self._adam = copy.deepcopy(self._adam)  # a failure must leave the old one
        else:
            count = len(self.weights_) if fitted else int(several(self.n_components)[0])
            settings = as_settings(self, count, float(several(self.floor)[0]))
            start = Start(*(getattr(self, name, None) for name in LEARNED))
            if not fitted:
                start = given_start(self, count, data.latent_dim)
                _refuse_small_piece(data, count, start)
            rng = check_random_state(self.random_state)
            settings = replace(settings, complete=start.complete)
            self._adam = Adam.start(data, settings, self.learning_rate, rng)
        values = [
            step_on_batch(self._adam, part, threads=threads(self))
            for part in data.chunks(int(self.batch_size))
        ]
        history = [*getattr(self, "lower_bounds_", []), float(np.mean(values))]
        result = EMResult(self._adam.restored, history[-1], history, False, self._adam.steps)
        self._take(result, data.latent_dim, warn=False)

    def compare_components(
        self,
        w: ArrayLike,
        n_components: Sequence[int],
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        folds: int | None = 5,
    ) -> dict[str, NDArray[Any]]:
        """Compare numbers of components by BIC, AIC and cross-validation, for a table or a plot.

        Parameters
        ----------
        w, noise, projection, weights
            As for :meth:`fit`.
        n_components
            Numbers to compare.
        folds
            Number of folds; None for no cross-validation.
        """
        check_settings(self)
        for count in n_components:
            check_integer("n_components", count, 1)
        data = clone(self)._observe(w, noise, projection, weights, reset=True).with_weight()
        settings = as_settings(self, 1, float(several(self.floor)[0]))
        return compare(
            data, settings, n_components, n_init=self.n_init, folds=folds,
            random_state=self.random_state,
        )  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a folder, as JSON and safetensors."""
        check_is_fitted(self)
        details = {
            "converged": bool(self.converged_),
            "n_iter": int(self.n_iter_),
            "lower_bound": float(self.lower_bound_),
            "lower_bounds": [float(value) for value in self.lower_bounds_],
            "selection": {k: v.tolist() for k, v in getattr(self, "selection_", {}).items()},
        }
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in LEARNED}
        write_model(path, self, details, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that :meth:`save` wrote."""
        return read_model(path, cls, {})

    def _restore(self, details: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`save` wrote."""
        mixture = Mixture(*(arrays[name].numpy() for name in LEARNED))
        value, history = details["lower_bound"], details["lower_bounds"]
        result = EMResult(mixture, value, history, details["converged"], details["n_iter"])
        self._take(result, self.n_latent_, warn=False)
        if details["selection"]:
            self.selection_ = {k: np.array(v) for k, v in details["selection"].items()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "means_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value
        return tags

    def _start(self, settings: FitSettings, dim: int) -> Start:
        last = getattr(self, "means_", np.empty((0, 0)))
        if self.warm_start and last.shape == (settings.n_components, dim):
            return Start(self.weights_, self.means_, self.covariances_)
        return given_start(self, settings.n_components, dim)

    def _choose(
        self,
        data: Observations,
        settings: FitSettings,
        counts: Sequence[int],
        floors: Sequence[float],
        rng: np.random.RandomState,
    ) -> list[FitSettings]:
        """Choose settings for every fit that is averaged."""
        chosen, self.selection_ = choose(
            data, settings, counts, floors, n_average=self.n_average, folds=self.folds, rng=rng
        )
        return chosen

    def _fit(
        self,
        data: Observations,
        several_settings: list[FitSettings],
        start: Start,
        rng: np.random.RandomState,
    ) -> EMResult:
        if self.method == "minibatch":
            settings = several_settings[0]
            adam = Adam.start(data, settings, self.learning_rate, rng)
            return fit_minibatch(
                adam, data, settings.stopping,
                epochs=self.epochs, batch_size=self.batch_size, rng=rng,
            )  # fmt: skip
        if self.n_average > 1:
            return fit_average(data, several_settings, self.average_over, self.n_init, rng)
        n_init = 1 if start.whole else self.n_init
        return PreparedData(data).fit_best(several_settings[0], n_init, rng)

    def _take(self, result: EMResult, dim: int, *, warn: bool = True) -> None:
        """Learn what a fit answers."""
        self.weights_ = result.mixture.weights
        self.means_ = result.mixture.means
        self.covariances_ = result.mixture.covariances
        self.converged_, self.n_iter_ = result.converged, result.n_iter
        self.lower_bound_, self.lower_bounds_ = result.log_likelihood, np.array(result.history)
        self.n_latent_ = dim
        self.parameters_ = self.get_params()
        if warn and not result.converged and self.tol > 0:
            advice = f"EM did not converge in {self.max_iter} steps. Raise max_iter or tol, "
            advice += "or set a floor."
            if self.method == "minibatch":
                advice = f"Minibatches still gained after {self.epochs} epochs. Raise epochs."
            warnings.warn(advice, ConvergenceWarning, stacklevel=3)


def _refuse_small_piece(data: Observations, count: int, start: Start) -> None:
    """The first piece places the components, which later pieces can only move."""
    if start.means is None and len(torch.unique(data.w, dim=0)) < count:
        raise ValueError(
            f"Expected a first piece of at least {count} different rows, as many as components, "
            f"that is like the data; got {len(torch.unique(data.w, dim=0))}."
        )
