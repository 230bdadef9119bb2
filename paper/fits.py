"""The fits that make the rows: XD, flows by the paper's bounds, pretrained flows, our default."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.model_selection import KFold
from torch import Tensor

from benchmarks.runs import code_digest
from deconflow import XDGMM, Deconvolver, Observations
from deconflow.densities import MixtureDensity
from deconflow.files import replacing
from deconflow.fitting import History, NonFiniteError, Training, UnusableCheckpointError, fit
from deconflow.objectives import MaximumLikelihood, Objective, PosteriorLikelihood, RowData
from deconflow.observations import Pairs
from deconflow.posteriors import MixtureExact, PosteriorModel
from deconflow.randomness import isolated_rng, own_generator
from deconflow.standardising import Standardiser
from deconflow.xd import Adam, FitSettings, lay_out, log_p, step_on_batch
from paper import data
from paper.data import Array, Sample
from paper.flows import (
    PaperFlow,
    noisy_score,
    outcome,
    recorded,
    recorded_fit,
    recorded_flows,
    trained,
    untrained,
    wine_scores,
)
from paper.protocols import (
    EARLY_STOPPING_SHARE,
    Protocol,
    Row,
    Table,
    W,
)
from paper.runs import Job, Outcome

Settings = dict[str, Any]
TOY_XD: Settings = {"n_components": 3, "n_init": 5, "tol": 1e-8}
#: Pretraining gives half the budget to each flow: a row costs the prior one evaluation, and the
#: posterior two, because the density of a given point takes one for each dimension.
PRIOR_SHARE, POSTERIOR_SHARE = 2, 4

#: Makes an XDGMM of a mixture that was fitted in another way.
KEPT = dict.fromkeys(("weights", "means", "covariances"), True)
#: The split whose training rows the grid search sees.
SEARCH_SEED = 0


def fitted(job: Job) -> Outcome:
    """Fit, from the start if what an earlier attempt left is of other settings or code."""
    torch.set_num_threads(1)
    try:
        return FITS[job.task.row.fit](job)
    except UnusableCheckpointError:
        job.clear()
        return FITS[job.task.row.fit](job)


def _train(
    objective: Objective,
    rows: RowData,
    n_held_out: int,
    training: Training,
    seed: int,
    checkpoint: Path,
) -> History:
    """Train on the rows that an estimator's fit with the same seed trains on, too."""
    with isolated_rng(seed):
        order = torch.randperm(len(rows), generator=own_generator())
        held_out, train = rows[order[:n_held_out]], rows[order[n_held_out:]]
        return fit(objective, train, held_out, training, checkpoint=checkpoint)


def default(job: Job) -> Outcome:
    """Fit our default, on the toy or on a wine."""
    is_toy = job.task.dataset == "toy"
    sample = job.toy() if is_toy else job.wine()
    rows = job.protocol.train_rows if is_toy else None
    model = Deconvolver(random_state=job.seed, n_jobs=1, checkpoint=job.checkpoint())
    model.fit(sample.train.w[:rows], noise=sample.noise)
    told = {"weights": model.weights_, "summary": model.summary()}
    return outcome(job, model, sample, {}, {**told, **recorded_flows(model)})


# The toy


def toy_xd(job: Job) -> Outcome:
    """Fit XD with three components to the training rows."""
    sample = job.toy()
    model = XDGMM(**TOY_XD, random_state=job.seed, n_jobs=1)
    model.fit(sample.train.w[: job.protocol.train_rows], noise=sample.noise)
    return outcome(job, model, sample, TOY_XD, {"iterations": int(model.n_iter_)})


def toy_flow(job: Job) -> Outcome:
    """Fit a flow, or a mixture, by one of the paper's bounds."""
    settings = toy_settings(job.protocol, **job.task.row.options)
    sample = job.toy()
    rows, start = Observations.from_arrays(sample.train.w, sample.noise), None
    if settings["flow"] == "gaussian_mixture":
        start = untrained(settings, rows, job.seed)
        _start_at_clusters(start, rows, job.seed)
    model = trained(settings, rows, job.seed, job.checkpoint(), start)
    return outcome(job, model, sample, settings, recorded_fit(model))


def toy_settings(protocol: Protocol, **options: Any) -> Settings:
    """Return the parameters of a fit: the paper's networks, the protocol's sizes."""
    is_mixture = options.get("flow") == "gaussian_mixture"
    is_exact = options.get("posterior_family") == "exact"
    flows = 1 if is_mixture else 2
    rows = protocol.train_rows + protocol.validation_rows
    draws = protocol.draws(options["objective"], options["n_draws"])
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
        "epochs": protocol.epochs_for(flows * draws, rows, exact_posterior=is_exact),
        **options,
        "n_draws": draws,
    }


def _start_at_clusters(model: PaperFlow, rows: Observations, seed: int) -> None:
    """Let a mixture start at the k-means clusters of the noisy rows, as XD does."""
    z = model.units.to_standard(rows.w)
    clusters = KMeans(model.settings["base_components"], n_init=1, random_state=seed)
    model.prior.load_state_dict(_mixture_of(z, clusters.fit_predict(z)).state_dict())


def _mixture_of(z: Array, cluster: NDArray[np.int32]) -> MixtureDensity:
    parts = [z[cluster == k] for k in np.unique(cluster)]
    weights = np.array([len(part) / len(z) for part in parts])
    means = np.array([part.mean(0) for part in parts])
    covariances = np.array([np.cov(part.T) for part in parts])
    return MixtureDensity(*map(torch.from_numpy, (weights, means, covariances)))


def pretrained(job: Job) -> Outcome:
    """Train the prior on clean rows and the posterior on pairs, each by itself."""
    sample = job.toy()
    model, histories = _pretrain(job, sample)
    networks = {"prior": model.prior, "posterior": model.recognition}
    parts = {part: recorded(histories[part], **{part: networks[part]}) for part in histories}
    seconds = round(sum(part["fit_seconds"] for part in parts.values()), 1)
    details = {**parts, "fit_seconds": seconds}
    return outcome(job, model, sample, pretrained_settings(job.protocol), details)


def after_pretraining(job: Job) -> Outcome:
    """Go on from the pretrained flows by the evidence lower bound."""
    sample = job.toy()
    settings = after_settings(job.protocol)
    rows = Observations.from_arrays(sample.train.w, sample.noise)
    start = _pretrained_model(job, sample)
    model = trained(settings, rows, job.seed, job.checkpoint(), start)
    return outcome(job, model, sample, settings, recorded_fit(model))


def _pretrained_model(job: Job, sample: Sample) -> PaperFlow:
    """Load the pretrained flows of this seed, or train them if there are none."""
    path = _pretrained_path(job)
    if not path.exists():
        return _pretrain(job, sample)[0]
    model = _untrained(job, sample)
    weights = torch.load(path, weights_only=True)
    model.prior.load_state_dict(weights["prior"])
    model.recognition.load_state_dict(weights["posterior"])
    return model


def _untrained(job: Job, sample: Sample) -> PaperFlow:
    rows = Observations.from_arrays(sample.train.w, sample.noise)
    return untrained(after_settings(job.protocol), rows, job.seed)


def _pretrained_path(job: Job) -> Path:
    """Return where pretrained flows are kept: another place for other settings or other code."""
    made_by = json.dumps([pretrained_settings(job.protocol), code_digest()])
    digest = hashlib.sha256(made_by.encode()).hexdigest()[:12]
    return job.records.work / f"pretrained.{job.seed}.{digest}.pt"


def _pretrain(job: Job, sample: Sample) -> tuple[PaperFlow, dict[str, History]]:
    """Train both flows, and keep them for the row that goes on from them."""
    model = _untrained(job, sample)
    units, prior = model.units, MaximumLikelihood(model.prior)
    posterior = DrawnPairs(model.recognition, MixtureExact(_true_density(units)))
    clean = units.observations(Observations.from_arrays(sample.train.v, 0.0))
    noisy = units.observations(Observations.from_arrays(sample.train.w, sample.noise))
    histories = {
        "prior": _train_part(job, "prior", prior, clean),
        "posterior": _train_part(job, "posterior", posterior, noisy),
    }
    path = _pretrained_path(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {"prior": model.prior.state_dict(), "posterior": model.recognition.state_dict()}
    with replacing(path) as part:
        torch.save(weights, part)
    return model, histories


class DrawnPairs(Objective):
    """The log density of draws from the exact posterior, anew for every batch."""

    def __init__(self, posterior: PosteriorModel, exact: MixtureExact) -> None:
        super().__init__()
        self.likelihood = PosteriorLikelihood(posterior)
        self._exact = (exact,)  # a tuple: not to be trained

    def forward(self, data: Observations) -> Tensor:
        """Return the log density of one draw per row."""
        return self.likelihood(self.drawn(data))

    @torch.no_grad()
    def drawn(self, data: Observations) -> Pairs:
        """Pair each row with a draw from its exact posterior."""
        return Pairs(data, self._exact[0].sample(data, 1)[0][0])


def _true_density(units: Standardiser) -> MixtureDensity:
    """Return the density of the toy in a model's units, in the networks' precision."""
    truth = units.mixture_to_standard(data.TRUTH)
    arrays = truth.weights, truth.means, truth.covariances
    return MixtureDensity(*(torch.from_numpy(array).float() for array in arrays))


def _train_part(job: Job, part: str, objective: Objective, rows: RowData) -> History:
    protocol = job.protocol
    training = Training(
        epochs=pretrained_settings(protocol)["epochs"][part],
        batch_size=protocol.batch_size,
        learning_rate=protocol.pretraining_learning_rate,
        plateau_factor=protocol.pretraining_factor,
        schedule=protocol.schedule,
        clip_norm=protocol.clip_norm,
    )
    checkpoint = job.checkpoint(part)
    return _train(objective, rows, protocol.validation_rows, training, job.seed, checkpoint)


def after_settings(protocol: Protocol) -> Settings:
    """Return the parameters of the fit that goes on from pretrained flows."""
    return toy_settings(protocol, objective="elbo", n_draws=50)


def pretrained_settings(protocol: Protocol) -> Settings:
    """Return the same, with the epochs of either flow's training by itself."""
    rows = protocol.train_rows + protocol.validation_rows
    shares = {"prior": PRIOR_SHARE, "posterior": POSTERIOR_SHARE}
    factor = {"plateau_factor": protocol.pretraining_factor}
    return {
        **after_settings(protocol),
        "epochs": {part: protocol.epochs_for(share, rows) for part, share in shares.items()},
        "learning_rate": protocol.pretraining_learning_rate,
        **(factor if protocol.schedule == "plateau" else {}),
    }


#: The parameters that a row's fit has by the protocol alone, by the name of the fit.
SETTINGS: dict[str, Callable[..., Settings]] = {
    "toy_flow": toy_settings,
    "pretrained": pretrained_settings,
    "after_pretraining": after_settings,
}


def fitted_as(row: Row, table: Table, protocol: Protocol) -> Row:
    """Return the first row of a table whose fit is the same by the protocol: it serves both."""
    if row.fit not in SETTINGS:
        return row
    settings = SETTINGS[row.fit]
    wanted = settings(protocol, **row.options)
    alike = (other for other in table.rows if other.fit == row.fit)
    return next(other for other in alike if settings(protocol, **other.options) == wanted)


# The wines


def wine_flow(job: Job) -> Outcome:
    """Fit a flow by importance weighting, with early stopping on a tenth of the rows."""
    sample = job.wine()
    model = _wine_flow(job, sample.train.w, sample.noise)
    return outcome(job, model, sample, model.settings, recorded_fit(model))


def _wine_flow(job: Job, w: Array, noise: Array) -> PaperFlow:
    K = job.task.row.options["n_draws"]
    settings = {
        "flow": "made",
        "objective": "iw",
        "n_draws": K,
        "anchored": False,
        "batch_size": job.protocol.wine_batch_size,
        "schedule": "constant",
        "clip_norm": job.protocol.clip_norm,
        "averaging": None,
        "validation_fraction": EARLY_STOPPING_SHARE,
        "patience": job.protocol.patience,
        "epochs": job.task.row.options.get("epochs") or job.protocol.wine_epochs(2 * K, len(w)),
        **job.settings,
    }
    rows = Observations.from_arrays(w, noise)
    return trained(settings, rows, job.seed, job.checkpoint())


def wine_plain(job: Job) -> Outcome:
    """Fit the same flow by maximum likelihood, to noisy or to clean rows as they are."""
    sample, column = job.wine(), job.task.row.options["fitted"]
    values = getattr(sample.train, column)
    training = Training(
        epochs=job.protocol.wine_epochs(1, len(values)),
        batch_size=job.protocol.wine_batch_size,
        learning_rate=job.settings["learning_rate"],
        schedule="constant",
        clip_norm=job.protocol.clip_norm,
        patience=job.protocol.patience,
    )
    exact = Observations.from_arrays(values, 0.0)
    model = untrained({"flow": "made", **job.settings}, exact, job.seed)
    rows = model.units.observations(exact)
    objective, n_held_out = MaximumLikelihood(model.prior), _tenth(rows)
    history = _train(objective, rows, n_held_out, training, job.seed, job.checkpoint())
    w = float(-model.density_.log_prob(sample.test.w).mean()) if column == "w" else None
    scores, details = wine_scores(model, w, sample), recorded(history, prior=objective.density)
    return Outcome(scores, {**job.settings, "epochs": training.epochs}, details)


def _tenth(rows: Any) -> int:
    return max(1, round(EARLY_STOPPING_SHARE * len(rows)))


def wine_xd(job: Job) -> Outcome:
    """Fit XD by minibatch gradients, with early stopping on a tenth of the rows."""
    sample = job.wine()
    model, epochs = _xd_by_gradients(job, sample.train.w, sample.noise)
    return outcome(job, model, sample, job.settings, {"epochs": epochs})


def _xd_by_gradients(job: Job, w: Array, noise: Array) -> tuple[XDGMM, int]:
    """Step until the held-out tenth has not improved for so long; return the best."""
    rng = np.random.default_rng(job.seed)
    w = w[rng.permutation(len(w))]
    held_out = lay_out(Observations.from_arrays(w[: _tenth(w)], noise))
    train = w[_tenth(w) :]
    count, rate = job.settings["n_components"], job.settings["learning_rate"]
    adam, best, best_score, best_epoch, epoch = None, None, -np.inf, 0, 0
    longest = job.protocol.wine_epochs(1, len(train))
    while epoch < longest and epoch - best_epoch < job.protocol.patience:
        rows = Observations.from_arrays(train[rng.permutation(len(train))], noise)
        if adam is None:
            adam = Adam.start(rows, FitSettings(count), np.random.RandomState(job.seed))
        try:
            for batch in rows.chunks(job.protocol.wine_batch_size):
                step_on_batch(adam, batch, rate, threads=1)
        except np.linalg.LinAlgError:  # a component has lost its covariance
            if best is None:
                raise
            break
        epoch, score = epoch + 1, log_p(adam.restored, held_out, threads=1).mean()
        if score > best_score:
            best, best_score, best_epoch = adam.restored, score, epoch
    assert best is not None
    model = XDGMM(count, init=best, fixed=KEPT, max_iter=1, tol=0.0, n_jobs=1)
    return model.fit(train, noise=noise), epoch


def grid_point(job: Job) -> Outcome:
    """Fit one point of the grid without one fold, and score the noisy rows of that fold.

    The seed of the task is the number of the fold; clean rows play no part.
    """
    sample = data.wine(job.task.dataset, SEARCH_SEED, job.data)
    w = sample.train.w[: job.protocol.wine_rows]
    folds = KFold(job.protocol.folds, shuffle=True, random_state=SEARCH_SEED)
    kept, left_out = list(folds.split(w))[job.seed]
    try:
        model, details = _grid_fit(job, w[kept], sample.noise)
    except (NonFiniteError, np.linalg.LinAlgError):
        return Outcome({W: math.inf}, job.settings, {"diverged": True})  # it loses
    score = noisy_score(model, w[left_out], sample.noise, job.protocol.scored_draws)
    return Outcome({W: score}, job.settings, details)


def _grid_fit(job: Job, w: Array, noise: Array) -> tuple[XDGMM | PaperFlow, Settings]:
    if job.task.row.options["kind"] == "xd":
        mixture, epochs = _xd_by_gradients(job, w, noise)
        return mixture, {"epochs": epochs}
    flow = _wine_flow(job, w, noise)
    return flow, recorded_fit(flow)


FITS: dict[str, Callable[[Job], Outcome]] = {
    f.__name__: f
    for f in (
        after_pretraining, default, grid_point, pretrained, toy_flow, toy_xd, wine_flow,
        wine_plain, wine_xd,
    )
}  # fmt: skip
