"""One flow of the ensemble: made, started at the mixture, trained by chains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deconflow.auto.plan import Plan
from deconflow.auto.refit import Refit
from deconflow.densities import ARCHITECTURES, Architecture
from deconflow.densities.flow import Flow
from deconflow.fitting import Training, fit
from deconflow.noise import gaussian
from deconflow.objectives import MaximumLikelihood
from deconflow.objectives.chains import Chains
from deconflow.observations import Observations
from deconflow.posteriors.defensive import Defensive, PreparedRows
from deconflow.randomness import isolated_rng
from deconflow.xd.mixture import Mixture

FLOW = "mixture"
ROWS_TO_START, EPOCHS_TO_START = 10_000, 4


@dataclass(frozen=True)
class Job:
    """All that a flow needs, in standardised units, to be trained in any process.

    Attributes
    ----------
    data : Observations
        Training rows.
    mixture : Mixture
        Where the flow starts, and what proposes.
    plan : Plan
        Settings.
    seed : int
        Seed of weights, order and draws.
    checkpoint : Path or None
        Where to save after every epoch.
    """

    data: Observations
    mixture: Mixture
    plan: Plan
    seed: int
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Member:
    """A trained flow.

    Attributes
    ----------
    state : dict of Tensor
        Weights.
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


def train(job: Job) -> Member:
    """Train one flow, in single precision."""
    plan = job.plan
    with isolated_rng(job.seed):
        density = ARCHITECTURES[FLOW](job.data.latent_dim, plan.size)
        start_at(density, job.mixture)
        rows = PreparedRows.of(job.data, job.mixture, torch.float32)
        chains = Chains(
            density, Defensive(), rows, job.mixture, fresh=plan.fresh, steps_on=plan.steps_on
        )
        refit = Refit(chains, plan.training.epochs)
        history = fit(
            chains, rows, None, plan.training, checkpoint=job.checkpoint, callbacks=[refit]
        )
    return Member(density.state_dict(), history.as_dict(), chains.refresh_rate())


def start_at(density: Flow, mixture: Mixture) -> None:
    """Bring a flow near a mixture, by a few epochs on its draws."""
    seed = int(torch.randint(2**31 - 1, ()))
    drawn, _ = mixture.sample(ROWS_TO_START, seed)
    exact = gaussian(sd=np.zeros(mixture.dim))
    rows = Observations.from_arrays(drawn, exact)
    training = Training(epochs=EPOCHS_TO_START, batch_size=256, learning_rate=3e-3)
    fit(MaximumLikelihood(density), rows, None, training)
