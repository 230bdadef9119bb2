r"""Numbers of components side by side: BIC, AIC and cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from deconflow.observations import Observations
from deconflow.xd.cross_fits import CrossFits, Table, log_p
from deconflow.xd.em import mean_log_likelihood
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters


def compare(
    data: Observations,
    settings: FitSettings,
    n_components: Sequence[int],
    *,
    n_init: int = 1,
    folds: int | None = 5,
    random_state: int | np.random.RandomState | None = None,
) -> Table:
    """Compare numbers of components by BIC, AIC and cross-validation: a plot-ready table.

    Returns
    -------
    dict of arrays
        One entry per number of components: ``n_components``, ``log_likelihood`` (mean), ``bic``,
        ``aic``, and, unless ``folds`` is None, ``cv`` (mean held-out log-likelihood) with its
        standard error ``cv_se``.
    """
    rng = check_random_state(random_state)
    prepared = PreparedData(data)
    table: dict[str, list[float]] = {"n_components": list(n_components)}
    for count in n_components:
        these = replace(settings, n_components=count)
        best = prepared.fit_best(these, n_init, rng)
        each = log_p(best.mixture, prepared.rows, settings.stopping.threads)
        value = mean_log_likelihood(each, prepared.rows)
        total, free = value * len(data), n_parameters(count, data.latent_dim)
        row = {
            "log_likelihood": value,
            "bic": free * np.log(len(data)) - 2 * total,
            "aic": 2 * free - 2 * total,
        }
        if folds is not None:
            row["cv"], row["cv_se"] = _cross_validated(data, these, n_init, folds, rng)
        for name, value in row.items():
            table.setdefault(name, []).append(float(value))
    return {name: np.array(values) for name, values in table.items()}


def _cross_validated(
    data: Observations, settings: FitSettings, n_init: int, folds: int, rng: np.random.RandomState
) -> tuple[float, float]:
    """Mean held-out log-likelihood of the best of some starts, and its standard error."""
    cross = CrossFits(data, folds, rng)
    candidate = cross.candidate(settings)
    for fold in cross:
        cross.add(candidate, fold, [None] * n_init, averaged=False)
    mean = cross.mean(candidate)
    squares = cross.weights * (candidate.held_out - mean) ** 2
    return mean, float(np.sqrt(squares.mean() / len(data)))
