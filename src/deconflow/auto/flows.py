"""Flows as a candidate: some without each fold, in stacks, started at a mixture, trained by chains.

The first folds decide: flows that get no weight on them are given up.
"""

import math
from collections.abc import Callable
from dataclasses import asdict
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
    Plan,
    Task,
    ensemble_of,
    weigh,
)
from deconflow.densities import ARCHITECTURES, Architecture, Density, Stack, as_arrays, simulate
from deconflow.evaluation import estimate_log_likelihood
from deconflow.fitting import History, Training, fit
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.objectives import Chains, Objective, PosteriorLikelihood, proposing_network
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import MixtureNetwork, RowsWithProposals, propose
from deconflow.progress import SILENT, Progress
from deconflow.randomness import isolated_rng, own_generator
from deconflow.xd import fit_exact, row_weights

SIZE = Architecture(layers=2, hidden=128, blocks=1)
#: Flows in all, over the folds; more where there are few rows, and each is quick.
FLOWS, FLOWS_OF_FEW, FEW_ROWS = 5, 10, 3000
#: Length of a flow's training: epochs, within bounds on the number of steps.
EPOCHS, SHORTEST, LONGEST = 40, 900, 1600
#: Rows per step: so many batches per epoch, within bounds.
SMALLEST_BATCH, LARGEST_BATCH, BATCHES = 100, 256, 40
#: Largest norm of the gradient of each flow.
CLIP_NORM = 5.0
ROWS_TO_START, EPOCHS_TO_START = 5_000, 3
#: Folds after which flows that get no weight are given up.
TRIED_FOLDS = 2
#: Rows that flows are scored on at most, over all folds, and draws for each.
SCORED_ROWS, SCORED_DRAWS = 5_000, 128

#: When other proposals are tried, as shares of the training.
AT = (0.25, 0.5)
#: A mean effective sample size, as a share of the draws, below which a network is trained.
POOR = 0.1
DRAWN, ROWS, DRAWS = 5_000, 300, 32
NETWORK_ROWS, NETWORK_EPOCHS = 10_000, 5

Job = Callable[[Progress], list[Member]]


def fit_flows(task: Task) -> Candidate:
    """Train flows without each fold, and score them on it.

    Flows whose weight beside the other candidates is nothing after some folds are left there:
    they are scored on these alone.
    """
    plan, n_folds = task.plan, task.plan.folds
    count = plan.n_flows or (FLOWS_OF_FEW if len(task.data) < FEW_ROWS else FLOWS)
    mixtures = [task.single(fold) for fold in range(min(count, n_folds))]
    jobs = [
        _job(task, fold, len(range(fold, count, n_folds)), mixture)
        for fold, mixture in enumerate(mixtures)
    ]
    held_out, parts = np.full(len(task.data), np.nan), list[Part]()
    plan.progress.begin("training flows", "epochs", len(jobs) * training_of(len(task.data)).epochs)
    for some in (jobs[:TRIED_FOLDS], jobs[TRIED_FOLDS:]):
        for members in ranks.spread(partial(_train_here, plan=plan), some):
            score(task, len(parts), mixtures[len(parts)], members, held_out)
            parts.append(members)
        candidate = Candidate("flows", held_out, parts)
        candidates, rng = [*task.so_far, candidate], np.random.RandomState(task.seed)
        shares = weigh(candidates, row_weights(task.data), task.data.latent_dim, rng)
        if not ranks.from_first(bool(shares[-1] > 0)):
            break
    return candidate


def training_of(n_rows: int, count: int = 1) -> Training:
    """Plan the training of ``count`` flows side by side, from the number of all rows.

    The gradient of their mean is clipped as that of each alone would be.
    """
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, round(n_rows / BATCHES)))
    steps_an_epoch = math.ceil(n_rows / batch)
    steps = min(LONGEST, max(SHORTEST, EPOCHS * steps_an_epoch))
    return Training(
        epochs=math.ceil(steps / steps_an_epoch), batch_size=batch, learning_rate=3e-3,
        learning_rate_end=0.25, weight_decay=0.1, averaging=0.995,
        clip_norm=CLIP_NORM / count**0.5,
    )  # fmt: skip


def _job(task: Task, fold: int, count: int, mixture: GaussianMixture) -> Job:
    """Plan a stack of flows without a fold, proposed by a mixture without it."""
    training, folder = training_of(len(task.data), count), task.plan.checkpoint
    return partial(
        train, task.without(fold), mixture, count, training, task.seed + 1000 + fold,
        folder and folder / f"flows{fold}.ckpt", task.plan.device,
    )  # fmt: skip


def _train_here(jobs: list[Job], plan: Plan) -> list[list[Member]]:
    """Train flows in this process and its children, as many jobs at a time as it may have."""
    n_jobs = plan.n_jobs if plan.device == "cpu" else 1  # a GPU serves one at a time
    if n_jobs == 1 or len(jobs) <= 1:
        return [job(plan.progress) for job in jobs]
    trained = []
    for members in Parallel(n_jobs, return_as="generator")(delayed(job)() for job in jobs):
        plan.progress.advance(len(members[0].history["train"]))
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
            chains, chains.rows, None, training,
            checkpoint=checkpoint, progress=progress, callbacks=[refit_sometimes],
        )  # fmt: skip
    rate, size = chains.refresh_rate().cpu().numpy(), asdict(SIZE)
    return [Member(size, as_arrays(flow), history.as_dict(), rate) for flow in stack.cpu().flows()]


class _OnDraws(Objective):
    """The likelihood of exact rows, the mean of a stack's members."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.draws = stack, stack.members

    def forward(self, data: Observations) -> torch.Tensor:
        return self.stack.log_prob(data.w.expand(self.stack.members, *data.w.shape)).mean(0)


def start_at(stack: Stack, mixture: GaussianMixture) -> None:
    """Bring flows near a mixture, by a few epochs on its draws."""
    drawn = mixture.sample(
        ROWS_TO_START, int(torch.randint(2**31 - 1, (), generator=own_generator()))
    )
    rows = Observations.from_arrays(drawn, gaussian(sd=np.zeros(mixture.dim)))
    clip_norm = CLIP_NORM / stack.members**0.5
    training = Training(epochs=EPOCHS_TO_START, learning_rate=3e-3, clip_norm=clip_norm)
    fit(_OnDraws(stack), rows, None, training)


def score(
    task: Task, fold: int, mixture: GaussianMixture, members: list[Member], held_out: Array
) -> None:
    """Write the log-likelihoods of rows of a fold that these flows have not seen."""
    folds = task.averaged.folds
    by_chance = np.random.RandomState(task.seed + fold).permutation(folds[fold].held)
    seen = np.sort(by_chance[: -(-SCORED_ROWS // len(folds))])
    density = ensemble_of(members, task.data.latent_dim)
    rows = RowsWithProposals.of(task.data[seen], mixture, torch.float32)
    log_p = estimate_log_likelihood(density, rows, SCORED_DRAWS).log_p
    held_out[seen] = np.where(np.isnan(log_p), -np.inf, log_p)


def refit(chains: Chains) -> None:
    """Try other proposals, and keep them if they raise the effective sample size."""
    mixture = mixture_of(chains.density, chains.proposing.n_components)
    efficiency = _keep_if_better(chains, mixture, chains.network)
    if efficiency < POOR and chains.rows.observations.noise.support_map() is None:
        _keep_if_better(chains, chains.proposing, network_of(chains))


def _keep_if_better(
    chains: Chains, mixture: GaussianMixture, network: MixtureNetwork | None
) -> float:
    """Return the efficiency of what proposes afterwards."""
    some = chains.rows[:: max(1, len(chains.rows) // ROWS)]
    dtype, device = chains.latents.dtype, chains.latents.device
    now = chains.with_proposals(some)
    other = RowsWithProposals.of(some.observations, mixture, dtype, network)
    after, before = (
        chains.efficiency(rows.to(dtype=dtype, device=device), DRAWS) for rows in (other, now)
    )
    if after > before:
        chains.set_proposal(mixture, network)
    return max(before, after)


@torch.no_grad()
def mixture_of(density: Density, n_components: int) -> GaussianMixture:
    """Fit a mixture to draws from a density."""
    drawn = density.sample(DRAWN).double().cpu()
    drawn = drawn[drawn.isfinite().all(1)]
    seed = int(torch.randint(2**31 - 1, (), generator=own_generator()))
    return fit_exact(drawn.numpy(), n_components, seed=seed)


def network_of(chains: Chains) -> MixtureNetwork:
    """Train a network by forward KL, on simulated pairs and then on the chains' own draws."""
    rows = chains.rows[torch.randperm(len(chains.rows), generator=own_generator())[:NETWORK_ROWS]]
    data = rows.observations.to(dtype=chains.latents.dtype, device=chains.latents.device)
    network = proposing_network(rows.observations).to(chains.latents)
    training = Training(epochs=NETWORK_EPOCHS, batch_size=128, learning_rate=2e-3)
    member = int(torch.randint(chains.members, (), generator=own_generator()))
    for pairs in (simulate(chains.density, data), Pairs(data, chains.latents[member, rows.row])):
        fit(PosteriorLikelihood(network), pairs, None, training)
    return network.requires_grad_(False)
