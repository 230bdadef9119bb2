"""The paper's flows and their training, scores on test rows, and draws for the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from deconflow import XDGMM, Deconvolver, Observations
from deconflow.auto import ensemble_of
from deconflow.densities import DENSITIES, Architecture, Density, MixtureDensity
from deconflow.densities.layers import LULayer, MaskedNetwork
from deconflow.estimators import OutOfReachError
from deconflow.fits.weighted_fit import WeightedFit, standardised
from deconflow.fitting import History, Training, fit
from deconflow.objectives import ELBO, ImportanceWeighted
from deconflow.posteriors import MixtureExact, PosteriorModel, RecognitionFlow
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser
from paper import data
from paper.data import Array, Sample
from paper.protocols import V_FITTED, V_WITHOUT_COPY, V, W
from paper.runs import Job, Outcome

Settings = dict[str, Any]
OBJECTIVES = {"elbo": ELBO, "iw": ImportanceWeighted}
OF_TRAINING = (
    "epochs", "batch_size", "learning_rate", "schedule", "clip_norm", "averaging", "patience",
)  # fmt: skip


@dataclass
class PaperFlow:
    """A prior and the posterior of each row, in standardised units.

    Attributes
    ----------
    settings : dict
        Sizes of the networks and how to train them.
    units : Standardiser
        The change of units.
    prior, recognition
        The networks.
    history : History
        What happened in training.
    """

    settings: Settings
    units: Standardiser
    prior: Density
    recognition: PosteriorModel
    history: History = field(default_factory=History)

    @property
    def density_(self) -> WeightedFit:
        """The fitted density, as estimators have it."""
        names = [f"v{d}" for d in range(self.prior.dim)]
        return WeightedFit(self.prior, self.units, self.recognition, names)


def untrained(settings: Settings, data: Observations, seed: int) -> PaperFlow:
    """Make networks, in the units of these rows."""
    with isolated_rng(seed):
        return _made(settings, Standardiser.fit(data), data)


def trained(
    settings: Settings,
    data: Observations,
    seed: int,
    checkpoint: Path,
    start: PaperFlow | None = None,
) -> PaperFlow:
    """Train by one of the paper's bounds, from new networks or from those of ``start``."""
    with isolated_rng(seed):
        units = Standardiser.fit(data) if start is None else start.units
        train, held_out = standardised(units, data).split(settings["validation_fraction"])
        flow = _made(settings, units, data) if start is None else replace(start, settings=settings)
        make = OBJECTIVES[settings["objective"]]
        objective = make(flow.prior, flow.recognition, settings["n_draws"])
        training = Training(**{name: settings[name] for name in OF_TRAINING if name in settings})
        flow.history = fit(objective, train, held_out, training, checkpoint=checkpoint)
    return flow


def _made(settings: Settings, units: Standardiser, data: Observations) -> PaperFlow:
    size = Architecture(
        layers=settings["n_layers"],
        hidden=settings["hidden"],
        blocks=settings["n_blocks"],
        dropout=settings.get("dropout", 0.0),
        base_components=settings.get("base_components", 1),
    )
    n_features = standardised(units, data[:1]).features().shape[-1]
    prior = DENSITIES[settings["flow"]](data.latent_dim, size)
    recognition = _recognition(settings, prior, n_features, size)
    for network in (prior, recognition):
        network.to(dtype=torch.float32).eval()
    return PaperFlow(settings, units, prior, recognition)


def _recognition(
    settings: Settings, prior: Density, n_features: int, size: Architecture
) -> PosteriorModel:
    if settings.get("posterior_family") == "exact":
        return MixtureExact(cast(MixtureDensity, prior))
    return RecognitionFlow(
        prior.dim,
        n_features,
        replace(size, layers=settings["posterior_layers"]),
        residual=settings["flow"] != "made",
        anchored=False,
    )


PROPOSALS_PER_DRAW = 5
Scores = dict[str, float | None]


def outcome(
    job: Job, model: Any, sample: Sample, settings: dict[str, Any], details: dict[str, Any]
) -> Outcome:
    """Score a model on test rows; on the toy, draw from it for the figures."""
    draws, n = {}, job.protocol.kept_draws
    w = noisy_score(model, sample.test.w, sample.noise, job.protocol.scored_draws)
    if job.task.dataset == "toy":
        scores = toy_scores(model.density_.log_prob(sample.test.v), w, sample)
        draws["prior"] = model.density_.sample(n, random_state=0)
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
    v, fresh = model.density_.log_prob(sample.test.v), data.without_copy(sample)
    return {
        V: float(-v.mean()),
        W: w,
        V_WITHOUT_COPY: float(-v[fresh].mean()),
        V_FITTED: float(-model.density_.log_prob(sample.train.v).mean()),
        "share_without_copy": float(fresh.mean()),
    }


def noisy_score(model: Any, w: Array, noise: Array, draws: int) -> float:
    """Mean of -log p(w): exact for XD, by so many draws per row for the others.

    Infinite if the model gives a row no density at all, as a flow may that has exploded.
    """
    rows = Observations.from_arrays(w, noise)
    try:
        return float(-model.density_.log_marginal(rows, draws).log_p.mean())
    except OutOfReachError:
        return math.inf


def posterior_draws(model: Any, w: Array, noise: Array, n: int) -> Array:
    """Draw from the posterior of one row, as the paper's figures do.

    The exact posterior of XD; what the recognition network says, if it was trained by the evidence
    lower bound; resampled by weight otherwise.
    """
    rows = Observations.from_arrays(w, noise)
    if isinstance(model, XDGMM):
        return model.density_.posterior(rows).sample(n, random_state=0)[0]
    if isinstance(model, PaperFlow) and model.settings["objective"] == "elbo":
        return _recognised(model, rows, n)
    return model.density_.posterior(rows, n, PROPOSALS_PER_DRAW * n).samples[0]


def _recognised(model: PaperFlow, rows: Observations, n: int) -> Array:
    """Draw from a model's own approximate posterior of one row, without weights."""
    like = next(model.prior.parameters())
    row = model.units.observations(rows)
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
