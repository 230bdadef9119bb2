"""The whole way from standardised rows to a density: XD, flows, the choice, the certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deconflow.auto.member import Job, Member
from deconflow.auto.plan import FLOW_SHARE, Plan
from deconflow.auto.team import train_all
from deconflow.densities import Ensemble, GaussianMixture
from deconflow.densities.base import Density
from deconflow.evaluation import Certificate, certify, estimate_log_likelihood
from deconflow.observations import Observations
from deconflow.posteriors.defensive import PreparedRows
from deconflow.xd.em import Stopping
from deconflow.xd.fitting import Problem, Recipe
from deconflow.xd.ladder import CLEARLY, Ladder, climb
from deconflow.xd.mixture import Mixture

STOPPING = Stopping(tol=1e-6, max_iter=300, accelerate=True)


@dataclass(frozen=True)
class Comparison:
    """Flows against the mixture, on rows that neither has seen.

    Attributes
    ----------
    rows : array
        Which rows.
    mixture, blend : array
        ``log p(w)`` of each, under the mixture alone and with the flows' share.
    """

    rows: NDArray[np.int64]
    mixture: NDArray[np.float64]
    blend: NDArray[np.float64]

    def flows_win(self, weights: NDArray[np.float64]) -> bool:
        """Whether the flows' gain is more than chance would make."""
        gain, weights = self.blend - self.mixture, weights[self.rows]
        mean = weights @ gain / weights.sum()
        error = np.sqrt(np.square(weights * (gain - mean)).sum()) / weights.sum()
        return bool(mean > CLEARLY * error)


@dataclass(frozen=True)
class Fitted:
    """What a fit has learned, in standardised units.

    Attributes
    ----------
    mixture : Mixture
        The average of XD fits.
    proposing : Mixture
        One XD fit of all rows: where draws come from.
    members : list of Member
        The flows; empty if XD was chosen.
    table : dict of arrays
        How XD's components and floor were chosen.
    comparison : Comparison or None
        What the choice between flows and XD was based on.
    certificate : Certificate
        How far to trust it.
    """

    mixture: Mixture
    proposing: Mixture
    members: list[Member]
    table: dict[str, NDArray[Any]]
    comparison: Comparison | None
    certificate: Certificate


@dataclass(frozen=True)
class Means:
    """What a fit may use: processes, a folder for checkpoints, a progress bar."""

    n_jobs: int
    checkpoint: Path | None = None
    progress: bool = False


def fit_density(data: Observations, plan: Plan, means: Means, seed: int) -> Fitted:
    """Fit XD and flows to standardised rows; let noisy held-out rows choose."""
    rng = np.random.RandomState(seed)
    recipe = Recipe(1, stopping=STOPPING)
    ladder = climb(data, recipe, rng, folds=plan.folds, starts=plan.starts)
    proposing = Problem(data).fit(ladder.recipe, rng).mixture
    compared = _flows_without_folds(data, ladder, plan, means, seed)
    comparison = _compare(data, ladder, compared, plan)
    members: list[Member] = []
    weights = np.ones(len(data)) if data.weights is None else data.weights.numpy()
    if comparison.flows_win(weights):
        members = compared + _flows_on_all(data, proposing, plan, means, seed)
    density = blend_of(ladder.mixture, members, plan)
    certificate = _certify(density, proposing, data, ladder, comparison, members, plan)
    return Fitted(ladder.mixture, proposing, members, ladder.table, comparison, certificate)


def blend_of(mixture: Mixture, members: list[Member], plan: Plan) -> Density:
    """Average flows and mixture; in double precision where there are no flows."""
    tensors = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    base = GaussianMixture(*tensors)
    if not members:
        return base.requires_grad_(False)
    flows: list[Density] = [member.density(mixture.dim, plan.size) for member in members]
    shares = [FLOW_SHARE / len(flows)] * len(flows) + [1 - FLOW_SHARE]
    return Ensemble([*flows, base.float()], torch.tensor(shares)).requires_grad_(False)


def _flows_without_folds(
    data: Observations, ladder: Ladder, plan: Plan, means: Means, seed: int
) -> list[Member]:
    """Train one flow without each of the first folds, proposed by a mixture without it."""
    jobs = []
    for f, fold in enumerate(ladder.folds[: plan.compared]):
        kept = data[torch.from_numpy(fold.kept)]
        rng = np.random.RandomState(seed + f)
        proposing = Problem(kept).fit(ladder.recipe, rng).mixture
        jobs.append(Job(kept, proposing, plan, seed + f, _file(means, f"fold{f}")))
    return train_all(jobs, means.n_jobs, progress=means.progress, what="flows without a fold")


def _flows_on_all(
    data: Observations, proposing: Mixture, plan: Plan, means: Means, seed: int
) -> list[Member]:
    jobs = [
        Job(data, proposing, plan, seed + 1000 + m, _file(means, f"member{m}"))
        for m in range(plan.members)
    ]
    return train_all(jobs, means.n_jobs, progress=means.progress, what="flows on all rows")


def _compare(data: Observations, ladder: Ladder, flows: list[Member], plan: Plan) -> Comparison:
    """Score the flows' and XD's answers on each fold they have not seen."""
    held, blended = [], []
    for fold, mixture, flow in zip(ladder.folds, ladder.without, flows, strict=False):
        density = blend_of(mixture, [flow], plan)
        rows = PreparedRows.of(data[torch.from_numpy(fold.held)], mixture, torch.float32)
        estimate = estimate_log_likelihood(density, rows, plan.checked_draws)
        held.append(fold.held)
        blended.append(estimate.log_p.numpy())
    seen = np.concatenate(held)
    return Comparison(seen, ladder.held_out[seen], np.concatenate(blended))


def _certify(
    density: Density,
    proposing: Mixture,
    data: Observations,
    ladder: Ladder,
    comparison: Comparison,
    members: list[Member],
    plan: Plan,
) -> Certificate:
    some = torch.randperm(len(data))[: plan.checked_rows]
    held_out: Tensor = torch.from_numpy(comparison.blend if members else ladder.held_out)
    return certify(
        density,
        proposing,
        replace(data[some], weights=None),
        draws=plan.checked_draws,
        held_out=held_out,
        gain=torch.from_numpy(comparison.blend - comparison.mixture) if members else None,
        refresh_rate=torch.cat([m.refresh_rate for m in members]) if members else None,
    )


def _file(means: Means, name: str) -> Path | None:
    return None if means.checkpoint is None else means.checkpoint / f"{name}.ckpt"
