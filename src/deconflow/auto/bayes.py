"""Bayesian mixtures as a candidate: two chains without each fold."""

import numpy as np

from deconflow import ranks
from deconflow.auto.candidates import FEWEST_COLUMNS, Candidate, Task, score_folds
from deconflow.mixtures import GaussianMixture, mix
from deconflow.xd import (
    FLOORS,
    ChainSettings,
    PreparedData,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)

NAME, STAGE = "bayes", "sampling Bayesian mixtures"
#: Chains without each fold: one alone does not find its way about.
CHAINS = 2
#: Densities that all chains may compute; where that is too few for a chain, there are none.
MOST_WORK, MOST_WORK_IF_QUICK = 4e9, 1e9


def fit_chains(task: Task) -> Candidate | None:
    """Sample chains without each fold; of a group of processes each samples some."""
    if task.data.latent_dim < FEWEST_COLUMNS:
        return None
    folds, rows = len(task.averaged.folds), _telling(task, 0).rows
    settings = ChainSettings.plan(rows, quick=task.plan.quick)
    work = settings.pairs(rows) * settings.sweeps * CHAINS * folds
    if work > (MOST_WORK_IF_QUICK if task.plan.quick else MOST_WORK):
        task.notes.append(
            "There are no Bayesian mixtures: so many rows would take them too long, and say "
            "enough without them. Use BayesianXDGMM for these."
        )
        return None
    try:
        task.resources.progress.begin(STAGE, "sweeps", settings.sweeps * CHAINS * folds)
        mixtures = ranks.spread(
            lambda mine: [_sampled(task, f, settings) for f in mine], list(range(folds))
        )
    except np.linalg.LinAlgError:
        task.notes.append(
            "There are no Bayesian mixtures: some rows lie too far from all others for them. "
            "Look for codes of missing values, as -999."
        )
        return None
    return Candidate(NAME, score_folds(task, mixtures), list(mixtures))


def _telling(task: Task, fold: int) -> PreparedData:
    """Return the rows without a fold that say something of the truth."""
    kept = task.without(fold)
    telling = telling_rows(kept)
    if not telling.all() or kept.weights is not None:
        kept = single_rows(kept[np.flatnonzero(telling)].with_weight())
    return PreparedData(kept)


def _sampled(task: Task, fold: int, settings: ChainSettings) -> GaussianMixture:
    """Average the snapshots of the chains without a fold."""
    seeds = [task.seed + 2000 + CHAINS * fold + c for c in range(CHAINS)]
    floor, prepared = FLOORS[fold % len(FLOORS)], _telling(task, fold)
    starts = starts_of_chains(prepared, floor, settings, seeds)
    chains = sample_chains(
        prepared, starts, [floor] * CHAINS, settings, seeds,
        threads=task.resources.n_jobs, progress=task.resources.progress.advance,
    )  # fmt: skip
    return mix([snapshot for chain in chains for snapshot in chain.snapshots])
