"""What any fitted estimator can be asked about the rows that it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.certificate import LOW_SIZE, Certificate
from deconflow.evaluation.predictive import predictive_ranks, rank_gaps
from deconflow.noise import Noise

ROWS, POSTERIOR_ROWS = 1000, 200


def check_fit(model: Any, w: Array, noise: Noise, names: Sequence[str]) -> Certificate:
    """Add checks on some of the fitted rows to the estimator's own certificate, if it has one.

    An exact ``log p(w)`` is cheap, and that of all rows.
    """
    every = w, noise.bind(len(w))
    some = np.sort(np.random.default_rng(0).permutation(len(w))[:ROWS])
    w, noise = w[some], every[1][some]
    _, p_values = rank_gaps(predictive_ranks(model, w, noise))
    ranks = {name: float(p) for name, p in zip(names, p_values, strict=True)}
    own = getattr(model, "certificate_", None)
    if own is not None:
        return replace(own, ranks=ranks)
    estimate = model.estimate_observations(w, noise=noise)
    scores = estimate.log_p
    if len(scores) < len(every[0]) and not estimate.error.any():
        scores = model.score_observations(every[0], noise=every[1])
    return Certificate(
        fitted=float(scores.mean()),
        fitted_error=float(scores.std() / np.sqrt(len(scores))),
        fitted_rows=len(scores),
        fitted_of=len(every[0]),
        converged=getattr(model, "converged_", None),
        posterior_size=_posterior_size(model, w[:POSTERIOR_ROWS], noise[:POSTERIOR_ROWS]),
        ranks=ranks,
    )


def _posterior_size(model: Any, w: Array, noise: Noise) -> tuple[float, float] | None:
    """Median effective sample size of posteriors, and the share that is low; None if exact."""
    sizes = model.posterior(w, noise=noise, n_samples=10).effective_sample_size
    if np.isinf(sizes).all():
        return None
    return float(np.median(sizes)), float(np.mean(sizes < LOW_SIZE))
