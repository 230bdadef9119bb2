"""Users' arrays become rows to fit, or to ask about: one way for all estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow.copies import keep_copies_together
from deconflow.errors import LearnedErrors, learn_errors
from deconflow.estimators.knowledge import Knowledge, bounds_of
from deconflow.estimators.unseen_rows import DRAWS, SeenShare, with_unseen_rows
from deconflow.estimators.validation import observe
from deconflow.fits import FittedDensity
from deconflow.frames import refuse_other_rows
from deconflow.guests import as_guest
from deconflow.measuring import Rule, Selection, as_rule
from deconflow.noise import FreeErrors
from deconflow.observations import Observations, check_groups
from deconflow.streams import RowStream
from deconflow.truth import Bounds, Covariates, given_parts


class ObservesRows(ABC):
    """What every estimator does with rows before it fits them, or answers about them.

    What is known of the truth, what was learned of the errors, and what share of rows was seen,
    are kept by a fit, and hold for the rows that are asked about.
    """

    _knowledge: Knowledge | None = None
    _errors: LearnedErrors | None = None
    _selected: SeenShare | None = None
    _takes_missing_values = True
    _takes_projections = True
    _takes_covariates = False
    _takes_limits = True

    @property
    @abstractmethod
    def density_(self) -> FittedDensity:
        """The density of the truth, in the units of the data."""

    @property
    @abstractmethod
    def _names(self) -> list[str]:
        """Names of the truth's dimensions."""

    @property
    @abstractmethod
    def _measured_names(self) -> list[str]:
        """Names of the measured columns."""

    @abstractmethod
    def _fit_knowing(self, data: Observations) -> None:
        """Fit to rows, with what is known of the truth."""

    def _observe_to_fit(
        self,
        w: ArrayLike,
        noise: Any,
        projection: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        given: Any = None,
        limits: Any = None,
        selection: Any = None,
        selection_of: str = "measured",
    ) -> tuple[Observations, Covariates | None, Rule | None]:
        """Check rows to learn from, what their covariates are, and by what rule they were seen.

        Rows without weight are left out, and copies kept together. What is open of the errors is
        learned first, so that nothing after this knows that it was.
        """
        said = noise.said if isinstance(noise, FreeErrors) else noise
        data = self._rows(w, said, projection, sample_weight, groups, limits, reset=True)
        self._errors = None
        if isinstance(noise, FreeErrors):
            data = self._learn_errors(noise, data, given)
        covariates = None
        if given is not None:
            if not self._takes_covariates:
                raise ValueError(
                    f"Expected no covariates with {type(self).__name__}; got given. Use XDGMM, "
                    "BayesianXDGMM, FlowDeconvolver or Deconvolver."
                )
            refuse_limits(data, "beside covariates", "Leave out given")
            covariates = Covariates.fit(given, data, self._measured_names)
            data = replace(data, given=covariates.encode(given, data, w))
        if selection is not None and self._errors is not None:
            raise ValueError(
                "Expected errors that are known beside a selection, because it changes the scatter "
                f"that they are learned from; got {noise.as_said()}. Say sd alone."
            )
        rule = self._rule(selection, selection_of, data, w)
        return keep_copies_together(data.with_weight()), covariates, rule

    def _rule(self, selection: Any, of: str, data: Observations, w: Any) -> Rule | None:
        """Check a selection of rows, for those that have weight."""
        if selection is None:
            if of != "measured":
                raise ValueError(f"Expected a selection beside selection_of={of!r}; got none.")
            return None
        if not data.noise.additive:
            raise ValueError(
                "Expected noise that is added to the truth beside a selection; got values with a "
                "likelihood, as counts. Leave out the selection."
            )
        refuse_limits(data, "beside a selection", "Leave out limits, or the selection")
        if isinstance(selection, Selection) and hasattr(selection.columns, "iloc"):
            refuse_other_rows(w, selection.columns, "columns")
        return as_rule(selection, of, self._measured_names, data)

    def _learn_errors(self, free: FreeErrors, data: Observations, given: Any) -> Observations:
        """Learn what is open of the errors, and return the rows with what was learned."""
        if free.kinds != ("groups",) and given_parts(given)[0]:
            raise ValueError(
                f'Expected errors that are known for given="noise"; got {free.as_said()}. They '
                "are learned from rows whose truth does not depend on its error."
            )
        rng, threads = self._means()
        self._errors = learn_errors(free, data, self._measured_names, rng, threads)
        if data.groups is None and free.replicates is not None:
            data = replace(data, groups=check_groups(data.w, free.replicates, "replicates"))
        return self._errors.applied(free, data)

    def _means(self) -> tuple[np.random.RandomState, int | None]:
        """Random numbers and threads for what is done before a fit."""
        seed = check_random_state(getattr(self, "random_state", 0)).randint(2**30)
        jobs = getattr(self, "n_jobs", None)
        return np.random.RandomState(seed), None if jobs is None or jobs < 0 else jobs

    def _observe(
        self,
        w: ArrayLike,
        noise: Any,
        projection: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        given: Any = None,
        limits: Any = None,
    ) -> Observations:
        """Check rows to ask about, with the covariates that the fit had."""
        check_is_fitted(self)
        said = noise.said if isinstance(noise, FreeErrors) and self._errors is not None else noise
        data = self._rows(w, said, projection, sample_weight, groups, limits)
        if self._errors is not None:
            if not isinstance(noise, FreeErrors):
                raise ValueError(self._errors.missing())
            data = self._errors.applied(noise, data)
        covariates = None if self._knowledge is None else self._knowledge.covariates
        if covariates is None and given is None:
            return data
        if covariates is None:
            raise ValueError(
                "Expected no given, because the model was fitted without covariates; got some."
            )
        if given is None:
            raise ValueError(covariates.missing())
        return replace(data, given=covariates.encode(given, data, w))

    @property
    def _bounds(self) -> Bounds | None:
        """Bounds of the truth, as fitted."""
        return None if self._knowledge is None else self._knowledge.bounds

    def _within_bounds(self, data: Observations, bounds: Bounds | None) -> Observations:
        """Tell noise whose law depends on them where the truth ends."""
        ends = data.noise.truth_ends
        if data.noise.additive or (bounds is None and ends is None):
            return data
        if bounds is not None and data.projection is not None:
            raise ValueError(
                "Expected no projection of values with a likelihood, where the truth has bounds; "
                "got one. Leave out the bounds."
            )
        free = np.full(data.dim, np.inf)
        low, high = (-free, free) if ends is None else ends
        if bounds is None or (bounds.lower < low).any() or (bounds.upper > high).any():
            raise ValueError(
                "Expected a model whose truth ends where that of what was measured does, at "
                f"{low} and {high}; got one that goes on. Fit with such rows, or bounds=."
            )
        return replace(data, noise=data.noise.within(bounds.lower, bounds.upper))

    def _rows(
        self,
        w: ArrayLike,
        noise: Any,
        projection: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        limits: Any = None,
        *,
        reset: bool = False,
    ) -> Observations:
        """Check rows that the estimator can take; ``reset`` is for a fit, which learns names."""
        name = type(self).__name__
        if isinstance(w, RowStream):
            raise ValueError(
                "Expected rows in memory for this question; got a RowStream. Ask "
                "posterior_in_chunks, or about stream.overview(100_000).sample."
            )
        if projection is not None and not self._takes_projections:
            raise ValueError(
                f"Expected no projection with {name}; got one. Use XDGMM, which takes projections."
            )
        with as_guest():
            data = observe(self, w, noise, projection, sample_weight, groups, limits, reset=reset)
            return self._taken(data, bounds_of(self, data) if reset else self._bounds)

    def _taken(self, data: Observations, bounds: Bounds | None) -> Observations:
        """Refuse rows of kinds that the estimator cannot take."""
        name = type(self).__name__
        data = self._within_bounds(data, bounds)
        if not self._takes_limits:
            refuse_limits(data, f"with {name}", "Use XDGMM, or another that takes them")
        if data.observed is not None and not self._takes_missing_values:
            raise ValueError(
                f"Expected complete rows in w with {name}; got NaN. Drop those rows, or use XDGMM, "
                "which takes missing values."
            )
        return data

    def _with_unseen(self, data: Observations, rule: Rule) -> Observations:
        """Put simulated rows beside those that a selection let through."""
        known = self._knowledge
        if known is not None and (known.covariates is not None or known.has_parts):
            raise ValueError(
                "Expected no covariates, atoms or background with a selection; got some. Leave "
                "them out, or the selection."
            )
        bounds = bounds_of(self, data)
        rng, threads = self._means()
        truths = None
        if rule.of_truth:
            self._fit_knowing(data)
            truths = self.density_.sample(DRAWS, rng)
            self._knowledge = Knowledge.of(self, None, data)
        data, self._selected = with_unseen_rows(rule, data, truths, bounds, rng, threads)
        return data


def refuse_limits(data: Observations, what: str, fix: str = "Leave those rows out") -> None:
    """Raise if rows have limits in the place of values."""
    if data.noise.flags is not None:
        raise ValueError(f"Expected values without limits {what}; got limits. {fix}.")
