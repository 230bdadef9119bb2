r"""Classes of measurements with known noise, by the density of each class's truth.

.. math:: P(c \mid w_i) = \frac{\pi_c \, p_c(w_i)}{\sum_d \pi_d \, p_d(w_i)}, \qquad
          p_c(w_i) = \int p_c(v) \, p(w_i \mid v) \, dv

with the noise of row ``i`` in :math:`p(w_i \mid v)`: a noisy row is less certain of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.estimators.base import MEASURED, DensityEstimator
from deconflow.estimators.routing import refuse_search_without_routing
from deconflow.estimators.validation import as_arguments, observe, unchanged_on_failure
from deconflow.frames import Units, plain_table, refuse_other_rows
from deconflow.guests import as_guest
from deconflow.observations import Observations, OutOfReachError, refuse_unreached

FEWEST_ROWS = 2
ARRAYS = 8
"""Arrays of the size of the densities that it takes to add them up."""
LEARNED = ("feature_names_in_", "_units", "noise_given_")
"""What the classifier learns of the columns, and the estimators of the classes know, too."""


class DeconvolvedClassifier(ClassifierMixin, BaseEstimator):
    """Tell classes apart by measurements whose noise is known, and may differ from row to row.

    The density of each class's truth is fitted by an estimator of its own. Rows that are predicted
    may have other noise than those that were fitted, and values may be missing, where the estimator
    takes that.

    Parameters
    ----------
    estimator
        Any estimator of deconflow, such as ``XDGMM()``; each class gets a copy.
    priors
        Probabilities of the classes, in the order of ``classes_`` or as a dict from labels; None
        for their shares of the rows.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    class_prior_ : array
        Probability of each class before a row is measured.
    estimators_ : list of DensityEstimator
        The fitted density of each class.
    n_features_in_ : int
        Number of columns of ``w``.

    Notes
    -----
    ``score``, and so a ``GridSearchCV``, is given the noise if scikit-learn's metadata routing is
    on. scikit-learn's other scorers, as ``"neg_log_loss"``, do not pass it on.

    Examples
    --------
    >>> from deconflow import XDGMM
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["a", "b"], 300)
    >>> sd = rng.uniform(0.1, 2.0, size=(600, 1))
    >>> w = np.where(y == "a", -1.0, 1.0)[:, None] + rng.normal(scale=np.hypot(0.5, sd))
    >>> model = DeconvolvedClassifier(XDGMM(1)).fit(w, y, noise=sd)
    >>> model.predict_proba([[1.0], [1.0]], noise=[[0.1], [2.0]])[:, 1].round(1)
    array([1. , 0.6])
    """

    classes_: NDArray[Any]
    class_prior_: Array
    estimators_: list[DensityEstimator]
    n_features_in_: int
    n_latent_: int
    noise_given_: bool

    __metadata_request__fit = {**MEASURED, "sample_weight": True}
    __metadata_request__predict = MEASURED
    __metadata_request__predict_proba = MEASURED
    __metadata_request__predict_log_proba = MEASURED
    __metadata_request__score = {**MEASURED, "sample_weight": True}

    _units: Units | None = None

    def __init__(
        self, estimator: Any, *, priors: ArrayLike | Mapping[Any, float] | None = None
    ) -> None:
        self.estimator = estimator
        self.priors = priors

    def fit(
        self,
        w: ArrayLike,
        y: ArrayLike,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the density of each class's truth.

        Parameters
        ----------
        w, noise, projection, sample_weight
            As for the estimator.
        y
            ``(N,)`` labels, of numbers or text.
        """
        if not isinstance(self.estimator, DensityEstimator):
            raise TypeError(
                f"Expected estimator as one of deconflow, such as XDGMM(); got {self.estimator!r}."
            )
        refuse_search_without_routing(self, noise)
        with unchanged_on_failure(self):
            labels = _labels(w, y)
            with as_guest():
                data = observe(self, w, noise, projection, sample_weight, reset=True)
            self.classes_, codes = np.unique(labels, return_inverse=True)
            if data.weights is not None:
                codes = np.where(data.weights.numpy() > 0, codes, -1)
            counts = [int((codes == c).sum()) for c in range(len(self.classes_))]
            self._refuse_small_classes(counts)
            self.class_prior_ = self._priors(data, codes)
            self.estimators_ = [
                self._fit_class(label, data[np.flatnonzero(codes == c)])
                for c, label in enumerate(self.classes_)
            ]
        return self

    def predict_log_proba(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> Array:
        """Logarithm of each class's probability given each measurement, ``(N, C)``."""
        check_is_fitted(self)
        data = self.estimators_[0]._observe(w, noise, projection)
        with np.errstate(divide="ignore"):
            log_prior = np.log(self.class_prior_)
        joint = np.empty((len(data), len(log_prior)))
        for c, each in enumerate(self.estimators_):
            joint[:, c] = _log_density(each, data)
        joint += log_prior
        refuse_unreached((joint == -np.inf).all(1), advice=" in every class. Look at that row")
        for some in row_slices(len(joint), ARRAYS * len(log_prior)):
            joint[some] -= np.asarray(logsumexp(joint[some], axis=1, keepdims=True))
        return joint

    def predict_proba(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> Array:
        """Probability of each class given each measurement, ``(N, C)``."""
        found = self.predict_log_proba(w, noise, projection=projection)
        return np.exp(found, out=found)

    def predict(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Most probable class of each measurement, ``(N,)``."""
        found = self.predict_log_proba(w, noise, projection=projection).argmax(1)
        return self.classes_[found]

    def score(
        self,
        w: ArrayLike,
        y: ArrayLike,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Share of rows whose class is predicted right."""
        predicted = self.predict(w, noise, projection=projection)
        return float(accuracy_score(_labels(w, y), predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags

    def _refuse_small_classes(self, counts: list[int]) -> None:
        if len(counts) < 2:
            raise ValueError(f"Expected y of at least 2 classes; got 1 class, {self.classes_[0]}.")
        for label, count in zip(self.classes_, counts, strict=True):
            if count < FEWEST_ROWS:
                raise ValueError(
                    f"Expected at least {FEWEST_ROWS} rows of positive weight in each class; got "
                    f"{count} in class {label}."
                )

    def _priors(self, data: Observations, codes: NDArray[np.int64]) -> Array:
        """Probabilities of the classes: as given, or shares of the rows by their weight."""
        if self.priors is None:
            weights = None if data.weights is None else data.weights.numpy()[codes >= 0]
            shares = np.bincount(codes[codes >= 0], weights)
            return shares / shares.sum()
        given = self.priors
        known = [str(label) for label in self.classes_]
        if isinstance(given, Mapping):
            if {*given} != {*self.classes_.tolist()}:
                raise ValueError(
                    f"Expected priors for the classes {', '.join(known)}; got them for "
                    f"{', '.join(map(str, given))}."
                )
            given = [given[label] for label in self.classes_.tolist()]
        priors = as_floats(given, "priors")
        if priors.shape != (len(known),) or not (priors >= 0).all() or abs(priors.sum() - 1) > 1e-6:
            raise ValueError(
                f"Expected priors of at least 0 that sum to 1, one for each of the classes "
                f"{', '.join(known)}; got {self.priors!r}."
            )
        return priors / priors.sum()

    def _fit_class(self, label: Any, data: Observations) -> DensityEstimator:
        """Fit a copy of the estimator to the rows of one class."""
        model: DensityEstimator = clone(self.estimator)
        if hasattr(self, "feature_names_in_"):
            model.name_columns(self.feature_names_in_)
        weights = None if data.weights is None else data.weights.numpy()
        try:
            model.fit(data.measured(), **as_arguments(data), sample_weight=weights)
        except ValueError as error:
            raise ValueError(
                f"Expected rows of class {label} that can be fitted; got {len(data)} rows that "
                f"cannot. {error}"
            ) from error
        for name in LEARNED:
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model


def _labels(w: Any, y: Any) -> NDArray[Any]:
    """Check a class label for each row."""
    if y is None:
        raise ValueError(
            "Expected a class label for each row as y; got none: a classifier requires y to be "
            "passed, but the target y is None."
        )
    rows = plain_table(w, "w")
    if hasattr(y, "iloc"):
        refuse_other_rows(rows, y, "y")
    try:
        labels = np.asarray(column_or_1d(y, warn=True))
        if labels.dtype == object and not any(isinstance(label, str) for label in labels):
            labels = np.asarray(labels.tolist())
        with np.errstate(invalid="ignore"):  # NaN is refused
            check_classification_targets(labels)
        np.unique(labels)  # can be sorted
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected a class label for each row as y; got others. {error}"
        ) from error
    if len(labels) != len(rows):
        raise ValueError(
            f"Expected y with {len(rows)} labels, as many as w has rows; got {len(y)}."
        )
    return labels


def _log_density(model: DensityEstimator, data: Observations) -> Array:
    """Log density of rows, minus infinity for those that a class cannot reach."""
    try:
        return model.density_.log_marginal(data).log_p
    except OutOfReachError:
        if len(data) == 1:
            return np.array([-np.inf])
        half = len(data) // 2
        return np.concatenate([_log_density(model, part) for part in (data[:half], data[half:])])
