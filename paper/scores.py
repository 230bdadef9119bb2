"""Scores on test rows, and draws for the figures."""

from __future__ import annotations

import math
from typing import Any

import torch

from deconflow import XDGMM, FlowDeconvolver, Observations
from deconflow.estimators import OutOfReachError
from deconflow.fitting import History
from deconflow.randomness import isolated_rng
from paper import data
from paper.data import Array, Sample
from paper.numbers import V, W
from paper.runs import Job, Outcome

PROPOSALS_PER_DRAW = 5
Scores = dict[str, float | None]


def outcome(
    job: Job, model: Any, sample: Sample, settings: dict[str, Any], details: dict[str, Any]
) -> Outcome:
    """Score a model on test rows; on the toy, draw from it for the figures."""
    draws, n = {}, job.protocol.kept_draws
    w = noisy_score(model, sample.test.w, sample.noise, job.protocol.scored_draws)
    if job.task.dataset == "toy":
        scores = toy_scores(model.score_samples(sample.test.v), w, sample)
        draws["prior"] = model.sample(n, random_state=0)
        draws["posterior"] = posterior_draws(model, data.TEST_POINT, sample.noise, n)
    else:
        scores = wine_scores(model.score_samples(sample.test.v), w, sample)
    return Outcome(scores, settings, details, draws)


def toy_scores(v: Array, w: float | None, sample: Sample) -> Scores:
    """Return -log p(v) and -log p(w) beside those of the truth on the same rows."""
    return {
        V: float(-v.mean()),
        W: w,
        "truth_v": float(-data.TRUTH.log_prob(sample.test.v).mean()),
        "truth_w": float(-data.BLURRED.log_prob(sample.test.w).mean()),
    }


def wine_scores(v: Array, w: float | None, sample: Sample) -> Scores:
    """Return -log p(v) and -log p(w), and the former where no training row is a copy."""
    fresh = data.without_copy(sample)
    return {
        V: float(-v.mean()),
        W: w,
        f"{V}_without_copy": float(-v[fresh].mean()),
        "share_without_copy": float(fresh.mean()),
    }


def noisy_score(model: Any, w: Array, noise: Array, draws: int) -> float:
    """Mean of -log p(w): exact for XD, by so many draws per row for the others.

    Infinite if the model gives a row no density at all, as a flow may that has exploded.
    """
    options = {} if isinstance(model, XDGMM) else {"n_samples": draws}
    try:
        return float(-model.score_observations(w, noise=noise, **options).mean())
    except OutOfReachError:
        return math.inf


def posterior_draws(model: Any, w: Array, noise: Array, n: int) -> Array:
    """Draw from the posterior of one row, as the paper's figures do.

    The exact posterior of XD; what the recognition network says, if it was trained by the evidence
    lower bound; resampled by weight otherwise.
    """
    if isinstance(model, XDGMM):
        return model.posterior(w, noise=noise).sample(n, random_state=0)[0]
    if isinstance(model, FlowDeconvolver) and model.objective == "elbo":
        return _recognised(model, w, noise, n)
    proposals = PROPOSALS_PER_DRAW * n
    return model.posterior(w, noise=noise, n_samples=n, n_proposals=proposals).samples[0]


def _recognised(model: FlowDeconvolver, w: Array, noise: Array, n: int) -> Array:
    """Draw from a model's own approximate posterior of one row, without weights."""
    like = next(model._own_density.density.parameters())
    row = model.standardiser_.observations(Observations.from_arrays(w, noise))
    with torch.no_grad(), isolated_rng(0):
        v, _ = model.posterior_.sample(row.to(dtype=like.dtype), n)
    return model.standardiser_.from_standard(v[:, 0]).numpy()


def recorded(history: History) -> dict[str, Any]:
    """Return what is recorded of a training."""
    return {
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "stopped_early": history.stopped_early,
        "skipped_steps": history.skipped_steps,
        "fit_seconds": round(sum(history.seconds), 1),
    }
