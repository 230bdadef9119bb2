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
from deconflow.auto.plan import FLOW_SHARE, Plan, share_out
from deconflow.auto.team import train_all
from deconflow.densities import Ensemble, MixtureDensity
from deconflow.densities.base import Density
from deconflow.evaluation import Certificate, HeldOut, certify, estimate_log_likelihood
from deconflow.observations import Observations
from deconflow.posteriors.defensive import PreparedRows
from deconflow.xd.fitting import Problem, Recipe
from deconflow.xd.ladder import CLEARLY, Ladder, climb
from deconflow.xd.mixture import Mixture
from deconflow.xd.selection import paired, row_weights


@dataclass(frozen=True)
class Comparison:
    """Flows against the mixture, on rows that neither has seen.

    Attributes
    ----------
    rows : array
        Which rows.
    mixture, blend : array
        ``log p(w)`` of each, under the mixture alone and with the flows' share.
    weights : array
        Weights of the rows.
    smoothing : float
        Of the flows.
    """

    rows: NDArray[np.int64]
    mixture: NDArray[np.float64]
    blend: NDArray[np.float64]
    weights: NDArray[np.float64]
    smoothing: float

    @property
    def held_out(self) -> float:
        """Mean log-likelihood with the flows."""
        return float(np.average(self.blend, weights=self.weights))

    def flows_win(self) -> bool:
        """Whether the flows' gain is more than chance would make."""
        behind, error = paired(np.stack([self.mixture, self.blend]), self.weights)
        return bool(behind[0] > CLEARLY * error[0])


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
    smoothing : float
        That of the flows' draws, as chosen.
    table : dict of arrays
        How XD's components and floor were chosen.
    certificate : Certificate
        How far to trust it.
    """

    mixture: Mixture
    proposing: Mixture
    members: list[Member]
    smoothing: float
    table: dict[str, NDArray[Any]]
    certificate: Certificate


@dataclass(frozen=True)
class Means:
    """What a fit may use: processes, a folder for checkpoints, a progress bar."""

    n_jobs: int
    checkpoint: Path | None = None
    progress: bool = False


def fit_density(
    data: Observations, log_volume: Tensor, plan: Plan, means: Means, seed: int
) -> Fitted:
    """Fit XD and flows to standardised rows; let noisy held-out rows choose.

    ``log_volume``, one number or one a row, brings log densities back to the user's units.
    """
    rng = np.random.RandomState(seed)
    recipe = Recipe(1, stopping=plan.stopping)
    ladder = climb(data, recipe, rng, folds=plan.folds, starts=plan.starts)
    proposing = Problem(data).fit(ladder.recipe, rng).mixture
    jobs = _jobs_without_folds(data, ladder, plan, means, seed)
    compared = train_all(jobs, means.n_jobs, progress=means.progress, what="flows to compare")
    smoothings = _smoothings(data, plan)
    comparisons = [_compare(data, ladder, jobs, compared, s, plan) for s in smoothings]
    comparison = max(comparisons, key=lambda c: c.held_out)
    members: list[Member] = []
    if comparison.flows_win():
        smoothing = comparison.smoothing
        members = _flows_on_all(data, proposing, smoothing, plan, means, seed) or compared[0]
    density = blend_of(ladder.mixture, members, plan)
    held_out = _held_out(data, log_volume, ladder, comparison if members else None)
    certificate = _certify(density, proposing, data, held_out, members, plan)
    smoothing = comparison.smoothing if members else 0.0
    return Fitted(ladder.mixture, proposing, members, smoothing, ladder.table, certificate)


def blend_of(mixture: Mixture, members: list[Member], plan: Plan) -> Density:
    """Average flows and mixture; in double precision where there are no flows."""
    tensors = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    base = MixtureDensity(*tensors)
    if not members:
        return base.requires_grad_(False)
    flows: list[Density] = [member.density(mixture.dim, plan.size) for member in members]
    shares = [FLOW_SHARE / len(flows)] * len(flows) + [1 - FLOW_SHARE]
    return Ensemble([*flows, base.float()], torch.tensor(shares)).requires_grad_(False)


def _jobs_without_folds(
    data: Observations, ladder: Ladder, plan: Plan, means: Means, seed: int
) -> list[Job]:
    """Plan a stack without each of some folds, proposed by a mixture without it."""
    jobs = []
    smoothings = tuple(s for s in _smoothings(data, plan) for _ in range(plan.compared_flows))
    for f, fold in enumerate(ladder.folds[: plan.compared_folds]):
        kept = data[torch.from_numpy(fold.kept)]
        proposing = Problem(kept).fit(ladder.recipe, np.random.RandomState(seed + f)).mixture
        file = _file(means, f"fold{f}")
        jobs.append(Job(kept, proposing, smoothings, plan.to_compare(), seed + f, file))
    return jobs


def _flows_on_all(
    data: Observations, proposing: Mixture, smoothing: float, plan: Plan, means: Means, seed: int
) -> list[Member]:
    jobs = [
        Job(data, proposing, (smoothing,) * count, plan, seed + 1000 + s, _file(means, f"stack{s}"))
        for s, count in enumerate(share_out(plan.members))
    ]
    stacks = train_all(jobs, means.n_jobs, progress=means.progress, what="flows on all rows")
    return [member for stack in stacks for member in stack]


def _smoothings(data: Observations, plan: Plan) -> tuple[float, ...]:
    """Return what to choose from: rows that measure every value once have a noise to blur by."""
    whole = data.observed is None and data.projection is None
    return plan.smoothings if whole else (0.0,)


def _of_smoothing(smoothing: float, job: Job, stack: list[Member]) -> list[Member]:
    """Return the flows of a job that were trained with this smoothing."""
    return [m for m, own in zip(stack, job.smoothings, strict=True) if own == smoothing]


def _compare(
    data: Observations,
    ladder: Ladder,
    jobs: list[Job],
    flows: list[list[Member]],
    smoothing: float,
    plan: Plan,
) -> Comparison:
    """Score the flows' and XD's answers on each fold they have not seen, or on some of its rows."""
    held, blended = [], []
    for fold, mixture, job, stack in zip(ladder.folds, ladder.without, jobs, flows, strict=False):
        seen = fold.held[: plan.compared_rows // len(jobs)]
        density = blend_of(mixture, _of_smoothing(smoothing, job, stack), plan)
        rows = PreparedRows.of(data[torch.from_numpy(seen)], job.mixture, torch.float32)
        estimate = estimate_log_likelihood(density, rows, plan.checked_draws)
        held.append(seen)
        blended.append(estimate.log_p.numpy())
    rows_seen = np.concatenate(held)
    weights = row_weights(data)[rows_seen]
    mixtures = ladder.held_out[rows_seen]
    return Comparison(rows_seen, mixtures, np.concatenate(blended), weights, smoothing)


def _held_out(
    data: Observations, log_volume: Tensor, ladder: Ladder, comparison: Comparison | None
) -> HeldOut:
    """Say how the chosen density did on rows it had not seen, in the user's units."""
    log_volume = log_volume.expand(len(data))
    if comparison is None:
        weights = torch.from_numpy(row_weights(data))
        return HeldOut(torch.from_numpy(ladder.held_out) - log_volume, weights)
    log_p = torch.from_numpy(comparison.blend) - log_volume[torch.from_numpy(comparison.rows)]
    gain = torch.from_numpy(comparison.blend - comparison.mixture)
    return HeldOut(log_p, torch.from_numpy(comparison.weights), gain)


def _certify(
    density: Density,
    proposing: Mixture,
    data: Observations,
    held_out: HeldOut,
    members: list[Member],
    plan: Plan,
) -> Certificate:
    some = torch.randperm(len(data))[: plan.checked_rows]
    return certify(
        density,
        proposing,
        replace(data[some], weights=None),
        held_out,
        draws=plan.checked_draws,
        refresh_rate=members[0].refresh_rate if members else None,
    )


def _file(means: Means, name: str) -> Path | None:
    return None if means.checkpoint is None else means.checkpoint / f"{name}.ckpt"
