r"""Averages of several fits, and the choice of components and floor with noisy rows only.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise. Averages of several fits do not collapse together, so these are compared, and among those
that the held-out rows cannot tell apart those with fewest components are taken. Which floor is
best among these the rows can seldom say either: so the average takes each floor as often as it
wins when the rows are drawn anew (bootstrap). Of single fits, the one with the largest entropy is
taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state

from deconflow.observations import Observations
from deconflow.xd.em import EMResult, mean_log_likelihood
from deconflow.xd.expectation import expectation
from deconflow.xd.fitting import Problem, Recipe
from deconflow.xd.mixture import Mixture, average
from deconflow.xd.rows import Rows, lay_out

Array = NDArray[np.float64]
STARTS_TO_COMPARE = 4
FAILED_START = 0.003
"""A start whose mean training log-likelihood is this far below the best is left out."""

BOOTSTRAPS = 500


@dataclass(frozen=True)
class Averaging:
    """How many fits to average: over random ``starts``, or over ``folds`` of the rows."""

    count: int = 1
    over: str = "starts"


def fit_average(
    problem: Problem,
    recipes: Sequence[Recipe],
    averaging: Averaging,
    n_init: int,
    rng: np.random.RandomState,
) -> EMResult:
    """Average the densities of several fits, one a recipe; that of largest likelihood reports."""
    problems = [problem] * len(recipes)
    if averaging.over == "folds":
        problems = [Problem(part) for part in _folds(problem, averaging, rng)]
    results = [
        part.fit_best(recipe, n_init, rng) for part, recipe in zip(problems, recipes, strict=True)
    ]
    good = results if averaging.over == "folds" else _good(results, recipes)
    best = max(results, key=lambda result: result.log_likelihood)
    return replace(best, mixture=average([result.mixture for result in good]))


def _good(results: list[EMResult], recipes: Sequence[Recipe]) -> list[EMResult]:
    """Leave out the fits that got stuck, judged by others of the same floor."""
    pairs = list(zip(results, recipes, strict=True))
    floors = sorted({recipe.floor for recipe in recipes})
    groups = [[r for r, recipe in pairs if recipe.floor == floor] for floor in floors]
    return [result for group in groups for result in successful(group)]


@dataclass(frozen=True)
class Choice:
    """Which setting won, and why.

    Attributes
    ----------
    recipes : list of Recipe
        Of each setting.
    shares : array
        How much each setting takes part; a single one unless averages are chosen.
    table : dict of arrays
        One entry a setting: ``n_components``, ``floor``, ``train`` and ``held_out`` mean
        log-likelihood, ``behind_best`` (held-out difference to the best setting), its paired
        standard error ``behind_best_se``, ``entropy``, ``share`` and ``chosen``.
    """

    recipes: list[Recipe]
    shares: Array
    table: dict[str, NDArray[Any]]

    def for_average(self, count: int) -> list[Recipe]:
        """Give ``count`` fits to the settings by their shares."""
        edges = np.cumsum(self.shares)
        places = (np.arange(count) + 0.5) / count * edges[-1]
        return [self.recipes[i] for i in np.searchsorted(edges, places)]


def choose(
    data: Observations,
    recipe: Recipe,
    n_components: Sequence[int],
    floors: Sequence[float],
    *,
    averaged: bool,
    folds: int,
    rng: np.random.RandomState,
) -> Choice:
    """Choose number of components and floor by cross-validation on noisy rows.

    Every row is held out once. The differences that matter are a few thousandths of a nat a row,
    as large as the error of one held-out fifth of 20,000 rows.
    """
    if len(data) < 2:
        raise ValueError(
            "Expected at least 2 rows to choose components or floor by held-out rows; got 1."
        )
    recipes = [
        replace(recipe, n_components=count, floor=floor)
        for count, floor in product(sorted(n_components), sorted(floors))
    ]
    splitter = KFold(min(folds, len(data)), shuffle=True, random_state=rng.randint(2**31 - 1))
    rows_p = np.empty((len(recipes), len(data)))
    train, entropy = np.zeros(len(recipes)), np.zeros(len(recipes))
    for kept, held in splitter.split(np.empty(len(data))):
        problem = Problem(data[torch.from_numpy(kept)])
        rows = lay_out(data[torch.from_numpy(held)])
        for i, candidate in enumerate(recipes):
            mixture, value = _candidate(problem, candidate, averaged, rng)
            rows_p[i, held] = log_p(mixture, rows)
            train[i] += value / splitter.n_splits
            entropy[i] += mixture.entropy() / splitter.n_splits
    weights = row_weights(data)
    behind, error = paired(rows_p, weights)
    if averaged:
        shares = bootstrap_wins(rows_p, weights, _fewest_components(recipes, behind, error), rng)
    else:
        close = np.where(behind <= error, entropy, -np.inf)
        shares = np.eye(len(recipes))[np.argmax(close)]
    table: dict[str, NDArray[Any]] = {
        "n_components": np.array([each.n_components for each in recipes]),
        "floor": np.array([each.floor for each in recipes]),
        "train": train,
        "held_out": np.average(rows_p, axis=1, weights=weights),
        "behind_best": behind,
        "behind_best_se": error,
        "entropy": entropy,
        "share": shares,
        "chosen": shares > 0,
    }
    return Choice(recipes, shares, table)


def _candidate(
    problem: Problem, recipe: Recipe, averaged: bool, rng: np.random.RandomState
) -> tuple[Mixture, float]:
    """Fit a few starts; return their average or the best, and the best's log-likelihood."""
    results = successful([problem.fit(recipe, rng) for _ in range(STARTS_TO_COMPARE)])
    mixtures = [result.mixture for result in results]
    return average(mixtures) if averaged else mixtures[0], results[0].log_likelihood


def component_table(
    data: Observations,
    recipe: Recipe,
    n_components: Sequence[int],
    *,
    n_init: int = 1,
    folds: int | None = 5,
    random_state: int | np.random.RandomState | None = None,
) -> dict[str, NDArray[Any]]:
    """Compare numbers of components by BIC, AIC and cross-validation: a plot-ready table.

    Returns
    -------
    dict of arrays
        One entry a number of components: ``n_components``, ``log_likelihood`` (mean), ``bic``,
        ``aic``, and, unless ``folds`` is None, ``cv`` (mean held-out log-likelihood) with its
        standard error ``cv_se``.
    """
    rng = check_random_state(random_state)
    problem = Problem(data)
    table: dict[str, list[float]] = {"n_components": list(n_components)}
    for count in n_components:
        candidate = replace(recipe, n_components=count)
        best = problem.fit_best(candidate, n_init, rng)
        value = mean_log_likelihood(log_p(best.mixture, problem.rows), problem.rows)
        total = value * len(data)
        free = n_parameters(count, data.latent_dim)
        row = {
            "log_likelihood": value,
            "bic": free * np.log(len(data)) - 2 * total,
            "aic": 2 * free - 2 * total,
        }
        if folds is not None:
            row["cv"], row["cv_se"] = _cross_validate(data, candidate, n_init, folds, rng)
        for name, value in row.items():
            table.setdefault(name, []).append(float(value))
    return {name: np.array(values) for name, values in table.items()}


def n_parameters(n_components: int, dim: int) -> int:
    """Count the free parameters of a mixture with full covariances."""
    return n_components * (1 + dim + dim * (dim + 1) // 2) - 1


def _cross_validate(
    data: Observations, recipe: Recipe, n_init: int, folds: int, rng: np.random.RandomState
) -> tuple[float, float]:
    values = np.empty(len(data))
    splitter = KFold(folds, shuffle=True, random_state=rng.randint(2**31 - 1))
    for train, test in splitter.split(values):
        fitted = Problem(data[torch.from_numpy(train)]).fit_best(recipe, n_init, rng)
        values[test] = log_p(fitted.mixture, lay_out(data[torch.from_numpy(test)]))
    weights = row_weights(data)
    mean = (weights @ values) / weights.sum()
    return mean, float(np.sqrt(np.mean(weights * (values - mean) ** 2) / len(data)))


def _folds(
    problem: Problem, averaging: Averaging, rng: np.random.RandomState
) -> list[Observations]:
    splitter = KFold(averaging.count, shuffle=True, random_state=rng.randint(2**31 - 1))
    indices = splitter.split(np.empty(len(problem.data)))
    return [problem.data[torch.from_numpy(train)] for train, _ in indices]


def successful(results: list[EMResult]) -> list[EMResult]:
    """Best first, without those that got stuck."""
    ordered = sorted(results, key=lambda result: -result.log_likelihood)
    least = ordered[0].log_likelihood - FAILED_START
    return [result for result in ordered if result.log_likelihood >= least]


def log_p(mixture: Mixture, rows: Rows) -> Array:
    """Log-likelihood of each row, in the user's units."""
    return expectation(rows.units.into(mixture), rows, moments=False).log_p


def row_weights(data: Observations) -> Array:
    """Weights of the rows, ones if there are none."""
    return np.ones(len(data)) if data.weights is None else data.weights.numpy()


def paired(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """How far each setting is behind the best, and the standard error of that difference."""
    means = np.average(rows_p, axis=1, weights=weights)
    difference = rows_p[means.argmax()] - rows_p
    behind = means.max() - means
    spread = np.square(weights * (difference - behind[:, None])).sum(axis=1)
    return behind, np.sqrt(spread) / weights.sum()


def _fewest_components(recipes: Sequence[Recipe], behind: Array, error: Array) -> NDArray[np.bool_]:
    """Mark the settings with the fewest components that the rows cannot tell from the best."""
    counts = np.array([recipe.n_components for recipe in recipes])
    return counts == counts[behind <= error].min()


def bootstrap_wins(
    rows_p: Array, weights: Array, among: NDArray[np.bool_], rng: np.random.RandomState
) -> Array:
    """How often each setting is the best when the rows are drawn anew (Bayesian bootstrap).

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
    distributions", https://arxiv.org/abs/1704.02030
    """
    some = rows_p[among] - rows_p[among].mean(0)
    wins = np.zeros(len(some))
    for _ in range(BOOTSTRAPS):
        wins[np.argmax(some @ (weights * rng.standard_exponential(len(weights))))] += 1
    shares = np.zeros(len(rows_p))
    shares[among] = wins / BOOTSTRAPS
    return shares
