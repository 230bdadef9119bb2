"""Candidates that are mixtures: log-splines in one and two columns, Bayesian mixtures in more."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from deconflow import ranks
from deconflow.auto.candidates import FEWEST_COLUMNS, Candidate, Task
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.splines import MOST_COLUMNS, fit_log_spline, work_of_fit
from deconflow.xd import (
    FLOORS,
    ChainSettings,
    Fold,
    PreparedData,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)

#: Rows or bins, in two columns times the Gaussians of their noise, that a spline may sum over.
MOST_WORK, MOST_WORK_IF_QUICK = 40_000, 10_000
#: Rows that splines are fitted to and scored on: more hardly change so smooth an answer.
MOST_ROWS = 200_000
#: Gaussians of all rows that are worth writing out to see how many bins there would be.
MOST_WRITTEN = 400_000
#: Chains without each fold: one alone does not find its way about.
CHAINS = 2
#: Densities that all chains may compute; where that is too few for a chain, there are none.
MOST_DENSITIES, MOST_DENSITIES_IF_QUICK = 4e9, 1e9


def fit_splines(task: Task) -> Candidate | None:
    """Fit a log-spline without each fold, as a mixture of Gaussians."""
    if task.data.latent_dim > MOST_COLUMNS or task.data.projection is not None:
        return None
    try:
        folds = thinned(task.averaged.folds, MOST_ROWS)
        mixtures = _without_each_fold(task, folds)
    except ValueError as reason:
        task.notes.append(f"There is no log-spline. {reason}")
        return None
    return task.scored("spline", mixtures, folds)


def _without_each_fold(task: Task, folds: list[Fold]) -> list[GaussianMixture]:
    """Fit without each fold, from one fit to all rows; raise ValueError where none can be had.

    Of a group of processes each fits some.
    """
    rows = np.sort(np.concatenate([fold.held for fold in folds]))
    data, progress = task.data, task.plan.progress
    some = data if len(rows) == len(data) else data[rows]
    _check_work(some, MOST_WORK_IF_QUICK if task.plan.quick else MOST_WORK)
    progress.begin("fitting log-splines", steps=1 + len(folds))
    # One thread per fit: those of numpy's products would stand in the way of the folds'.
    with threadpool_limits(limits=1, user_api="blas"):
        whole = fit_log_spline(some)
        progress.advance()
        if not whole.converged:
            raise ValueError("Its fit did not converge: some rows may be too far from others.")

        def without(fold: Fold) -> GaussianMixture:
            found = fit_log_spline(data[fold.kept], start=whole).mixture
            progress.advance()
            return found

        with ThreadPoolExecutor(task.plan.n_jobs) as pool:
            return ranks.spread(lambda mine: list(pool.map(without, mine)), folds)


def _check_work(data: Observations, most: int) -> None:
    """Raise ValueError where no fit can be had."""
    if data.observed is not None:  # tried on rings and on the toy: nothing gained, .003 nat lost
        raise ValueError("Where values are missing it adds nothing to mixtures.")
    if data.noise.flags is not None:
        raise ValueError("Where values are limits, only mixtures and flows take these.")
    gaussians = len(data) * data.noise.as_mixture().n_parts
    not_gaussian = data.dim > 1 and not isinstance(data.noise, GaussianNoise)
    work = math.inf if not_gaussian and gaussians > MOST_WRITTEN else work_of_fit(data)
    if work > most:
        raise ValueError(
            "So many rows with noise that differs by row, or is not Gaussian, would take it too "
            "long. Use LogSplineDeconvolver for these."
        )


def thinned(folds: Sequence[Fold], most: int) -> list[Fold]:
    """Return folds of at most so many rows, evenly spread; the same if there are no more."""
    n_rows = sum(len(fold.held) for fold in folds)
    if n_rows <= most:
        return list(folds)
    some = np.zeros(n_rows, bool)
    some[np.linspace(0, n_rows - 1, most).astype(int)] = True
    return [Fold(fold.kept[some[fold.kept]], fold.held[some[fold.held]]) for fold in folds]


def fit_chains(task: Task) -> Candidate | None:
    """Sample chains without each fold; of a group of processes each samples some."""
    if task.data.latent_dim < FEWEST_COLUMNS:
        return None
    folds, rows = len(task.averaged.folds), _telling(task, 0).rows
    settings = ChainSettings.plan(rows, quick=task.plan.quick)
    sweeps = settings.sweeps * CHAINS * folds
    most = MOST_DENSITIES_IF_QUICK if task.plan.quick else MOST_DENSITIES
    if settings.pairs(rows) * sweeps > most:
        task.notes.append(
            "There are no Bayesian mixtures: so many rows would take them too long, and say "
            "enough without them. Use BayesianXDGMM for these."
        )
        return None
    try:
        task.plan.progress.begin("sampling Bayesian mixtures", "sweeps", sweeps)
        mixtures = ranks.spread(
            lambda mine: [_sampled(task, f, settings) for f in mine], list(range(folds))
        )
    except np.linalg.LinAlgError:
        task.notes.append(
            "There are no Bayesian mixtures: some rows lie too far from all others for them. "
            "Look for codes of missing values, as -999."
        )
        return None
    return task.scored("bayes", mixtures)


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
        threads=task.plan.n_jobs, progress=task.plan.progress.advance,
    )  # fmt: skip
    return mix([snapshot for chain in chains for snapshot in chain.snapshots])
