"""The whole way from standardised rows to a density: XD, flows, the choice, the certificate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deconflow.auto.parallel import train_all
from deconflow.auto.plan import FLOW_SHARE, Plan, share_out
from deconflow.auto.training import Job, Member
from deconflow.certificate import Certificate
from deconflow.densities import Architecture, Density, Ensemble, MixtureDensity
from deconflow.evaluation import HeldOut, certify, estimate_log_likelihood
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.posteriors import RowsWithProposals
from deconflow.randomness import own_generator
from deconflow.xd import (
    CLEARLY,
    AveragedFit,
    FitSettings,
    PreparedData,
    fit_averaged,
    paired,
    row_weights,
)


@dataclass(frozen=True)
class Comparison:
    """Flows against the mixtures, on rows that neither has seen.

    Attributes
    ----------
    rows : array
        Which rows.
    mixture, blend : array
        ``log p(w)`` of each, under the mixtures alone and with the flows' share.
    weights : array
        Weights of the rows.
    """

    rows: NDArray[np.int64]
    mixture: NDArray[np.float64]
    blend: NDArray[np.float64]
    weights: NDArray[np.float64]

    def flows_win(self) -> bool:
        """Whether the flows' gain is more than chance would make."""
        behind, error = paired(np.stack([self.mixture, self.blend]), self.weights)
        return bool(behind[0] > CLEARLY * error[0])


@dataclass(frozen=True)
class Fitted:
    """What a fit has learned, in standardised units.

    Attributes
    ----------
    mixtures : list of GaussianMixture
        XD fits that left out one fold each; they are averaged.
    proposing : GaussianMixture
        One XD fit of all rows: where draws come from.
    members : list of Member
        The flows; empty if XD was chosen.
    table : dict of arrays
        How XD's components and floor were chosen.
    certificate : Certificate
        How far to trust it.
    """

    mixtures: list[GaussianMixture]
    proposing: GaussianMixture
    members: list[Member]
    table: dict[str, NDArray[Any]]
    certificate: Certificate


@dataclass(frozen=True)
class Resources:
    """What a fit may use: processors, a folder for checkpoints, a progress bar."""

    n_jobs: int
    checkpoint: Path | None = None
    progress: bool = False

    def file(self, name: str) -> Path | None:
        """Name the checkpoint of a part of the fit."""
        return None if self.checkpoint is None else self.checkpoint / f"{name}.ckpt"


def fit_density(
    data: Observations, log_volume: Tensor, plan: Plan, resources: Resources, seed: int
) -> Fitted:
    """Fit XD and flows to standardised rows; let noisy held-out rows choose.

    ``log_volume``, one number or one per row, brings log densities back to the user's units.
    """
    rng = np.random.RandomState(seed)
    settings = FitSettings(1, stopping=plan.stopping).with_threads(resources.n_jobs)
    averaged = fit_averaged(
        data, settings, rng,
        folds=plan.folds, starts=plan.starts, progress=resources.progress,
    )  # fmt: skip
    proposing = PreparedData(data).fit(averaged.settings, rng).mixture
    jobs = _jobs_without_folds(data, averaged, plan, resources, seed)
    compared = train_all(
        jobs, resources.n_jobs, progress=resources.progress, what="flows to compare"
    )
    comparison = _compare(data, averaged, jobs, compared, plan)
    members: list[Member] = []
    if comparison.flows_win():
        members = _flows_on_all(data, proposing, plan, resources, seed) or compared[0]
    density = blend_of(averaged.mixtures, members, plan.size)
    held_out = _held_out(data, log_volume, averaged, comparison if members else None)
    certificate = _certify(density, proposing, data, held_out, members, plan)
    return Fitted(averaged.mixtures, proposing, members, averaged.table, certificate)


def blend_of(mixtures: list[GaussianMixture], members: list[Member], size: Architecture) -> Density:
    """Average flows and mixtures; in double precision where there are no flows."""
    mixture = mix(mixtures)
    tensors = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    base = MixtureDensity(*tensors)
    if not members:
        return base.requires_grad_(False)
    flows: list[Density] = [member.density(mixture.dim, size) for member in members]
    shares = torch.full((len(flows) + 1,), FLOW_SHARE / len(flows), dtype=torch.float32)
    shares[-1] = 1 - FLOW_SHARE
    return Ensemble([*flows, base.float()], shares).requires_grad_(False)


def _jobs_without_folds(
    data: Observations, averaged: AveragedFit, plan: Plan, resources: Resources, seed: int
) -> list[Job]:
    """Plan a stack without each of some folds, proposed by a mixture without it."""
    jobs = []
    for f, fold in enumerate(averaged.folds[: plan.compared_folds]):
        kept = data[torch.from_numpy(fold.kept)]
        rng = np.random.RandomState(seed + f)
        proposing = PreparedData(kept).fit(averaged.settings, rng).mixture
        file = resources.file(f"fold{f}")
        jobs.append(Job(kept, proposing, plan.compared_flows, plan.to_compare(), seed + f, file))
    return jobs


def _flows_on_all(
    data: Observations, proposing: GaussianMixture, plan: Plan, resources: Resources, seed: int
) -> list[Member]:
    jobs = [
        Job(data, proposing, count, plan, seed + 1000 + s, resources.file(f"stack{s}"))
        for s, count in enumerate(share_out(plan.members))
    ]
    stacks = train_all(
        jobs, resources.n_jobs, progress=resources.progress, what="flows on all rows"
    )
    return [member for stack in stacks for member in stack]


def _compare(
    data: Observations,
    averaged: AveragedFit,
    jobs: list[Job],
    flows: list[list[Member]],
    plan: Plan,
) -> Comparison:
    """Score the flows' and XD's answers on each fold they have not seen, or on some of its rows."""
    held, blended = [], []
    for fold, mixture, job, stack in zip(
        averaged.folds, averaged.mixtures, jobs, flows, strict=False
    ):
        seen = fold.held[: plan.compared_rows // len(jobs)]
        density = blend_of([mixture], stack, plan.size)
        rows = RowsWithProposals.of(data[torch.from_numpy(seen)], job.mixture, torch.float32)
        estimate = estimate_log_likelihood(density, rows, plan.checked_draws)
        held.append(seen)
        blended.append(estimate.log_p)
    rows_seen = np.concatenate(held)
    weights = row_weights(data)[rows_seen]
    return Comparison(rows_seen, averaged.held_out[rows_seen], np.concatenate(blended), weights)


def _held_out(
    data: Observations, log_volume: Tensor, averaged: AveragedFit, comparison: Comparison | None
) -> HeldOut:
    """Say how the chosen density did on rows it had not seen, in the user's units."""
    log_volume = log_volume.expand(len(data))
    if comparison is None:
        weights = torch.from_numpy(row_weights(data))
        return HeldOut(torch.from_numpy(averaged.held_out) - log_volume, weights)
    log_p = torch.from_numpy(comparison.blend) - log_volume[torch.from_numpy(comparison.rows)]
    gain = torch.from_numpy(comparison.blend - comparison.mixture)
    return HeldOut(log_p, torch.from_numpy(comparison.weights), gain)


def _certify(
    density: Density,
    proposing: GaussianMixture,
    data: Observations,
    held_out: HeldOut,
    members: list[Member],
    plan: Plan,
) -> Certificate:
    some = torch.randperm(len(data), generator=own_generator())[: plan.checked_rows]
    return certify(
        density,
        proposing,
        replace(data[some], weights=None),
        held_out,
        draws=plan.checked_draws,
        refresh_rate=members[0].refresh_rate if members else None,
    )
