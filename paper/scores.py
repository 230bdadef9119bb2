"""Scores on test rows, and draws for the figures."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from deconflow import XDGMM, Deconvolver, Observations
from deconflow.auto import ensemble_of
from deconflow.densities.layers import LULayer, MaskedNetwork
from deconflow.estimators import OutOfReachError
from deconflow.fitting import History
from deconflow.randomness import isolated_rng
from paper import data
from paper.data import Array, Sample
from paper.flows import PaperFlow
from paper.numbers import V_FITTED, V_WITHOUT_COPY, V, W
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
        scores = wine_scores(model, w, sample)
    return Outcome(scores, settings, details, draws)


def toy_scores(v: Array, w: float | None, sample: Sample) -> Scores:
    """Return -log p(v) and -log p(w) beside those of the truth on the same rows."""
    return {
        V: float(-v.mean()),
        W: w,
        "truth_v": float(-data.TRUTH.log_prob(sample.test.v).mean()),
        "truth_w": float(-data.BLURRED.log_prob(sample.test.w).mean()),
    }


def wine_scores(model: Any, w: float | None, sample: Sample) -> Scores:
    """Return -log p(v) and -log p(w), and the former of other rows.

    Of the test rows that are no copy of a training row, and of the clean values of those rows that
    were fitted, which is what the published scripts score.
    """
    v, fresh = model.score_samples(sample.test.v), data.without_copy(sample)
    return {
        V: float(-v.mean()),
        W: w,
        V_WITHOUT_COPY: float(-v[fresh].mean()),
        V_FITTED: float(-model.score_samples(sample.train.v).mean()),
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
    if isinstance(model, PaperFlow) and model.settings["objective"] == "elbo":
        return _recognised(model, w, noise, n)
    proposals = PROPOSALS_PER_DRAW * n
    return model.posterior(w, noise=noise, n_samples=n, n_proposals=proposals).samples[0]


def _recognised(model: PaperFlow, w: Array, noise: Array, n: int) -> Array:
    """Draw from a model's own approximate posterior of one row, without weights."""
    like = next(model.prior.parameters())
    row = model.units.observations(Observations.from_arrays(w, noise))
    with torch.no_grad(), isolated_rng(0):
        v, _ = model.recognition.sample(row.to(dtype=like.dtype), n)
    return model.units.from_standard(v[:, 0]).numpy()


def recorded(history: History, **networks: nn.Module) -> dict[str, Any]:
    """Return what is recorded of a training, and the orders of the networks' layers."""
    return {
        "epochs": len(history),
        "best_epoch": history.best_epoch,
        "stopped_early": history.stopped_early,
        "skipped_steps": history.skipped_steps,
        "fit_seconds": round(sum(history.seconds), 1),
        "learning_rate": rates(history.learning_rate),
        "orders": {name: orders(network) for name, network in networks.items()},
    }


def recorded_fit(model: PaperFlow) -> dict[str, Any]:
    """Return what is recorded of a flow that was fitted with its posterior."""
    return recorded(model.history, prior=model.prior, posterior=model.recognition)


def recorded_flows(model: Deconvolver) -> dict[str, Any]:
    """Return the learning rates, the same for all, and the orders of the flows of our default."""
    members, dim = model.fit_.solution.fitted.members, model.density_.dim
    return {
        "learning_rate": rates(members[0].history["learning_rate"]) if members else {},
        "orders": [orders(ensemble_of([member], dim)) for member in members],
    }


def rates(by_epoch: Sequence[float]) -> dict[str, float]:
    """Return the learning rate at the start of each epoch that has another than the one before."""
    pairs = enumerate(pairwise([None, *by_epoch]))
    return {str(epoch): float(f"{rate:.4g}") for epoch, (last, rate) in pairs if rate != last}


def orders(network: nn.Module) -> str:
    """Say in which order each layer takes the dimensions, such as ``10 01`` for two layers of two.

    That of the linear layers' permutations; without such layers, that of the masks.
    """
    parts = list(network.modules())
    permuted = [part.permutation for part in parts if isinstance(part, LULayer)]
    masked = [part.places for part in parts if isinstance(part, MaskedNetwork)]
    return " ".join("".join(map(str, order.tolist())) for order in permuted or masked)
