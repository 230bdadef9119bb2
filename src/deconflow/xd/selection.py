r"""Averages of several fits, and the choice of components and floor with noisy rows only.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise. Averages of several fits do not collapse together, so these are compared, and among those
that the held-out rows cannot tell apart the one with fewest components is taken; for single
fits, the one with the largest entropy.
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


@dataclass(frozen=True)
class Averaging:
    """How many fits to average: over random ``starts``, or over ``folds`` of the rows."""

    count: int = 1
    over: str = "starts"


def fit_average(
    problem: Problem, recipe: Recipe, averaging: Averaging, n_init: int, rng: np.random.RandomState
) -> EMResult:
    """Average the densities of several fits; the one of the largest likelihood reports."""
    if averaging.over == "folds":
        results = [
            Problem(part).fit_best(recipe, n_init, rng) for part in _folds(problem, averaging, rng)
        ]
        good = results
    else:
        results = [problem.fit_best(recipe, n_init, rng) for _ in range(averaging.count)]
        good = _successful(results)
    best = max(results, key=lambda result: result.log_likelihood)
    return replace(best, mixture=average([result.mixture for result in good]))


@dataclass(frozen=True)
class Choice:
    """Which setting won, and why.

    Attributes
    ----------
    recipe : Recipe
        The winner.
    table : dict of arrays
        One entry a setting: ``n_components``, ``floor``, ``train`` and ``held_out`` mean
        log-likelihood, ``behind_best`` (held-out difference to the best setting), its paired
        standard error ``behind_best_se``, ``entropy``, and ``chosen``.
    """

    recipe: Recipe
    table: dict[str, NDArray[Any]]


def choose(
    data: Observations,
    recipe: Recipe,
    n_components: Sequence[int],
    floors: Sequence[float],
    *,
    averaged: bool,
    validation_fraction: float,
    rng: np.random.RandomState,
) -> Choice:
    """Choose number of components and floor on held-out noisy rows."""
    if len(data) < 2:
        raise ValueError(
            "Expected at least 2 rows to choose components or floor by held-out rows; got 1."
        )
    order = rng.permutation(len(data))
    n_held = min(max(1, round(validation_fraction * len(data))), len(data) - 1)
    problem = Problem(data[torch.from_numpy(np.sort(order[n_held:]))])
    held = lay_out(data[torch.from_numpy(np.sort(order[:n_held]))])
    settings = list(product(sorted(n_components), sorted(floors)))
    train, mixtures = [], []
    for count, floor in settings:
        candidate = replace(recipe, n_components=count, floor=floor)
        results = _successful([problem.fit(candidate, rng) for _ in range(STARTS_TO_COMPARE)])
        train.append(results[0].log_likelihood)
        parts = [result.mixture for result in results]
        mixtures.append(average(parts) if averaged else parts[0])
    rows_p = np.stack([_log_p(mixture, held) for mixture in mixtures])
    entropy = np.array([mixture.entropy() for mixture in mixtures])
    behind, error = _paired(rows_p, held)
    if averaged:
        winner = _fewest_components(settings, behind, error)
    else:
        close = behind <= error
        winner = int(np.argmax(np.where(close, entropy, -np.inf)))
    table: dict[str, NDArray[Any]] = {
        "n_components": np.array([setting[0] for setting in settings]),
        "floor": np.array([setting[1] for setting in settings]),
        "train": np.array(train),
        "held_out": np.array([mean_log_likelihood(p, held) for p in rows_p]),
        "behind_best": behind,
        "behind_best_se": error,
        "entropy": entropy,
        "chosen": np.arange(len(settings)) == winner,
    }
    count, floor = settings[winner]
    return Choice(replace(recipe, n_components=count, floor=floor), table)


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
        value = mean_log_likelihood(_log_p(best.mixture, problem.rows), problem.rows)
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
        values[test] = _log_p(fitted.mixture, lay_out(data[torch.from_numpy(test)]))
    weights = np.ones(len(data)) if data.weights is None else data.weights.numpy()
    mean = (weights @ values) / weights.sum()
    return mean, float(np.sqrt(np.mean(weights * (values - mean) ** 2) / len(data)))


def _folds(
    problem: Problem, averaging: Averaging, rng: np.random.RandomState
) -> list[Observations]:
    splitter = KFold(averaging.count, shuffle=True, random_state=rng.randint(2**31 - 1))
    indices = splitter.split(np.empty(len(problem.data)))
    return [problem.data[torch.from_numpy(train)] for train, _ in indices]


def _successful(results: list[EMResult]) -> list[EMResult]:
    """Best first, without those that got stuck."""
    ordered = sorted(results, key=lambda result: -result.log_likelihood)
    least = ordered[0].log_likelihood - FAILED_START
    return [result for result in ordered if result.log_likelihood >= least]


def _log_p(mixture: Mixture, rows: Rows) -> Array:
    return expectation(rows.units.into(mixture), rows, moments=False).log_p


def _paired(rows_p: Array, held: Rows) -> tuple[Array, Array]:
    """How far each setting is behind the best, and the standard error of that difference."""
    means = np.array([mean_log_likelihood(p, held) for p in rows_p])
    difference = rows_p[means.argmax()] - rows_p
    weights = np.ones(rows_p.shape[1]) if held.weights is None else held.weights
    behind = difference @ weights / weights.sum()
    spread = np.square(weights * (difference - behind[:, None])).sum(axis=1)
    return means.max() - means, np.sqrt(spread) / weights.sum()


def _fewest_components(settings: list[tuple[int, float]], behind: Array, error: Array) -> int:
    counts = np.array([setting[0] for setting in settings])
    fewest = counts[behind <= error].min()
    return int(np.argmin(np.where(counts == fewest, behind, np.inf)))
