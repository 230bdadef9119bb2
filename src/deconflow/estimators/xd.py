"""XDGMM: Extreme Deconvolution in scikit-learn's shape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch.distributions import Distribution

from deconflow._limits import threads_at_most
from deconflow._types import Array
from deconflow.checks import as_floats, check_integer, check_seed, warn_caller
from deconflow.estimators.averaged_streams import everything_of, folds_of_sample, in_memory
from deconflow.estimators.base import MEASURED, DensityEstimator
from deconflow.estimators.mixture_fit import MixtureFit, clear_errors
from deconflow.estimators.replicates import Replicates
from deconflow.estimators.saved_values import refuse, saved_mixture, saved_table
from deconflow.estimators.stream_fits import fit_stream, refuse_for_streams
from deconflow.estimators.validation import refuse_noise_as_y, refuse_unseen, unchanged_on_failure
from deconflow.estimators.xd_settings import (
    N_FOLDS,
    Start,
    as_settings,
    averages_what_it_compares,
    check_counts,
    check_settings,
    describe_average,
    given_start,
    is_auto,
    several,
    starts_to_compare,
    threads,
)
from deconflow.guests import as_guest
from deconflow.mixtures import GaussianMixture
from deconflow.model_files import check_form
from deconflow.noise import Noise, as_noise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.streams import Overview, RowStream
from deconflow.xd import (
    FITTING,
    Adam,
    AveragedFit,
    EMResult,
    FitSettings,
    PreparedData,
    average_over_folds,
    choose,
    compare,
    fit_average,
    fit_averaged,
    fit_minibatch,
    lay_out,
    n_parameters,
    row_weights,
    step_on_batch,
)

ROWS_TO_CHOOSE = 200_000
"""Rows of a sample that choose between numbers of components, where there are more."""
LEARNED = ("weights_", "means_", "covariances_")
SAVED_DETAILS = {
    "converged": bool,
    "n_iter": int,
    "n_components": int,
    "component_counts": [int],
    "lower_bound": float,
    "lower_bounds": [float],
    "selection": {str: object},
}


class XDGMM(DensityEstimator):
    r"""Extreme Deconvolution: a Gaussian mixture of the truth, from noisy rows.

    .. math:: w_i = R_i v_i + n_i, \quad n_i \sim N(0, S_i), \quad
              p(v) = \sum_k \pi_k \, N(v; m_k, V_k)

    Parameters
    ----------
    n_components : int, sequence of int or "auto"
        Number of Gaussians; of several, one is chosen on held-out rows, or with ``n_average``
        above 1 all are averaged that these rows do not rule out. With ``"auto"`` numbers and
        floors are tried until more do not help, and averaged over ``n_folds`` fits that leave out
        a fold each; with few rows also with covariances shrunk towards independent columns.
    method : {"anderson", "em", "minibatch"}
        EM with safeguarded acceleration, plain EM, or minibatch gradients.
    init : {"kmeans", "random"}
        Where to start.
    n_init : int
        Number of starts, of which the best is kept; several settings that are averaged over folds
        have at least four starts each, averaged.
    tol, max_iter
        EM stops when a step gains at most ``tol`` in mean log-likelihood, or after ``max_iter``.
    floor : float or sequence of float
        Smallest covariance of a component, in units of the mean noise covariance (of Student-t
        and Laplace noise: the inverse of its mean precision); the same for several. Without a floor
        components collapse onto single rows, and the noisy likelihood hardly sees it.
    regularisation : float
        The ``w`` of Bovy et al.: covariances are ``(sum + w I) / (q + 1)``.
    n_average : int
        Number of fits whose densities are averaged; the result has as many times the components.
        Of several settings averaged over folds: the number of folds, at most that of the rows or
        groups. Without each of them all settings are fitted, and averaged by shares that the rows
        left out decide.
    average_over : {"starts", "folds"}
        Whether these fits differ by their start, or by the fold of rows that they leave out; of no
        meaning with ``n_average=1``.
    n_folds : int
        For a choice: the number of parts of the rows, each held out once. Several settings that
        are averaged over folds have ``n_average`` parts instead.
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
    checkpoint : path or None
        A file that keeps the mixture after every pass over rows beyond memory: the same fit goes on
        from there if it was interrupted. Fits in memory keep nothing.
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
        Number of Gaussians of a fit; of an average, the most frequent of ``component_counts_``.
    component_counts_ : array
        Number of Gaussians of each fit that is averaged; a single one without an average. With
        ``"auto"``, and of several settings averaged over folds, that of all fits without a fold.
    converged_ : bool
        Whether the fit converged: EM by ``tol``; minibatches if the last quarter of the epochs
        gained at most ``tol`` (or 1e-4) per epoch over the quarter before. Never claimed after
        :meth:`partial_fit`, which cannot know.
    n_iter_ : int
        Number of passes over the rows.
    lower_bound_ : float
        Mean log-likelihood of the rows, with the log prior if ``regularisation`` is above 0; for an
        average, of its best fit; with ``"auto"``, and of several settings averaged over folds, of
        the rows that each fit leaves out.
    lower_bounds_ : array
        The same for every step of EM, where it never falls; a single value where rows were left
        out. For minibatches one per epoch, the mean
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
    _takes_covariates = True
    _fits_streams = True

    __metadata_request__partial_fit = {**MEASURED, "sample_weight": True}
    __metadata_request__predict = MEASURED
    __metadata_request__predict_proba = MEASURED

    def __init__(
        self,
        n_components: int | Sequence[int] | str = 1,
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
        n_folds: int = N_FOLDS,
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
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: bool = False,
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
        self.n_folds = n_folds
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
        self.bounds = bounds
        self.atoms = atoms
        self.background = background
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
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
        if parts and (is_auto(self) or self.parameters_["average_over"] == "folds"):
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
        shared_out = is_auto(self) or averages_what_it_compares(self)
        told = shared_out and "share" in getattr(self, "selection_", {})  # not in all older models
        if told and len(self.component_counts_) > 1:  # a partial_fit makes one mixture of them
            floors = not is_auto(self)
            return describe_average(self.selection_, len(self.component_counts_), floors=floors)
        count, sizes = len(self.component_counts_), np.unique(self.component_counts_)
        size = " or ".join(map(str, sizes)) + f" component{'s' if sizes[-1] > 1 else ''}"
        what = f"Gaussian mixture with {size}"
        if count > 1:
            what = f"Average of {count} Gaussian mixtures with {size} each"
        return f"{what}{self._chosen_from()}."

    def _chosen_from(self) -> str:
        """Say which components and floors held-out rows chose, and from which."""
        if not hasattr(self, "selection_"):
            return ""
        words = ""
        for name in ("n_components", "floor"):
            values, chosen = self.selection_[name], self.selection_["chosen"]
            tried, taken = (list(map(str, np.unique(v))) for v in (values, values[chosen]))
            if len(tried) > 1:
                said = f" and floor {', '.join(taken)}" if name == "floor" else ""
                words += f"{said}, chosen from {', '.join(tried)}"
        return words

    def partial_fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take one gradient step on each batch of these rows; the first call also starts.

        Parameters are those of :meth:`fit`. Data that do not fit in memory come in pieces.
        """
        check_settings(self)
        check_seed(self.random_state)
        refuse_noise_as_y(w, y, noise)
        _refuse_knowledge(self)
        with as_guest(), threads_at_most(self.n_jobs), unchanged_on_failure(self), clear_errors():
            fitted = hasattr(self, "means_")
            reset = not fitted
            data = self._rows(w, noise, projection, sample_weight, reset=reset).with_weight()
            if reset:
                refuse_unseen(data)
            self._take_steps(data, fitted)
            self.parameters_ = self.get_params()
        return self

    def _take_steps(self, data: Observations, fitted: bool) -> None:
        """Take the steps of :meth:`partial_fit`."""
        if hasattr(self, "_adam"):
            self._adam = copy.deepcopy(self._adam)  # a failure must leave the old one
        else:
            if is_auto(self) and not fitted:
                raise ValueError(
                    'Expected n_components as a number for partial_fit; got "auto", which needs '
                    "all rows at once. Give one."
                )
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
        self._take(result, [self._adam.restored.n_components])

    def compare_components(
        self,
        w: ArrayLike,
        n_components: Sequence[int],
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        n_folds: int | None = 5,
    ) -> dict[str, NDArray[Any]]:
        """Compare numbers of components by BIC, AIC and cross-validation, for a table or a plot.

        Parameters
        ----------
        w, noise, projection, sample_weight, groups
            As for :meth:`fit`.
        n_components
            Numbers to compare.
        n_folds
            Number of folds; None for no cross-validation.
        """
        check_settings(self)
        check_seed(self.random_state)
        counts = check_counts(n_components)
        if n_folds is not None:
            check_integer("n_folds", n_folds, 2)
        twin = clone(self)
        data, *_ = twin._observe_to_fit(w, noise, projection, sample_weight, groups)
        settings = as_settings(self, 1, float(several(self.floor)[0]))
        with as_guest(), threads_at_most(self.n_jobs):
            return compare(
                data, settings, counts, n_init=self.n_init, folds=n_folds,
                random_state=self.random_state,
            )  # fmt: skip

    def _check_parameters(self) -> None:
        check_settings(self)

    def _fit(self, data: Observations) -> None:
        refuse_unseen(data)
        self.__dict__.pop("selection_", None)
        rng = check_random_state(self.random_state)
        if is_auto(self) and len(data) > 1:
            self._climb(data, rng)
            return
        # With bounds every component has a mirror image, which is a component of the same fit.
        counts = [1] if is_auto(self) else [n * self._images for n in several(self.n_components)]
        floors = several(self.floor)
        settings = as_settings(self, int(counts[0]), float(floors[0]))
        start = self._start(settings, data.latent_dim)
        if not start.empty:
            settings = replace(settings, complete=start.complete)
        each = [settings] * self.n_average
        if self.n_average > 1 or len(counts) * len(floors) > 1:
            lay_out(data)  # so that an error counts the rows of all data, not of a fold
        if averages_what_it_compares(self):
            with clear_errors():
                fit = average_over_folds(
                    data, settings, counts, floors, folds=self.n_average,
                    starts=1 if start.whole else starts_to_compare(self), rng=rng,
                    progress=self._progress,
                )  # fmt: skip
            self._take_averaged(fit, data)
            return
        with clear_errors():
            if len(counts) > 1 or len(floors) > 1:
                each = self._choose(data, settings, counts, floors, rng)
            self.__dict__.pop("_adam", None)  # a later partial_fit starts from this fit
            result = self._fitted(data, each, start, rng)
        self._take(result, [part.n_components for part in result.averaged or [result.mixture]])
        self._warn_unless_converged()

    def _fit_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        refuse_unseen(sample)
        refuse_for_streams(self)
        self.__dict__.pop("selection_", None)
        if is_auto(self):
            self._climb_stream(sample, stream, overview)
            return
        rng, counts = np.random.RandomState(self._stream_seed()), several(self.n_components)
        settings = as_settings(self, int(counts[0]), float(several(self.floor)[0]))
        start = self._start(settings, sample.latent_dim)
        if not start.empty:
            settings = replace(settings, complete=start.complete)
        with clear_errors():
            if len(counts) > 1:
                some = sample[:ROWS_TO_CHOOSE]
                settings = self._choose(some, settings, counts, several(self.floor), rng)[0]
            self.__dict__.pop("_adam", None)
            result = fit_stream(
                stream, overview, sample, settings, n_init=1 if start.whole else self.n_init,
                rng=rng, seed=self.random_state if isinstance(self.random_state, int) else None,
                progress=self._progress, checkpoint=self.checkpoint,
            )  # fmt: skip
        self._take(result, [result.mixture.n_components])
        self._warn_unless_converged()

    def _warn_unless_converged(self) -> None:
        if not self.converged_ and self.tol > 0:
            advice = f"EM did not converge in {self.max_iter} steps. Raise max_iter or tol, "
            advice += "or set a floor."
            if self.method == "minibatch":
                advice = f"Minibatches still gained after {self.epochs} epochs. Raise epochs."
            warn_caller(advice, ConvergenceWarning)

    def _climb_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        """Leave the number of components and the floor to a sample, and fit all rows."""
        rng = np.random.RandomState(self._stream_seed())
        if in_memory(overview):
            self._climb(sample, rng)
            return
        if self.checkpoint is not None:
            warn_caller(
                'Fits with n_components="auto" keep no checkpoint: one that is interrupted starts '
                "anew."
            )
        everything = everything_of(
            stream, overview, sample, self.n_folds, threads=threads(self), progress=self._progress
        )
        folds = folds_of_sample(overview, self.n_folds)
        self._climb(sample, rng, folds=folds, everything=everything)

    def _climb(self, data: Observations, rng: np.random.RandomState, **beyond: Any) -> None:
        """Leave the number of components and the floor to the rows.

        With ``beyond`` these are a sample of rows beyond memory.
        """
        lay_out(data)  # so that an error counts the rows of all data, not of a fold
        with clear_errors():
            fit = fit_averaged(
                data, as_settings(self, 1, 0.0), rng, progress=self._progress,
                **{"folds": self.n_folds, **beyond},
            )  # fmt: skip
        self._take_averaged(fit, data)

    def _take_averaged(self, fit: AveragedFit, data: Observations) -> None:
        """Learn an average of fits without each fold, with what each row is worth to them."""
        self.__dict__.pop("_adam", None)
        self.selection_ = fit.table
        value = float(np.average(fit.held_out, weights=row_weights(data)))
        result = EMResult(fit.mixture, value, [value], fit.converged, fit.n_iter)
        self._take(result, [part.n_components for part in fit.mixtures])
        self._warn_unless_converged()

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        details = {
            "converged": bool(self.converged_),
            "n_iter": int(self.n_iter_),
            "n_components": int(self.n_components_),
            "component_counts": [int(count) for count in self.component_counts_],
            "lower_bound": float(self.lower_bound_),
            "lower_bounds": [float(value) for value in self.lower_bounds_],
            "selection": {k: v.tolist() for k, v in getattr(self, "selection_", {}).items()},
        }
        return details, {name: torch.from_numpy(getattr(self, name).copy()) for name in LEARNED}

    def _restore(self, details: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        check_form(details, SAVED_DETAILS, "details")
        mixture = saved_mixture(arrays, LEARNED, self.n_latent_)
        value, history = details["lower_bound"], details["lower_bounds"]
        result = EMResult(mixture, value, history, details["converged"], details["n_iter"])
        selection = saved_table(details["selection"])
        if selection:
            self.selection_ = selection
        size, counts, total = (
            details["n_components"],
            details["component_counts"],
            len(mixture.weights),
        )
        bad = min(counts, default=0) < 1 or sum(counts) != total or size not in counts
        refuse("component_counts", bad, "those of its weights")
        self._take(result, counts)

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
            data, settings, counts, floors, n_average=self.n_average, folds=self.n_folds, rng=rng,
            progress=self._progress,
        )  # fmt: skip
        return chosen

    def _fitted(
        self,
        data: Observations,
        each: list[FitSettings],
        start: Start,
        rng: np.random.RandomState,
    ) -> EMResult:
        if self.method == "minibatch":
            settings = each[0]
            adam = Adam.start(data, settings, self.learning_rate, rng)
            return fit_minibatch(
                adam, data, settings.stopping,
                epochs=self.epochs, batch_size=self.batch_size, rng=rng, progress=self._progress,
            )  # fmt: skip
        if self.n_average > 1:
            return fit_average(data, each, self.average_over, self.n_init, rng, self._progress)
        n_init = 1 if start.whole else self.n_init
        self._progress.begin(FITTING)
        return PreparedData(data).fit_best(each[0], n_init, rng)

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


def _refuse_knowledge(model: XDGMM) -> None:
    """Pieces are rows as they are: what is known of the truth needs all of them."""
    _refuse_changed_rows(model, "partial_fit")
    if model._errors is not None:
        raise ValueError(
            "Expected a model whose errors were known for partial_fit; got one that has learned "
            f"them: {model._errors.in_words()[0]}"
        )
    for name in ("bounds", "atoms", "background"):
        if getattr(model, name) is not None:
            raise ValueError(
                f"Expected no {name} with partial_fit; got {getattr(model, name)!r}. Use fit."
            )


def _refuse_small_piece(data: Observations, count: int, start: Start) -> None:
    """The first piece places the components, which later pieces can only move."""
    if start.means is None and len(torch.unique(data.w, dim=0)) < count:
        raise ValueError(
            f"Expected a first piece w of at least {count} different rows, as many as components, "
            f"that is like the data; got {len(torch.unique(data.w, dim=0))}."
        )
