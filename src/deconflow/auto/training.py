"""Flows of the ensemble: made, started at the mixture, trained by chains, in stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deconflow.auto.plan import Plan
from deconflow.auto.proposals import RefitProposals
from deconflow.densities import ARCHITECTURES, Architecture, Flow, Stack
from deconflow.fitting import Training, fit
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.objectives import Chains, Objective
from deconflow.observations import Observations
from deconflow.posteriors import propose
from deconflow.randomness import isolated_rng, own_generator

FLOW = "mixture"
ROWS_TO_START, EPOCHS_TO_START = 5_000, 3


@dataclass(frozen=True)
class Job:
    """All that a stack of flows needs, in standardised units, to be trained in any process.

    Attributes
    ----------
    data : Observations
        Training rows.
    mixture : GaussianMixture
        Where the flows start, and what proposes.
    flows : int
        How many to train side by side.
    plan : Plan
        Settings.
    seed : int
        Seed of weights, order and draws.
    checkpoint : Path or None
        Where to save after every epoch.
    device : str
        Where to compute.
    """

    data: Observations
    mixture: GaussianMixture
    flows: int
    plan: Plan
    seed: int
    checkpoint: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Member:
    """A trained flow.

    Attributes
    ----------
    state : dict of Tensor
        Weights, in main memory.
    history : dict
        What happened in training.
    refresh_rate : Tensor
        How often each row's chain moved.
    """

    state: dict[str, Tensor]
    history: dict[str, Any]
    refresh_rate: Tensor

    def density(self, dim: int, size: Architecture) -> Flow:
        """Make the flow."""
        with isolated_rng(0):  # weights drawn here are replaced
            flow = ARCHITECTURES[FLOW](dim, size)
        flow.load_state_dict(self.state)
        return flow.eval()


def train(job: Job, callbacks: Sequence[Callable[..., None]] = ()) -> list[Member]:
    """Train a stack of flows, in single precision."""
    plan = job.plan
    with isolated_rng(job.seed):
        dim = job.data.latent_dim
        stack = Stack([ARCHITECTURES[FLOW](dim, plan.size) for _ in range(job.flows)])
        stack.to(device=job.device)
        start_at(stack, job.mixture)
        chains = Chains(
            stack,
            job.data.to(dtype=torch.float32),
            job.mixture,
            propose(job.data, job.mixture, torch.float32),
            n_proposals=plan.n_proposals,
        )
        training = _clipped_each(plan.training, stack.members)
        refit = RefitProposals(chains, training.epochs)
        history = fit(
            chains, chains.rows, None, training,
            checkpoint=job.checkpoint, callbacks=[refit, *callbacks],
        )  # fmt: skip
    rate, stack = chains.refresh_rate().cpu(), stack.cpu()
    return [Member(flow.state_dict(), history.as_dict(), rate) for flow in stack.flows()]


class _OnDraws(Objective):
    """The likelihood of exact rows, the mean of a stack's members."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.draws = stack, stack.members

    def forward(self, data: Observations) -> Tensor:
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
