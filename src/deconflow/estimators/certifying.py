"""The certificate of any estimator: what its fit knows of itself, and what checks of it find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from deconflow.answers import completed
from deconflow.certificate import LOW_SIZE, Certificate
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.trust import Case, find_doubts

CHECKING = "checking the fit"
"""Stage of the progress bar."""
SCORED_ROWS, POSTERIOR_ROWS = 1000, 200


def certified(model: Any, data: Observations, seed: int) -> Certificate:
    """Add checks of the model and of its rows to what the fit knows of itself."""
    own = getattr(model, "certificate_", None)
    density, rows, working = model._own_density, data, model._working_mixture()
    known = model._knowledge
    with isolated_rng(seed):
        rows = completed(model.density_, data)
    if known is not None:
        density, rows = known.for_checks(model, rows)
        working = working if known.keeps_mixture else None
    case = Case(
        rows, density.sample, model._measured_names, working,
        log_p=None if own is not None else lambda rows: density.log_marginal(rows).log_p,
        seed=seed,
        learned=None if model._errors is None else model._errors.finding(),
        samples=_posterior_samples(model, data),
    )  # fmt: skip
    found = _of_fitted_rows(model, data) if own is None else own
    if own is not None and known is not None:
        found = _of_rows_as_they_came(own, _of_fitted_rows(model, data))
    return replace(found, findings=find_doubts(case))


def _posterior_samples(model: Any, data: Observations) -> Any:
    """Some of the rows that were made of posterior samples, and the density; None without any."""
    if data.noise.kept is None or data.projection is not None or data.given is not None:
        return None
    return _some(data), model.density_.log_prob


def _some(data: Observations) -> Observations:
    return data[np.random.default_rng(0).permutation(len(data))[:SCORED_ROWS]]


def _of_rows_as_they_came(own: Certificate, seen: Certificate) -> Certificate:
    """Put ``log p(w)`` of the fitted rows in the place of that of held-out rows.

    The latter is that of rows changed by what is known of the truth, mirrored or in other units,
    and cannot be held against that of other fits.
    """
    names = ("fitted", "fitted_error", "fitted_rows", "fitted_of")
    figures = {name: getattr(seen, name) for name in names}
    return replace(own, held_out=None, held_out_error=None, **figures)


def _of_fitted_rows(model: Any, data: Observations) -> Certificate:
    """Say how a model does on rows that it has seen; an exact ``log p(w)`` is that of all rows."""
    some = _some(data)
    estimate = model.density_.log_marginal(some)
    scores = estimate.log_p
    if len(some) < len(data) and not estimate.error.any():
        scores = model.density_.log_marginal(data).log_p
    return Certificate(
        fitted=float(scores.mean()),
        fitted_error=float(scores.std() / np.sqrt(len(scores))),
        fitted_rows=len(scores),
        fitted_of=len(data),
        converged=getattr(model, "converged_", None),
        posterior_size=_posterior_size(model, some[:POSTERIOR_ROWS]),
    )


def _posterior_size(model: Any, data: Observations) -> tuple[float, float] | None:
    """Median effective sample size of posteriors, and the share that is low; None if exact."""
    sizes = model.density_.posterior(data).effective_sample_size
    if np.isinf(sizes).all():
        return None
    return float(np.median(sizes)), float(np.mean(sizes < LOW_SIZE))
