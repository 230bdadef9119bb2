"""The one contract of all estimators: how a fit goes, and every question, once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import threads_at_most
from deconflow._types import Array
from deconflow.answers import completed
from deconflow.checks import as_floats, check_integer, check_seed
from deconflow.errors import LearnedErrors
from deconflow.estimators.fitted_rows import FittedRowsQuestions
from deconflow.estimators.in_chunks import AnswersInChunks
from deconflow.estimators.knowledge import Knowledge
from deconflow.estimators.observing import refuse_limits
from deconflow.estimators.persistence import read_model, write_model
from deconflow.estimators.picturing import Pictured
from deconflow.estimators.routing import refuse_search_without_routing
from deconflow.estimators.streaming import NEEDS_MEMORY, FitsStreams
from deconflow.estimators.summarised import Summarised
from deconflow.estimators.validation import (
    refuse_noise_as_y,
    true_values,
    unchanged_on_failure,
)
from deconflow.estimators.watched import Watched
from deconflow.evaluation import Estimate
from deconflow.fits import Band, FittedDensity, Origin, Posterior, column_numbers, told_apart
from deconflow.frames import (
    Units,
    column_units,
    plain_tables,
    refuse_other_names,
    refuse_other_units,
)
from deconflow.guests import as_guest
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, check_measured
from deconflow.randomness import RandomState, isolated_rng
from deconflow.saving import read_folder
from deconflow.streams import RowStream
from deconflow.truth import as_bounds

MEASURED = {"w": UNUSED, "noise": True, "projection": True}


class DensityEstimator(
    FitsStreams, AnswersInChunks, FittedRowsQuestions, Summarised, Pictured, Watched, DensityMixin,
    BaseEstimator,
):  # fmt: skip
    """An estimator of the density of the truth, from measurements with known noise.

    A new estimator learns in ``_fit``, and has the types of what is saved in ``_saved``; all
    methods about rows are those of its ``density_``.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data.
    n_features_in_ : int
        Number of columns of ``w``.
    """

    _saved: ClassVar[dict[str, Any]]
    """Types of the attributes that are saved, by their names."""

    _own_density: FittedDensity
    n_features_in_: int
    n_latent_: int
    noise_given_: bool
    parameters_: dict[str, Any]

    __metadata_request__fit = {
        **MEASURED, "sample_weight": True, "groups": True, "given": True, "limits": True,
        "selection": UNUSED, "selection_of": UNUSED,
    }  # fmt: skip
    __metadata_request__score = {**MEASURED, "n_samples": UNUSED, "given": True, "limits": True}

    _column_names: list[str] | None = None
    _units: Units | None = None
    _bounds_itself = False
    _images = 1

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise where a parameter makes no sense, before any work."""

    @abstractmethod
    def _fit(self, data: Observations) -> None:
        """Learn from checked rows, all of positive weight."""

    def _state(self) -> dict[str, Any]:
        """Return what is saved, by the names in ``_saved``."""
        return {name: getattr(self, name, None) for name in self._saved}

    def _restore(self, values: dict[str, Any]) -> None:
        """Take what :meth:`_state` gave, each of its type."""
        for name, value in values.items():
            setattr(self, name, value)

    @abstractmethod
    def describe(self) -> str:
        """Say in one line what was fitted."""

    def fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        given: Any = None,
        limits: Any = None,
        selection: Any = None,
        selection_of: str = "measured",
    ) -> Self:
        """Fit the density of the truth.

        Parameters
        ----------
        w
            ``(N, M)`` measurements; NaN or a masked cell marks a missing value, where the
            estimator takes these. Or, without ``noise``, values that carry their errors: numbers
            of uncertainties, distributions of astropy (:doc:`/other_tools`). Or rows that are too
            many for memory: a :class:`~deconflow.RowStream` (:doc:`/many_rows`).
        y
            Ignored.
        noise
            Standard deviations ``(M,)`` or ``(N, M)``, covariances ``(M, M)`` or ``(N, M, M)``,
            0.0 for exact rows, a :class:`~deconflow.noise.Noise`, or a torch distribution over
            ``M`` values; or a likelihood, as ``noise.poisson()`` for counts. Errors in a table find
            the columns of a table ``w`` by their names, as ``x_err``, and are converted to their
            units. Gaussian errors that are not quite known are learned:
            ``noise.gaussian(sd=..., scale="fit")``.
        projection
            ``(N, M, D)`` or ``(M, D)``, if what is measured is ``R v + n``.
        sample_weight
            ``(N,)`` row weights.
        groups
            ``(N,)`` labels, of numbers or text, the same for rows that belong together, as those
            of one object: rows of a group are never split between a fit and the rows it is judged
            by. They count as rows all the same. Without groups, exact copies of rows are kept
            together, unless rounding explains them; ``numpy.arange(N)`` keeps none together.
        given
            ``(N, C)`` covariates that are known exactly, numbers or categories: the location and
            the spread of the truth are curves of these. ``"noise"`` for the logarithms of the
            rows' own errors; ``("noise", table)`` for both.
        limits
            ``(N, M)`` flags of values of which only a limit is known: -1 where what would have
            been measured lies below the number in ``w``, 1 where it lies above, 0 for a measured
            value; or a table, whose columns ``x`` or ``x_limit`` find those of a table ``w``. The
            noise of a limit is the error that its measurement would have had.
        selection
            The probability of a row to be seen, if not all are: a function of points ``(N, M)``,
            text such as ``"g < 18"``, an :class:`~deconflow.Efficiency`, or a
            :class:`~deconflow.Selection`. What is fitted is the density of all truths, seen or not,
            as far as the noise reaches beyond what is seen: :doc:`/measured`.
        selection_of
            What decides: ``"measured"`` for the measured values, ``"truth"`` for the true ones.
        """
        self._check_parameters()
        check_seed(getattr(self, "random_state", None))
        refuse_noise_as_y(w, y, noise)
        refuse_search_without_routing(self, noise)
        n_jobs = getattr(self, "n_jobs", None)
        with (
            as_guest(), threads_at_most(n_jobs), unchanged_on_failure(self), self._watched(),
        ):  # fmt: skip
            rows = (w, noise, projection, sample_weight, groups, given, limits)
            if isinstance(w, RowStream):
                self._fit_beyond_memory(w, noise, *rows[2:], selection)
                return self
            data, covariates, rule = self._observe_to_fit(*rows, selection, selection_of)
            self._knowledge, self._images = Knowledge.of(self, covariates, data), 1
            self._selected = self._rows_of_stream = None
            if rule is not None:
                data = self._with_unseen(data, rule)
            self._fit_knowing(data)
            self._finish(data)
        return self

    def _fit_beyond_memory(self, stream: RowStream, noise: Any, *others: Any) -> None:
        """Fit to rows that come in chunks."""
        names = ("projection", "sample_weight", "groups", "given", "limits", "selection")
        beside = dict(zip(names, others, strict=True))
        sample, stream, overview = self._observe_stream(stream, noise, beside)
        self._knowledge, self._selected, self._images = None, None, 1
        if Knowledge.of(self, None, sample) is not None:
            raise ValueError(NEEDS_MEMORY.format("a likelihood whose truth has ends"))
        self._fit_stream(sample, stream, overview)
        self.parameters_ = self.get_params()
        self._finish(sample)

    def _fit_knowing(self, data: Observations) -> None:
        """Fit to rows, with what is known of the truth."""
        if self._knowledge is None:
            self._fit(data)
        else:
            self._knowledge.fit(self, data)
        self.parameters_ = self.get_params()

    @property
    def density_(self) -> FittedDensity:
        """The density of the truth, in the units of the data."""
        own = self._own_density
        return own if self._knowledge is None else self._knowledge.density(own)

    @property
    def atom_weights_(self) -> Array:
        """The share of the truth at each of the atoms."""
        check_is_fitted(self)
        return np.empty(0) if self._knowledge is None else self._knowledge.atom_weights

    @property
    def background_share_(self) -> float:
        """The share of the fitted rows that is background."""
        check_is_fitted(self)
        return 0.0 if self._knowledge is None else self._knowledge.background_share

    @property
    def seen_share_(self) -> float:
        """The share of all rows, seen or not, that the selection lets through."""
        check_is_fitted(self)
        return 1.0 if self._selected is None else self._selected.share

    @property
    def known_(self) -> list[str]:
        """What was known of the truth beside its measurements, and what became of it, in words."""
        check_is_fitted(self)
        bounds = as_bounds(self.parameters_.get("bounds"), self._names)
        if self._knowledge is not None and self._knowledge.bounds is not None:
            bounds = self._knowledge.bounds  # what was measured may have ends by itself
        said = [] if bounds is None else bounds.in_words(self._names)
        said += [] if self._knowledge is None else self._knowledge.in_words()
        said += [] if self._errors is None else self._errors.in_words()
        said += [] if self._selected is None else self._selected.in_words()
        return said + self._of_stream_in_words()

    @property
    def errors_(self) -> LearnedErrors | None:
        """What was learned of the errors; None if they were known."""
        check_is_fitted(self)
        return self._errors

    def score_samples(self, v: ArrayLike) -> Array:
        """Log density ``log p(v)`` of true values ``(N, D)``, as ``(N,)``.

        The density of *measurements* is :meth:`score_observations`. With atoms it is that of the
        rest, with its share: an atom has no density.

        With covariates it is that of the mix which the fitted rows have; for one value of them
        there is ``density_.given(x)``.
        """
        points = true_values(self, v)  # an error if there is no fit yet
        return self.density_.log_prob(points)

    def score_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_samples: int | None = None,
        random_state: RandomState = 0,
    ) -> Array:
        """Log density ``log p(w)`` of each measurement; see :meth:`estimate_observations`."""
        return self.estimate_observations(
            w, noise, projection=projection, given=given, limits=limits, n_samples=n_samples,
            random_state=random_state,
        ).log_p  # fmt: skip

    def estimate_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_samples: int | None = None,
        random_state: RandomState = 0,
    ) -> Estimate:
        """Log density ``log p(w)`` of each measurement, with its standard error and bias.

        Of a limit it is the log probability that a measurement lies beyond it.

        Parameters
        ----------
        w, noise, projection, given, limits
            As for :meth:`fit`.
        n_samples
            Draws or points per row, for answers that are not exact; None for the usual number.
        random_state
            Seed of the draws.
        """
        if n_samples is not None:
            check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        data = self._observe(w, noise, projection, given=given, limits=limits)
        return self.density_.log_marginal(data, n_samples, random_state)

    def p_values(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_draws: int = 199,
        random_state: RandomState = 0,
    ) -> Array:
        r"""How unusual each measurement is, given its error: a p-value for each row, ``(N,)``.

        .. math:: p_i = P(T(w') \leq T(w_i)), \qquad w' = R_i v' + n', \quad v' \sim p(v), \quad
                  n' \text{ by the law of row } i

        with row ``i``'s missing values, too. ``log p(w)`` is low for every row with large errors;
        a p-value is not. If the model and the errors are right, these are uniform between 0 and 1:
        one row in a thousand has 0.001 or less. :func:`deconflow.evaluation.unusual_rows` says how
        many of them are more than that.

        ``T`` is ``log p(w)`` where that is a closed form of few Gaussians: mixtures of up to 64,
        under Gaussian noise. Elsewhere it is that of 12 Gaussians fitted to draws of the model,
        with Gaussian noise of the law's mean and covariance. Any ``T`` gives p-values that are
        uniform under the model, because ``w'`` comes from the model and the law themselves.
        Measurements of which only a limit is known are drawn first, beyond it, from the model.

        Parameters
        ----------
        w, noise, projection, given, limits
            As for :meth:`fit`.
        n_draws
            Draws ``w'`` of each row, at least; rows among the most unusual get up to 9,999.
        random_state
            Seed of the draws. What a row gets does not depend on the rows beside it.
        """
        check_integer("n_draws", n_draws, 1)
        check_seed(random_state)
        data = self._observe(w, noise, projection, given=given, limits=limits)
        with isolated_rng(int(check_random_state(random_state).randint(2**30))):
            data = completed(self.density_, data)
        return self.density_.p_values(data, n_draws, random_state)

    def score(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_samples: int | None = None,
    ) -> float:
        """Mean of ``log p(w)`` over the measurements; not that of ``log p(v)``."""
        refuse_noise_as_y(w, y, noise)
        scores = self.score_observations(
            w, noise, projection=projection, given=given, limits=limits, n_samples=n_samples
        )
        return float(scores.mean())

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw true values ``(n_samples, D)`` from the density.

        Parameters
        ----------
        n_samples
            How many.
        random_state
            Seed of the draws.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        return self.density_.sample(n_samples, random_state)

    def posterior(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, exact where there is a closed form.

        For answers that are too many for memory there is :meth:`posterior_in_chunks`.

        Parameters
        ----------
        w, noise, projection, given, limits
            As for :meth:`fit`.
        n_samples
            Draws to keep for each row, if the answer is made of draws.
        n_proposals
            Draws that are weighed for each row, if the answer is made of draws.
        random_state
            Seed of the draws.
        """
        check_integer("n_samples", n_samples, 1)
        check_integer("n_proposals", n_proposals, 1)
        check_seed(random_state)
        data = self._observe(w, noise, projection, given=given, limits=limits)
        found = self.density_.posterior(data, n_samples, n_proposals, random_state)
        return replace(found, origin=Origin.of(w, self._units_of_truth))

    def condition(
        self,
        values: ArrayLike,
        columns: Any,
        *,
        noise: Any = None,
        n_samples: int = 100,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Density of the other columns given some, for many rows at once.

        Parameters
        ----------
        values
            ``(N, d)`` known values; NaN for one that a row does not know.
        columns
            Which ``d`` columns these are, by name or number.
        noise
            Their noise, as in :meth:`fit`; None or 0.0 if they are exact.
        n_samples, random_state
            As for :meth:`posterior`.

        Returns
        -------
        Posterior
            Over the other columns, in their order.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        given = column_numbers(columns, self.density_.names)
        if len(given) == self.density_.dim:
            raise ValueError("Expected some columns, but not all, to condition on; got all.")
        names = [self.density_.names[d] for d in given]
        units = [self._units[d] for d in given] if self._units else None
        refuse_other_units(column_units(values), units, names)
        rows, (values, noise) = values, plain_tables(values, noise, "values")
        refuse_other_names(values, names)
        known = as_floats(values, "values")
        if known.ndim != 2 or known.shape[1] != len(given):
            raise ValueError(
                f"Expected values of shape (N, {len(given)}), one per column that is given; "
                f"got {known.shape}."
            )
        with as_guest():
            law = 0.0 if noise is None else noise
            data = Observations.from_arrays(check_measured(known, "values"), law)
            bounds = None if self._bounds is None else self._bounds.marginal(given)
            data = self._within_bounds(data, bounds)
        refuse_limits(data, "to condition on")
        found = self.density_.condition(data, given, n_samples, random_state)
        others = np.setdiff1d(np.arange(self.density_.dim), given)
        return replace(found, origin=Origin.of(rows, self._units_of_truth).columns(others))

    def marginal(self, columns: Any) -> FittedDensity:
        """Return the density of some columns, by name or number, in the order given."""
        check_is_fitted(self)
        return self.density_.marginal(columns)

    def band(
        self,
        points: Any = None,
        *,
        column: Any = None,
        level: float = 0.9,
        quantiles: ArrayLike | None = None,
    ) -> Band:
        """Return the density with pointwise intervals; or quantiles of the truth with theirs.

        Parameters
        ----------
        points
            ``(N, D)`` points of the joint density, or ``(N,)`` of a ``column``; or the name or
            number of a column, as in ``band("x")``.
        column
            The column whose marginal density is wanted; without points, on a grid of 200.
        level
            The share of intervals that should hold the truth.
        quantiles
            Shares, as ``[0.1, 0.5, 0.9]``, for the quantiles of the column instead of its density.
        """
        check_is_fitted(self)
        points, column = told_apart(points, column)
        units, names = column_units(points), self._names
        known = self._units_of_truth
        if units and known:
            asked = range(len(names)) if column is None else column_numbers(column, names)
            refuse_other_units(units, [known[d] for d in asked], [names[d] for d in asked])
        return self.density_.band(points, column=column, level=level, quantiles=quantiles)

    def name_columns(self, names: Sequence[str]) -> Self:
        """Say what the columns are called, before a fit to arrays, which have no names."""
        self._column_names = [str(name) for name in names]
        return self

    def save(self, path: str | Path, extra_files: dict[str, str] | None = None) -> None:
        """Write the fitted model to a folder, as JSON and safetensors.

        ``extra_files``, texts by their names, are put beside these.
        """
        check_is_fitted(self)
        with as_guest():
            write_model(path, self, extra_files or {})

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> Self:
        """Read a model that :meth:`save` wrote; ``changes`` replace parameters, as ``device``.

        A model of a GPU that is not here is loaded to the processor, and says so by its ``device``.
        """
        with as_guest():
            return read_model(read_folder(path), cls, changes)

    def _finish(self, data: Observations) -> None:
        """Do what a fit does last, with the rows as they came."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "parameters_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing_values
        return tags

    @property
    def _measured_names(self) -> list[str]:
        """Names of the measured columns."""
        given = getattr(self, "feature_names_in_", self._column_names)
        if given is None or len(given) != self.n_features_in_:
            return [f"w{d}" for d in range(self.n_features_in_)]
        return [str(name) for name in given]

    @property
    def _units_of_truth(self) -> Units | None:
        """Units of the truth's dimensions, if these are those that were measured."""
        return self._units if self.n_latent_ == self.n_features_in_ else None

    def _working_mixture(self) -> GaussianMixture | None:
        """Return a single Gaussian mixture that fits the rows, if there is one."""
        return None

    @property
    def _names(self) -> list[str]:
        """Names of the truth's dimensions."""
        given = getattr(self, "feature_names_in_", self._column_names)
        if given is None or len(given) != self.n_latent_:
            return [f"v{d}" for d in range(self.n_latent_)]
        return [str(name) for name in given]
