"""The fits to the wines: XD, flows with and without deconvolution."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from deconflow.estimators import XDGMM, FlowDeconvolver
from deconflow.fitting import NonFiniteError, Training, fit
from deconflow.objectives import MaximumLikelihood
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.reproduction import data
from deconflow.reproduction.jobs import Job, Outcome
from deconflow.reproduction.scoring import history_of, noisy_score, wine_outcome, wine_scores

Array = NDArray[np.float64]
EARLY_STOPPING_SHARE = 0.1
XD_CHOICE: dict[str, Any] = {"n_components": (4, 8, 16, 32), "floor": (0.05, 0.1, 0.2)}
XD_AVERAGE: dict[str, Any] = {"n_average": 5, "average_over": "folds", "max_iter": 300}
SEARCH_SEED = 0
"""The split whose training rows the grid search sees."""


def wine_flow(job: Job) -> Outcome:
    """Fit a flow by importance weighting, with early stopping on a tenth of the rows."""
    sample = job.wine()
    model = _flow(job, len(sample.train)).fit(sample.train.w, noise=sample.noise)
    return wine_outcome(job, model, sample, _settings(model), history_of(model))


def _flow(job: Job, n_rows: int) -> FlowDeconvolver:
    K = job.task.row.options["n_draws"]
    longest = job.task.row.options.get("epochs") or job.protocol.wine_epochs(2 * K, n_rows)
    return FlowDeconvolver(
        "made",
        objective="iw",
        n_draws=K,
        anchored=False,
        batch_size=job.protocol.wine_batch_size,
        schedule="constant",
        clip_norm=job.protocol.clip_norm,
        averaging=None,
        validation_fraction=EARLY_STOPPING_SHARE,
        patience=job.protocol.patience,
        epochs=longest,
        random_state=job.seed,
        checkpoint=job.checkpoint(),
        **job.settings,
    )


def _settings(model: FlowDeconvolver) -> dict[str, Any]:
    left_out = ("checkpoint", "verbose", "device", "random_state", "warm_start")
    return {name: value for name, value in model.get_params().items() if name not in left_out}


def wine_plain(job: Job) -> Outcome:
    """Fit the same flow by maximum likelihood, to noisy or to clean rows as they are."""
    sample, fitted = job.wine(), job.task.row.options["fitted"]
    values = getattr(sample.train, fitted)
    training = Training(
        epochs=job.protocol.wine_epochs(1, len(values)),
        batch_size=job.protocol.wine_batch_size,
        learning_rate=job.settings["learning_rate"],
        schedule="constant",
        clip_norm=job.protocol.clip_norm,
        patience=job.protocol.patience,
    )
    model = FlowDeconvolver("made", **job.settings, random_state=job.seed)
    _fit_plainly(model, values, training, job.checkpoint())
    w = float(-model.score_samples(sample.test.w).mean()) if fitted == "w" else None
    scores = wine_scores(model.score_samples(sample.test.v), w, sample)
    return Outcome(scores, {**job.settings, "epochs": training.epochs}, history_of(model))


def _fit_plainly(model: FlowDeconvolver, values: Array, training: Training, path: Path) -> None:
    """Train the density alone, with early stopping on a tenth of the rows."""
    model.initialise(values, noise=0.0)
    rows = model.standardiser_.observations(Observations.from_arrays(values, 0.0))
    with isolated_rng(model.random_state):
        train, held_out = rows.split(EARLY_STOPPING_SHARE)
        objective = MaximumLikelihood(model.density_.density)
        model.history_ = fit(objective, train, held_out, training, checkpoint=path)


def wine_xd(job: Job) -> Outcome:
    """Fit XD by minibatch gradients, with early stopping on a tenth of the rows."""
    sample = job.wine()
    model, epochs = _climbed(job, sample.train.w, sample.noise)
    return wine_outcome(job, model, sample, job.settings, {"epochs": epochs})


def _climbed(job: Job, w: Array, noise: Array) -> tuple[XDGMM, int]:
    """Climb until the held-out tenth has not improved for so long; return the best."""
    rng = np.random.default_rng(job.seed)
    w = w[rng.permutation(len(w))]
    n_held_out = round(EARLY_STOPPING_SHARE * len(w))
    held_out, train = w[:n_held_out], w[n_held_out:]
    batches: dict[str, Any] = {"batch_size": job.protocol.wine_batch_size, "method": "minibatch"}
    model = XDGMM(**job.settings, **batches, random_state=job.seed, n_jobs=1)
    best, best_score, best_epoch, epoch = model, -np.inf, 0, 0
    longest = job.protocol.wine_epochs(1, len(train))
    while epoch < longest and epoch - best_epoch < job.protocol.patience:
        if not _stepped(model, train[rng.permutation(len(train))], noise):
            break
        epoch, score = epoch + 1, model.score(held_out, noise=noise)
        if score > best_score:
            best, best_score, best_epoch = copy.deepcopy(model), score, epoch
    return best, epoch


def _stepped(model: XDGMM, w: Array, noise: Array) -> bool:
    """Take an epoch's steps; say whether the components have kept a covariance."""
    try:
        model.partial_fit(w, noise=noise)
    except ValueError as error:
        if _has_collapsed(error) and hasattr(model, "means_"):
            return False
        raise
    return True


def _has_collapsed(error: ValueError) -> bool:
    return isinstance(error.__cause__, np.linalg.LinAlgError)


def wine_xd_average(job: Job) -> Outcome:
    """Fit XD as well as we can: components and floor chosen, five folds averaged."""
    sample = job.wine()
    model = XDGMM(**XD_CHOICE, **XD_AVERAGE, random_state=job.seed, n_jobs=1)
    model.fit(sample.train.w, noise=sample.noise)
    return wine_outcome(job, model, sample, {**XD_CHOICE, **XD_AVERAGE}, {})


def grid_point(job: Job) -> Outcome:
    """Fit one point of the grid without one fold, and score the noisy rows of that fold.

    The seed of the task is the number of the fold; clean rows play no part.
    """
    sample = data.wine(job.task.dataset, SEARCH_SEED, job.data)
    w = sample.train.w[: job.protocol.wine_rows]
    folds = KFold(job.protocol.folds, shuffle=True, random_state=SEARCH_SEED)
    kept, left_out = list(folds.split(w))[job.seed]
    try:
        model, details = _searched(job, w[kept], sample.noise)
    except (NonFiniteError, ValueError) as error:
        if isinstance(error, ValueError) and not _has_collapsed(error):
            raise
        return Outcome({"minus_log_p_w": math.inf}, job.settings, {"diverged": True})  # it loses
    score = noisy_score(model, w[left_out], sample.noise, job.protocol.scored_draws)
    return Outcome({"minus_log_p_w": score}, job.settings, details)


def _searched(job: Job, w: Array, noise: Array) -> tuple[XDGMM | FlowDeconvolver, dict[str, Any]]:
    if job.task.row.options["kind"] == "xd":
        mixture, epochs = _climbed(job, w, noise)
        return mixture, {"epochs": epochs}
    flow = _flow(job, len(w)).fit(w, noise=noise)
    return flow, history_of(flow)
