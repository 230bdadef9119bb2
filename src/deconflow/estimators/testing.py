"""Self-tests: how well an estimator recovers its own density from simulated tables."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from deconflow import models
from deconflow.answers import SelfTest, run_self_test
from deconflow.checks import check_integer, check_seed
from deconflow.estimators.base import DensityEstimator
from deconflow.guests import as_guest
from deconflow.randomness import RandomState


def self_test(
    model: DensityEstimator,
    w: Any,
    noise: Any = None,
    *,
    n_tables: int = 5,
    random_state: RandomState = 0,
    verbose: bool = False,
    **facts: Any,
) -> SelfTest:
    """Fit a model again to tables simulated from it, and measure how well it is recovered.

    The tables have the noise, missing values, projections and weights of these rows, and the
    refits have the settings of the model. An interrupt ends with the tables that are done.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, **facts
        The rows that were fitted, as for ``fit``: a model does not keep them.
    n_tables
        How many tables to simulate; each takes as long as a fit.
    random_state
        Seed of tables and refits.
    verbose
        Whether to show progress.

    Examples
    --------
    >>> import numpy as np
    >>> from deconflow import XDGMM, self_test
    >>> w = np.random.default_rng(0).normal(size=(500, 1))
    >>> found = self_test(XDGMM(1).fit(w, noise=[0.5]), w, noise=[0.5], n_tables=2)
    >>> found.passed
    True
    """
    check_is_fitted(model)
    check_integer("n_tables", n_tables, 1)
    check_seed(random_state)
    rows = models.simulated_rows(model.fit_, model._rows(w, noise, facts), "a self-test")
    with as_guest():
        return run_self_test(model, rows, n_tables, random_state, shown=verbose)
