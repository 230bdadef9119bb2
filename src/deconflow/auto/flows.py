"""Flows as a candidate: some without each fold, and no more where the first get no weight."""

from __future__ import annotations

import numpy as np
import torch

from deconflow import ranks
from deconflow._types import Array
from deconflow.auto.candidates import FEWEST_COLUMNS, Candidate, Part, Task, weigh
from deconflow.auto.parallel import train_all
from deconflow.auto.training import Job, Member
from deconflow.densities import Architecture, Density, Ensemble
from deconflow.evaluation import estimate_log_likelihood
from deconflow.posteriors import RowsWithProposals
from deconflow.xd import row_weights

NAME, STAGE = "flows", "training flows"
TRIED_FOLDS = 2
"""Folds after which flows that get no weight are given up."""


def fit_flows(task: Task) -> Candidate | None:
    """Train flows without each fold, and score them on it.

    Flows whose weight beside the other candidates is nothing after some folds are left there:
    they are scored on these alone.
    """
    if sum(task.plan.flows) == 0:
        return None
    if task.data.latent_dim < FEWEST_COLUMNS:
        if task.plan.flows_asked_for:
            task.notes.append(
                f"There are no flows: in fewer than {FEWEST_COLUMNS} columns they add next to "
                "nothing. Use FlowDeconvolver for one of them."
            )
        return None
    jobs = _jobs(task)
    first, rest = jobs[:TRIED_FOLDS], jobs[TRIED_FOLDS:]
    held_out, parts = task.unscored(), list[Part]()
    task.resources.progress.begin(STAGE, "epochs", len(jobs) * task.plan.training.epochs)
    for some in (first, rest):
        trained = train_all(some, task.resources)
        for job, members in zip(some, trained, strict=True):
            _score(task, len(parts), job, members, held_out)
            parts.append(members)
        candidate = Candidate(NAME, held_out, parts)
        if not ranks.from_first(_wanted(task, candidate)):
            return candidate
    return candidate


def ensemble_of(members: list[Member], dim: int, size: Architecture) -> Density:
    """Average flows."""
    return Ensemble([member.density(dim, size) for member in members])


def _jobs(task: Task) -> list[Job]:
    """Plan a stack of flows without each fold, proposed by a mixture without it."""
    jobs, averaged, device = [], task.averaged, task.resources.device
    for f, (fold, count) in enumerate(zip(averaged.folds, task.plan.flows, strict=False)):
        if count == 0:
            continue
        kept, seed = task.data[torch.from_numpy(fold.kept)], task.seed + 1000 + f
        file = task.resources.file(f"flows{f}")
        jobs.append(Job(kept, task.single(f), count, task.plan, seed, file, device))
    return jobs


def _score(task: Task, f: int, job: Job, members: list[Member], held_out: Array) -> None:
    """Write the log-likelihoods of rows of a fold that these flows have not seen."""
    plan, folds = task.plan, task.averaged.folds
    by_chance = np.random.RandomState(task.seed + f).permutation(folds[f].held)
    seen = np.sort(by_chance[: -(-plan.scored_rows // len(folds))])
    density = ensemble_of(members, task.data.latent_dim, plan.size)
    rows = RowsWithProposals.of(task.data[torch.from_numpy(seen)], job.mixture, torch.float32)
    log_p = estimate_log_likelihood(density, rows, plan.checked_draws).log_p
    held_out[seen] = np.where(np.isnan(log_p), -np.inf, log_p)


def _wanted(task: Task, candidate: Candidate) -> bool:
    """Whether flows get any weight beside the others."""
    candidates, rng = [*task.so_far, candidate], np.random.RandomState(task.seed)
    return bool(weigh(candidates, row_weights(task.data), task.data.latent_dim, rng)[-1] > 0)
