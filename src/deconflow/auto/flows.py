"""Flows as a candidate: some without each fold, in stacks, started at a mixture, trained by chains.

The first folds decide: flows that get no weight on them are given up.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from deconflow import ranks
from deconflow._limits import threads_at_most
from deconflow._types import Array
from deconflow.auto.candidates import (
    FLOW,
    Candidate,
    Member,
    Part,
    Resources,
    Task,
    ensemble_of,
    weigh,
)
from deconflow.auto.plan import CHECKED_DRAWS
from deconflow.auto.proposals import AT, refit
from deconflow.densities import ARCHITECTURES, Architecture, Stack, as_arrays
from deconflow.evaluation import estimate_log_likelihood
from deconflow.fitting import History, Training, fit
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.objectives import Chains, Objective
from deconflow.observations import Observations
from deconflow.posteriors import RowsWithProposals, propose
from deconflow.progress import SILENT, Progress
from deconflow.randomness import isolated_rng, own_generator
from deconflow.xd import row_weights

NAME, STAGE = "flows", "training flows"
SIZE = Architecture(layers=2, hidden=128, blocks=1)
ROWS_TO_START, EPOCHS_TO_START = 5_000, 3
#: Folds after which flows that get no weight are given up.
TRIED_FOLDS = 2
#: Rows that flows are scored on at most, over all folds.
SCORED_ROWS = 5_000

Job = Callable[[Progress], list[Member]]


def fit_flows(task: Task) -> Candidate:
    """Train flows without each fold, and score them on it.

    Flows whose weight beside the other candidates is nothing after some folds are left there:
    they are scored on these alone.
    """
    counts = [count for count in task.plan.flows if count > 0]
    mixtures = [task.single(fold) for fold in range(len(counts))]
    jobs = [_job(task, f, count, mixtures[f]) for f, count in enumerate(counts)]
    held_out, parts = task.unscored(), list[Part]()
    task.resources.progress.begin(STAGE, "epochs", len(jobs) * task.plan.training["epochs"])
    for some in (jobs[:TRIED_FOLDS], jobs[TRIED_FOLDS:]):
        for members in ranks.spread(partial(_train_here, resources=task.resources), some):
            score(task, len(parts), mixtures[len(parts)], members, held_out)
            parts.append(members)
        candidate = Candidate(NAME, held_out, parts)
        if not ranks.from_first(_wanted(task, candidate)):
            break
    return candidate


def _job(task: Task, fold: int, count: int, mixture: GaussianMixture) -> Job:
    """Plan a stack of flows without a fold, proposed by a mixture without it."""
    training, seed = Training(**task.plan.training), task.seed + 1000 + fold
    file, device = task.resources.file(f"flows{fold}"), task.resources.device
    return partial(train, task.without(fold), mixture, count, training, seed, file, device)


def _train_here(jobs: list[Job], resources: Resources) -> list[list[Member]]:
    """Train flows in this process and its children, as many jobs at a time as it may have."""
    n_jobs = resources.n_jobs if resources.device == "cpu" else 1  # a GPU serves one at a time
    if n_jobs == 1 or len(jobs) <= 1:
        return [job(resources.progress) for job in jobs]
    trained = []
    for members in Parallel(n_jobs, return_as="generator")(delayed(job)(SILENT) for job in jobs):
        resources.progress.advance(len(members[0].history["train"]))
        trained.append(members)
    return trained


def train(
    data: Observations,
    mixture: GaussianMixture,
    count: int,
    training: Training,
    seed: int,
    checkpoint: Path | None = None,
    device: str = "cpu",
    progress: Progress = SILENT,
) -> list[Member]:
    """Train ``count`` flows side by side, in single precision, from rows in standardised units.

    They start at ``mixture``, which also proposes. One thread: more gain nothing on a flow's small
    products.
    """
    at = {round(share * training.epochs) for share in AT}

    def refit_sometimes(epoch: int, history: History) -> None:
        if epoch in at:
            refit(chains)

    with threads_at_most(1), isolated_rng(seed):
        stack = Stack([ARCHITECTURES[FLOW](data.latent_dim, SIZE) for _ in range(count)])
        stack.to(device=device)
        start_at(stack, mixture)
        mixtures = propose(data, mixture, torch.float32)
        chains = Chains(stack, data.to(dtype=torch.float32), mixture, mixtures)
        history = fit(
            chains, chains.rows, None, _clipped_each(training, count),
            checkpoint=checkpoint, progress=progress, callbacks=[refit_sometimes],
        )  # fmt: skip
    rate, size = chains.refresh_rate().cpu().numpy(), asdict(SIZE)
    flows = stack.cpu().flows()
    return [Member(size, as_arrays(flow), history.as_dict(), rate) for flow in flows]


class _OnDraws(Objective):
    """The likelihood of exact rows, the mean of a stack's members."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.draws = stack, stack.members

    def forward(self, data: Observations) -> torch.Tensor:
        return self.stack.log_prob(data.w.expand(self.stack.members, *data.w.shape)).mean(0)


def start_at(stack: Stack, mixture: GaussianMixture) -> None:
    """Bring flows near a mixture, by a few epochs on its draws."""
    seed = int(torch.randint(2**31 - 1, (), generator=own_generator()))
    drawn = mixture.sample(ROWS_TO_START, seed)
    rows = Observations.from_arrays(drawn, gaussian(sd=np.zeros(mixture.dim)))
    training = Training(epochs=EPOCHS_TO_START, batch_size=256, learning_rate=3e-3)
    fit(_OnDraws(stack), rows, None, _clipped_each(training, stack.members))


def _clipped_each(training: Training, count: int) -> Training:
    """Clip the gradient of a mean of ``count`` flows as that of each alone would be."""
    assert training.clip_norm is not None
    return replace(training, clip_norm=training.clip_norm / count**0.5)


def score(
    task: Task, fold: int, mixture: GaussianMixture, members: list[Member], held_out: Array
) -> None:
    """Write the log-likelihoods of rows of a fold that these flows have not seen."""
    folds = task.averaged.folds
    by_chance = np.random.RandomState(task.seed + fold).permutation(folds[fold].held)
    seen = np.sort(by_chance[: -(-SCORED_ROWS // len(folds))])
    density = ensemble_of(members, task.data.latent_dim)
    rows = RowsWithProposals.of(task.data[seen], mixture, torch.float32)
    log_p = estimate_log_likelihood(density, rows, CHECKED_DRAWS).log_p
    held_out[seen] = np.where(np.isnan(log_p), -np.inf, log_p)


def _wanted(task: Task, candidate: Candidate) -> bool:
    """Whether flows get any weight beside the others."""
    candidates, rng = [*task.so_far, candidate], np.random.RandomState(task.seed)
    return bool(weigh(candidates, row_weights(task.data), task.data.latent_dim, rng)[-1] > 0)
