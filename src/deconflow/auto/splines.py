"""Log-splines as a candidate, in one and two columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from deconflow.auto.candidates import Candidate, Task, score_folds
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.splines import MOST_COLUMNS, LogSplineFit, fit_log_spline
from deconflow.xd import Fold

NAME = "spline"


MOST_IN_A_PLANE = 40_000
"""Gaussians that rows with noise of their own may be made of, in two columns."""


def fit_splines(task: Task) -> Candidate | None:
    """Fit a log-spline without each fold, each from one fit to all rows, as Gaussian mixtures."""
    data = task.data
    if data.latent_dim > MOST_COLUMNS or data.projection is not None:
        return None
    if _too_long(data):
        task.notes.append(
            "There is no log-spline: in two columns, with noise that differs by row or is not "
            "Gaussian, so many rows would take it too long. Use LogSplineDeconvolver for these."
        )
        return None
    with task.progress("log-splines", 1 + len(task.averaged.folds), "fit") as bar:

        def without(fold: Fold, start: LogSplineFit) -> GaussianMixture:
            found = fit_log_spline(data[torch.from_numpy(fold.kept)], start=start).mixture
            bar.update()
            return found

        try:
            whole = fit_log_spline(data)
            bar.update()
            with ThreadPoolExecutor(task.resources.n_jobs) as pool:
                folds = task.averaged.folds
                mixtures = list(pool.map(lambda fold: without(fold, whole), folds))
        except ValueError as reason:
            task.notes.append(f"There is no log-spline. {reason}")
            return None
    return Candidate(NAME, score_folds(task, mixtures), list(mixtures))


def _too_long(data: Observations) -> bool:
    """Whether rows on a plane cannot be put into bins, and are too many without."""
    binned = isinstance(data.noise, GaussianNoise) and data.noise.shared
    if data.dim == 1 or binned:
        return False
    return len(data) * data.noise.as_mixture().n_parts > MOST_IN_A_PLANE
