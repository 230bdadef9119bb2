"""Questions about a fit that need the rows it was fitted to, which a model does not keep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import threads_at_most
from deconflow.answers import Regression, SelfTest, regression_of, run_self_test
from deconflow.certificate import Certificate
from deconflow.checks import check_integer, check_seed
from deconflow.estimators.certifying import certified
from deconflow.estimators.observing import ObservesRows, refuse_limits
from deconflow.estimators.unseen_rows import completed_by
from deconflow.guests import as_guest
from deconflow.randomness import RandomState

NOT_SIMULATED = "Nobody has said how limits come about. Use certify, which takes them"


class FittedRowsQuestions(ObservesRows):
    """What every estimator answers with the help of its rows: is it right, and how far off."""

    def certify(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: Any = None,
        given: Any = None,
        limits: Any = None,
        selection: Any = None,
        selection_of: str = "measured",
        random_state: RandomState = 0,
    ) -> Certificate:
        """Say how far to trust this fit, from the rows that it was fitted to.

        Simulated rows are held against the real ones, other laws of the noise against the one that
        was said, and the rows are looked at: :doc:`/certificate`. Nothing of the fit changes.
        Measurements of which only a limit is known are drawn first, beyond it, from the model.

        Parameters
        ----------
        w, noise, projection, sample_weight, groups, given, limits, selection, selection_of
            As for :meth:`fit`.
        random_state
            Seed of the simulation.
        """
        check_seed(random_state)
        rows = (w, noise, projection, sample_weight, groups, given, limits)
        data = self._observe(*rows)
        rule = self._rule(selection, selection_of, data, w)
        data = data.with_weight()
        if (rule is None) != (self._selected is None):
            had, got = ("no selection", "one") if rule is not None else ("selection", "none")
            raise ValueError(f"Expected {had}, as in the fit; got {got}.")
        if rule is not None:
            rng = np.random.RandomState(check_random_state(random_state).randint(2**30))
            data = completed_by(self.density_, rule, data, rng)
        with as_guest(), threads_at_most(getattr(self, "n_jobs", None)):
            return certified(self, data, int(check_random_state(random_state).randint(2**30)))

    def self_test(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        n_tables: int = 5,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> SelfTest:
        """Fit again to tables simulated from this model, and see how well it is recovered.

        The tables have the noise, missing values, projections and weights of these rows, and the
        refits have the settings of this model. An interrupt ends with the tables that are done.

        Parameters
        ----------
        w, noise, projection, sample_weight
            As for :meth:`fit`: the rows that were fitted, which a model does not keep.
        n_tables
            How many tables to simulate; each takes as long as a fit.
        random_state
            Seed of tables and refits.
        verbose
            Whether to show progress.

        Examples
        --------
        >>> import numpy as np
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 1))
        >>> found = XDGMM(1).fit(w, noise=[0.5]).self_test(w, noise=[0.5], n_tables=2)
        >>> found.passed
        True
        """
        check_integer("n_tables", n_tables, 1)
        check_seed(random_state)
        self._refuse_covariates("a self-test")
        data = self._observe(w, noise, projection, sample_weight).with_weight()
        refuse_limits(data, "for a self-test", NOT_SIMULATED)
        self._refuse_selection("a self-test")
        with as_guest():
            return run_self_test(self, data, n_tables, random_state, shown=verbose)

    def regress(
        self,
        target: Any,
        on: Any,
        *,
        w: ArrayLike | None = None,
        noise: Any = None,
        projection: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        limits: Any = None,
        n_refits: int = 50,
        random_state: RandomState = 0,
    ) -> Regression:
        """Regress a column of the truth on others, whatever errors these have.

        Mean, quantiles and intrinsic scatter of the true ``target`` given the true ``on``, and
        their best linear relation: :doc:`/regression`. Standard errors come from refits to
        the rows, if these are given, with weights by chance (the Bayesian bootstrap): of the
        mixtures that the model averages, or of a mixture of Gaussians in place of a model that
        is none. Without rows they come from the model's replicates, where it has some.

        Parameters
        ----------
        target
            The column to predict, by name or number.
        on
            One or more columns to predict it from, by name or number.
        w, noise, projection, sample_weight, limits
            As for :meth:`fit`: the rows that were fitted, which a model does not keep.
        n_refits
            How many refits; each takes a fraction of a fit.
        random_state
            Seed of the weights.
        """
        check_is_fitted(self)
        check_integer("n_refits", n_refits, 2)
        check_seed(random_state)
        data = None
        if w is not None:
            self._refuse_covariates("a regression with refits to w")
            self._refuse_selection("a regression with refits to w")
            data = self._observe(w, noise, projection, sample_weight, limits=limits).with_weight()
        elif any(each is not None for each in (noise, projection, sample_weight, limits)):
            raise ValueError(
                "Expected w beside noise, projection, sample_weight or limits; got none."
            )
        with as_guest(), threads_at_most(getattr(self, "n_jobs", None)):
            return regression_of(self, target, on, data, n_refits, random_state)

    def _refuse_covariates(self, what: str) -> None:
        """Raise if the model was fitted with covariates."""
        if self._knowledge is not None and self._knowledge.covariates is not None:
            raise ValueError(f"Expected a model without covariates for {what}; got one with some.")

    def _refuse_selection(self, what: str) -> None:
        """Raise where refits would take the rows that were seen for all there are."""
        if self._selected is not None:
            raise ValueError(
                f"Expected a model of rows that were all seen for {what}; got one with a "
                "selection, which refits know nothing of. Use certify, which does."
            )
