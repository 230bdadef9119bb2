"""Scores on test rows, and draws for the figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow.estimators import XDGMM, FlowDeconvolver
from deconflow.fitting import History
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.reproduction import data
from deconflow.reproduction.data import Sample
from deconflow.reproduction.jobs import Job, Outcome

Array = NDArray[np.float64]
PROPOSALS_A_DRAW = 5


def toy_outcome(
    job: Job, model: Any, sample: Sample, settings: dict[str, Any], details: dict[str, Any]
) -> Outcome:
    """Score a model on the toy's test rows, beside the truth on the same rows."""
    n = job.protocol.kept_draws
    draws = {
        "prior": model.sample(n, random_state=0),
        "posterior": posterior_draws(model, data.TEST_POINT, sample.noise, n),
    }
    scores = toy_scores(model, sample, job.protocol.scored_draws)
    return Outcome(scores, settings, details, draws)


def toy_scores(model: Any, sample: Sample, draws: int) -> dict[str, float | None]:
    """Return -log p(v) and -log p(w) of the model and of the truth."""
    return {
        "minus_log_p_v": float(-model.score_samples(sample.test.v).mean()),
        "minus_log_p_w": noisy_score(model, sample.test.w, sample.noise, draws),
        "truth_v": float(-data.TRUTH.log_prob(sample.test.v).mean()),
        "truth_w": float(-data.BLURRED.log_prob(sample.test.w).mean()),
    }


def wine_outcome(
    job: Job, model: Any, sample: Sample, settings: dict[str, Any], details: dict[str, Any]
) -> Outcome:
    """Score a model on a wine's test rows, clean and blurred."""
    v = model.score_samples(sample.test.v)
    w = noisy_score(model, sample.test.w, sample.noise, job.protocol.scored_draws)
    return Outcome(wine_scores(v, w, sample), settings, details)


def wine_scores(v: Array, w: float | None, sample: Sample) -> dict[str, float | None]:
    """Return -log p(v) and -log p(w), and the former where no training row is a copy."""
    fresh = data.without_copy(sample)
    return {
        "minus_log_p_v": float(-v.mean()),
        "minus_log_p_w": w,
        "minus_log_p_v_without_copy": float(-v[fresh].mean()),
        "share_without_copy": float(fresh.mean()),
    }


def noisy_score(model: Any, w: Array, noise: Array, draws: int) -> float:
    """Mean of -log p(w): exact for XD, by so many draws a row for the others.

    Infinite if the model gives a row no density at all, as a flow may that has exploded.
    """
    options = {} if isinstance(model, XDGMM) else {"n_samples": draws}
    try:
        return float(-model.score_observations(w, noise=noise, **options).mean())
    except ValueError as error:
        if "that the model can reach" not in str(error):
            raise
        return math.inf


def posterior_draws(model: Any, w: Array, noise: Array, n: int) -> Array:
    """Draw from the posterior of one row, as the paper's figures do.

    The exact posterior of XD; what the recognition network says, if it was trained by the evidence
    lower bound; resampled by weight otherwise.
    """
    if isinstance(model, XDGMM):
        return model.posterior(w, noise=noise).sample(n, random_state=0)[0]
    if isinstance(model, FlowDeconvolver) and model.objective == "elbo":
        return recognised(model, w, noise, n)
    proposals = PROPOSALS_A_DRAW * n
    return model.posterior(w, noise=noise, n_samples=n, n_proposals=proposals).samples[0]


def recognised(model: FlowDeconvolver, w: Array, noise: Array, n: int) -> Array:
    """Draw from a model's own approximate posterior of one row, without weights."""
    like = next(model.density_.parameters())
    row = model.standardiser_.observations(Observations.from_arrays(w, noise))
    with torch.no_grad(), isolated_rng(0):
        v, _ = model.posterior_.sample(row.to(dtype=like.dtype), n)
    return model.standardiser_.from_standard(v[:, 0]).numpy()


def history_of(model: FlowDeconvolver) -> dict[str, Any]:
    """Return what is recorded of a model's training."""
    return recorded(model.history_)


def recorded(history: History) -> dict[str, Any]:
    """Return what is recorded of a training."""
    return {
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "stopped_early": history.stopped_early,
        "skipped_steps": history.skipped_steps,
        "fit_seconds": round(sum(history.seconds), 1),
    }
