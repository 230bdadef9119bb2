r"""An averaged mixture with nothing to set: numbers of components are climbed like a ladder.

Every rung is fitted on all rows but one fold, for each fold, and judged by the rows left out. The
climb ends at the first rung that is not clearly better than the best so far; one that is worse on
the first folds is not fitted on the others. Then the floor is doubled for as long as that is
better, and halved, each time from where the last floor ended; as noisy rows are all but blind to a
floor too small, it is halved again only if that was clearly better. The fits of the chosen number
of components are averaged, over folds, starts and floors. The same fits give every row a likelihood
from rows that exclude it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from deconflow.observations import Observations
from deconflow.xd.expectation import usable_cpus
from deconflow.xd.fitting import Problem, Recipe
from deconflow.xd.mixture import Mixture, average
from deconflow.xd.rows import lay_out
from deconflow.xd.selection import (
    bootstrap_wins,
    log_p,
    n_parameters,
    paired,
    row_weights,
    successful,
)

Array = NDArray[np.float64]
RUNGS = (1, 3, 6, 12, 24, 48, 96)
FIRST_FLOOR = 0.1
SMALLEST_FLOOR, LARGEST_FLOOR = 0.003, 1.6
SMALLEST_SHARE = 0.05
ROWS_FOR_A_PARAMETER = 2
CLEARLY = 2.0
"""Standard errors of a paired difference that count as a difference."""


@dataclass(frozen=True)
class Fold:
    """The rows that were fitted, and those left out."""

    kept: NDArray[np.int64]
    held: NDArray[np.int64]


@dataclass(frozen=True)
class Rung:
    """One setting, fitted without each fold.

    Attributes
    ----------
    recipe : Recipe
        The setting.
    starts : list of lists of Mixture
        Where each start ended, for each fold.
    fits : list of Mixture
        The average of the starts, for each fold.
    held_out : array
        ``(N,)`` log-likelihood of every row by the fit that left it out.
    """

    recipe: Recipe
    starts: list[list[Mixture]]
    fits: list[Mixture]
    held_out: Array


@dataclass(frozen=True)
class Ladder:
    """Where the climb ended.

    Attributes
    ----------
    mixture : Mixture
        The average.
    without : list of Mixture
        The average for each fold that was left out.
    held_out : array
        ``(N,)`` log-likelihood of every row under the average that left it out.
    folds : list of Fold
        The folds.
    recipe : Recipe
        The setting of the largest share.
    table : dict of arrays
        ``n_components``, ``floor``, ``held_out``, ``behind_best``, ``behind_best_se``, ``share``.
    """

    mixture: Mixture
    without: list[Mixture]
    held_out: Array
    folds: list[Fold]
    recipe: Recipe
    table: dict[str, NDArray[Any]]


def climb(
    data: Observations,
    recipe: Recipe,
    rng: np.random.RandomState,
    *,
    folds: int = 5,
    starts: int = 2,
) -> Ladder:
    """Fit an averaged mixture; ``recipe`` says how to start and when to stop."""
    fitter = _Fitter(data, folds, starts, rng)
    rungs = [fitter.fit(replace(recipe, n_components=1, floor=FIRST_FLOOR))]
    for count in _rungs(data):
        best = max(rungs, key=lambda rung: float(fitter.weights @ rung.held_out))
        rung = fitter.fit_if_better(replace(best.recipe, n_components=count), best)
        if rung is None:
            break
        rungs.append(rung)
        if not _better(rung, best, fitter.weights, CLEARLY):
            break
    chosen = rungs[_fewest_close(rungs, fitter.weights)]
    rungs += fitter.other_floors(chosen, 2.0, 0.0) + fitter.other_floors(chosen, 0.5, CLEARLY)
    return _averaged(rungs, chosen.recipe.n_components, fitter, rng)


class _Fitter:
    """Fits settings without each fold, with the rows laid out once."""

    def __init__(
        self, data: Observations, folds: int, starts: int, rng: np.random.RandomState
    ) -> None:
        splitter = KFold(min(folds, len(data)), shuffle=True, random_state=rng.randint(2**31 - 1))
        self.folds = [Fold(*pair) for pair in splitter.split(np.empty(len(data)))]
        self.problems = [Problem(data[torch.from_numpy(fold.kept)]) for fold in self.folds]
        self.left_out = [lay_out(data[torch.from_numpy(fold.held)]) for fold in self.folds]
        self.weights, self.starts, self.rng = row_weights(data), starts, rng

    def fit(self, recipe: Recipe, begin: list[list[Mixture]] | None = None) -> Rung:
        """Fit without each fold; ``begin`` says where, for each fold and start."""
        rung = Rung(recipe, [], [], np.full(len(self.weights), np.nan))
        for f in range(len(self.folds)):
            self._add_fold(rung, f, None if begin is None else begin[f])
        return rung

    def fit_if_better(self, recipe: Recipe, best: Rung) -> Rung | None:
        """Fit without each fold, but give up where the setting is worse on the folds so far."""
        rung = Rung(recipe, [], [], np.full(len(self.weights), np.nan))
        gain = 0.0
        for f, fold in enumerate(self.folds):
            self._add_fold(rung, f, None)
            ahead = rung.held_out[fold.held] - best.held_out[fold.held]
            gain += float(self.weights[fold.held] @ ahead)
            if gain < 0:
                return None
        return rung

    def other_floors(self, rung: Rung, factor: float, errors: float) -> list[Rung]:
        """Change the floor by a factor for as long as that gains more than so many errors."""
        tried: list[Rung] = []
        while SMALLEST_FLOOR <= rung.recipe.floor * factor <= LARGEST_FLOOR:
            recipe = replace(rung.recipe, floor=rung.recipe.floor * factor)
            tried.append(self.fit(recipe, rung.starts))
            if not _better(tried[-1], rung, self.weights, errors):
                break
            rung = tried[-1]
        return tried

    def _add_fold(self, rung: Rung, f: int, begin: list[Mixture] | None) -> None:
        problem, recipe = self.problems[f], rung.recipe
        if begin is None:
            count = 1 if recipe.n_components == 1 else self.starts
            begin = [problem.start(recipe, self.rng) for _ in range(count)]
        with ThreadPoolExecutor(usable_cpus()) as threads:  # few rows keep one thread busy
            results = list(threads.map(lambda start: problem.fit(recipe, self.rng, start), begin))
        rung.starts.append([result.mixture for result in successful(results)])
        rung.fits.append(average(rung.starts[-1]))
        rung.held_out[self.folds[f].held] = log_p(rung.fits[-1], self.left_out[f])


def _rungs(data: Observations) -> list[int]:
    """More than one component, with a few rows for every parameter."""
    return [
        count
        for count in RUNGS[1:]
        if ROWS_FOR_A_PARAMETER * n_parameters(count, data.latent_dim) <= len(data)
    ]


def _better(rung: Rung, other: Rung, weights: Array, errors: float) -> bool:
    behind, error = paired(np.stack([other.held_out, rung.held_out]), weights)
    return bool(behind[0] > errors * error[0])


def _fewest_close(rungs: Sequence[Rung], weights: Array) -> int:
    behind, error = paired(np.stack([rung.held_out for rung in rungs]), weights)
    return int(np.argmax(behind <= CLEARLY * error))  # rungs are in the order of their components


def _averaged(
    rungs: list[Rung], n_components: int, fitter: _Fitter, rng: np.random.RandomState
) -> Ladder:
    """Average the rungs of one number of components by how often each would be the best."""
    rows_p = np.stack([rung.held_out for rung in rungs])
    among = np.array([rung.recipe.n_components == n_components for rung in rungs])
    shares = bootstrap_wins(rows_p, fitter.weights, among, rng)
    shares = np.where(shares >= SMALLEST_SHARE, shares, 0.0)
    shares /= shares.sum()
    used = [(share, rung) for share, rung in zip(shares, rungs, strict=True) if share > 0]
    without = [
        average([rung.fits[f] for _, rung in used], [share for share, _ in used])
        for f in range(len(fitter.folds))
    ]
    held_out = np.empty(rows_p.shape[1])
    for fold, mixture, rows in zip(fitter.folds, without, fitter.left_out, strict=True):
        held_out[fold.held] = log_p(mixture, rows)
    behind, error = paired(rows_p, fitter.weights)
    table: dict[str, NDArray[Any]] = {
        "n_components": np.array([rung.recipe.n_components for rung in rungs]),
        "floor": np.array([rung.recipe.floor for rung in rungs]),
        "held_out": np.average(rows_p, axis=1, weights=fitter.weights),
        "behind_best": behind,
        "behind_best_se": error,
        "share": shares,
    }
    recipe = rungs[int(shares.argmax())].recipe
    return Ladder(average(without), without, held_out, fitter.folds, recipe, table)
