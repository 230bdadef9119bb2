"""The fits to the toy: XD, flows by the paper's bounds, pretrained flows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from deconflow.densities import MixtureDensity
from deconflow.estimators import XDGMM, FlowDeconvolver
from deconflow.fitting import History, Training, fit
from deconflow.objectives import MaximumLikelihood, Objective, PosteriorLikelihood, RowData
from deconflow.observations import Observations, Pairs
from deconflow.randomness import isolated_rng
from deconflow.reproduction.data import Sample, exact_posterior
from deconflow.reproduction.jobs import Job, Outcome
from deconflow.reproduction.protocols import Protocol
from deconflow.reproduction.scoring import history_of, recorded, toy_outcome

XD: dict[str, Any] = {"n_components": 3, "n_init": 5, "tol": 1e-8}
PRIOR_SHARE, POSTERIOR_SHARE = 2, 4
"""Pretraining gives half the budget to each flow: a row costs the prior one evaluation, and the
posterior two, because the density of a given point takes one for each dimension."""


def toy_xd(job: Job) -> Outcome:
    """Fit XD with three components to the training rows."""
    sample = job.toy()
    model = XDGMM(**XD, random_state=job.seed, n_jobs=1)
    model.fit(sample.train.w[: job.protocol.train_rows], noise=sample.noise)
    return toy_outcome(job, model, sample, XD, {"iterations": int(model.n_iter_)})


def toy_flow(job: Job) -> Outcome:
    """Fit a flow, or a mixture, by one of the paper's bounds."""
    settings = toy_settings(job.protocol, **job.task.row.options)
    sample = job.toy()
    model = FlowDeconvolver(**settings, random_state=job.seed, checkpoint=job.checkpoint())
    if settings["flow"] == "gaussian_mixture":
        _start_at_clusters(model, sample)
    model.fit(sample.train.w, noise=sample.noise)
    return toy_outcome(job, model, sample, settings, history_of(model))


def toy_settings(protocol: Protocol, **options: Any) -> dict[str, Any]:
    """Return the parameters of a fit: the paper's networks, the protocol's sizes."""
    is_mixture = options.get("flow") == "gaussian_mixture"
    flows = 1 if is_mixture else 2
    rows = protocol.train_rows + protocol.validation_rows
    return {
        "flow": "maf",
        "n_layers": protocol.layers,
        "posterior_layers": protocol.layers,
        "hidden": protocol.hidden,
        "n_blocks": protocol.blocks,
        "dropout": protocol.dropout,
        "anchored": False,
        "batch_size": protocol.batch_size,
        "learning_rate": (protocol.mixture_learning_rate if is_mixture else protocol.learning_rate),
        "schedule": protocol.schedule,
        "clip_norm": protocol.clip_norm,
        "averaging": None,
        "validation_fraction": protocol.validation_rows / rows,
        "epochs": protocol.epochs_for(flows * options["n_draws"], rows),
        **options,
    }


def _start_at_clusters(model: FlowDeconvolver, sample: Sample) -> None:
    """Let a mixture start at the k-means clusters of the noisy rows, as XD does."""
    model.set_params(warm_start=True).initialise(sample.train.w, noise=sample.noise)
    z = model.standardiser_.to_standard(torch.from_numpy(sample.train.w)).numpy()
    clusters = KMeans(model.base_components, n_init=1, random_state=model.random_state)
    start = _mixture_of(z, clusters.fit_predict(z))
    model.density_.density.load_state_dict(start.state_dict())


def _mixture_of(z: NDArray[np.float64], cluster: NDArray[np.int32]) -> MixtureDensity:
    parts = [z[cluster == k] for k in np.unique(cluster)]
    weights = np.array([len(part) / len(z) for part in parts])
    means = np.array([part.mean(0) for part in parts])
    covariances = np.array([np.cov(part.T) for part in parts])
    return MixtureDensity(*map(torch.from_numpy, (weights, means, covariances)))


def pretrained(job: Job) -> Outcome:
    """Train the prior on clean rows and the posterior on pairs, each by itself."""
    sample = job.toy()
    model, histories = _pretrain(job, sample)
    return toy_outcome(job, model, sample, pretrained_settings(job.protocol), _both(histories))


def after_pretraining(job: Job) -> Outcome:
    """Go on from the pretrained flows by the evidence lower bound with K = 50."""
    sample, settings = job.toy(), after_settings(job.protocol)
    model = _pretrained_model(job, sample)
    model.set_params(warm_start=True, checkpoint=job.checkpoint())
    model.fit(sample.train.w, noise=sample.noise)
    return toy_outcome(job, model, sample, settings, history_of(model))


def _pretrained_model(job: Job, sample: Sample) -> FlowDeconvolver:
    """Load the pretrained flows of this seed, or train them if they are not those of today."""
    path, wanted = _pretrained_path(job), after_settings(job.protocol)
    if path.exists():
        model = FlowDeconvolver.load(path)
        if all(getattr(model, name) == value for name, value in wanted.items()):
            return model
    return _pretrain(job, sample)[0]


def _pretrained_path(job: Job) -> Path:
    return job.work / f"pretrained.{job.seed}.model"


def _pretrain(job: Job, sample: Sample) -> tuple[FlowDeconvolver, dict[str, History]]:
    """Train both flows, and keep them for the row that goes on from them."""
    model = FlowDeconvolver(**after_settings(job.protocol), random_state=job.seed)
    model.initialise(sample.train.w, noise=sample.noise)
    epochs = pretrained_settings(job.protocol)["epochs"]
    prior = MaximumLikelihood(model.density_.density)
    posterior = PosteriorLikelihood(model.posterior_)
    clean, pairs = _clean_rows(model, sample), _pairs(model, sample, job.seed)
    histories = {
        "prior": _train(job, "prior", prior, clean, epochs["prior"]),
        "posterior": _train(job, "posterior", posterior, pairs, epochs["posterior"]),
    }
    model.save(_pretrained_path(job))
    return model, histories


def after_settings(protocol: Protocol) -> dict[str, Any]:
    """Return the parameters of the fit that goes on from pretrained flows."""
    return toy_settings(protocol, objective="elbo", n_draws=50)


def pretrained_settings(protocol: Protocol) -> dict[str, Any]:
    """Return the same, with the epochs of either flow's training by itself."""
    rows = protocol.train_rows + protocol.validation_rows
    epochs = {
        "prior": protocol.epochs_for(PRIOR_SHARE, rows),
        "posterior": protocol.epochs_for(POSTERIOR_SHARE, rows),
    }
    return {**after_settings(protocol), "epochs": epochs}


SETTINGS: dict[str, Callable[..., dict[str, Any]]] = {
    "toy_flow": toy_settings,
    "pretrained": pretrained_settings,
    "after_pretraining": after_settings,
}
"""The parameters that a row's fit has, by the name of the fit."""


def _both(histories: dict[str, History]) -> dict[str, Any]:
    """Return what is recorded of two trainings, and their time together."""
    parts = {name: recorded(history) for name, history in histories.items()}
    return {**parts, "fit_seconds": round(sum(part["fit_seconds"] for part in parts.values()), 1)}


def _clean_rows(model: FlowDeconvolver, sample: Sample) -> Observations:
    """Return the true values in the model's units."""
    clean = Observations.from_arrays(sample.train.v, 0.0)
    return model.standardiser_.observations(clean)


def _pairs(model: FlowDeconvolver, sample: Sample, seed: int) -> Pairs:
    """Pair each measurement with a draw from its exact posterior, in the model's units."""
    noisy = Observations.from_arrays(sample.train.w, sample.noise)
    drawn = exact_posterior(sample.train.w).sample(1, random_state=seed)[:, 0]
    v = model.standardiser_.to_standard(torch.from_numpy(drawn))
    return Pairs(model.standardiser_.observations(noisy), v)


def _train(job: Job, part: str, objective: Objective, rows: RowData, epochs: int) -> History:
    """Train one part on the rows that a later fit with the same seed trains on, too."""
    protocol = job.protocol
    training = Training(
        epochs=epochs,
        batch_size=protocol.batch_size,
        learning_rate=protocol.learning_rate,
        schedule=protocol.schedule,
        clip_norm=protocol.clip_norm,
    )
    with isolated_rng(job.seed):
        order = torch.randperm(len(rows))
        held_out, train = (
            rows[order[: protocol.validation_rows]],
            rows[order[protocol.validation_rows :]],
        )
        return fit(objective, train, held_out, training, checkpoint=job.checkpoint(part))
