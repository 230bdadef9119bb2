"""Log-splines as a candidate, in one and two columns."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from deconflow import ranks
from deconflow.auto.candidates import Candidate, Task, score_folds, thinned
from deconflow.auto.plan import Plan
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.splines import MOST_COLUMNS, fit_log_spline, work_of_fit
from deconflow.xd import Fold

NAME, STAGE = "spline", "fitting log-splines"
#: Rows or bins, in two columns times the Gaussians of their noise, that a fit may sum over.
MOST_WORK, MOST_WORK_IF_QUICK = 40_000, 10_000
#: Rows that are fitted and scored at most: more hardly change so smooth an answer.
MOST_ROWS = 200_000
#: Gaussians of all rows that are worth writing out to see how many bins there would be.
MOST_WRITTEN = 400_000


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
    return Candidate(NAME, score_folds(task, mixtures, folds), list(mixtures))


def _without_each_fold(task: Task, folds: list[Fold]) -> list[GaussianMixture]:
    """Fit without each fold, from one fit to all rows; raise ValueError where none can be had.

    Of a group of processes each fits some.
    """
    rows = np.sort(np.concatenate([fold.held for fold in folds]))
    data = task.data
    some = data if len(rows) == len(data) else data[rows]
    _check_work(some, task.plan)
    progress = task.resources.progress
    progress.begin(STAGE, steps=1 + len(folds))
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

        with ThreadPoolExecutor(task.resources.n_jobs) as pool:
            return ranks.spread(lambda mine: list(pool.map(without, mine)), folds)


def _check_work(data: Observations, plan: Plan) -> None:
    """Raise ValueError where no fit can be had."""
    if data.observed is not None:  # tried on rings and on the toy: nothing gained, .003 nat lost
        raise ValueError("Where values are missing it adds nothing to mixtures.")
    if data.noise.flags is not None:
        raise ValueError("Where values are limits, only mixtures and flows take these.")
    gaussians = len(data) * data.noise.as_mixture().n_parts
    not_gaussian = data.dim > 1 and not isinstance(data.noise, GaussianNoise)
    most = MOST_WORK_IF_QUICK if plan.quick else MOST_WORK
    work = math.inf if not_gaussian and gaussians > MOST_WRITTEN else work_of_fit(data)
    if work > most:
        raise ValueError(
            "So many rows with noise that differs by row, or is not Gaussian, would take it too "
            "long. Use LogSplineDeconvolver for these."
        )
