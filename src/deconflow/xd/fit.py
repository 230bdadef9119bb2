r"""From observations to a mixture: starts, EM, split-and-merge, the best of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.xd.em import EMResult, Stopping, em
from deconflow.xd.maximisation import Rules, raised
from deconflow.xd.mixture import Mixture
from deconflow.xd.rows import Rows, lay_out
from deconflow.xd.split_merge import split_and_merge
from deconflow.xd.starts import Starter, mean_noise

Array = NDArray[np.float64]
SMALLEST_VARIANCE = 1e-10
"""Covariances stay above this share of the data's squared spread, whatever the floor, where exact
rows in several dimensions make thin ones too much for double precision."""

SMALLEST_OF_NOISY = 1e-13
"""The same where noise, or a single dimension, keeps the numbers apart."""


@dataclass(frozen=True)
class Recipe:
    """How to fit one mixture; see :class:`deconflow.XDGMM`."""

    n_components: int
    floor: float = 0.0
    regularisation: float = 0.0
    init: str = "kmeans"
    split_merge: int = 0
    stopping: Stopping = field(default_factory=Stopping)
    fixed: tuple[NDArray[np.bool_], ...] | None = None
    complete: Callable[[Mixture], Mixture] | None = None
    """Puts what the user gives of a start into one that was made, in the user's units."""

    def rules(self, problem: Problem) -> Rules:
        """Turn floor, prior and flags into the units of the rows."""
        rows = problem.rows
        floor = _smallest_variance(problem.data, rows) * np.eye(rows.dim)
        if self.floor > 0:
            floor = floor + self.floor * problem.noise
        prior = None
        if self.regularisation > 0:
            prior = np.diag(self.regularisation / rows.units.latent**2)
        free = Rules.free(self.n_components, floor, prior)
        if self.fixed is None:
            return free
        flags = (np.broadcast_to(each, (self.n_components,)).copy() for each in self.fixed)
        return Rules(floor, prior, *flags)


class Problem:
    """One data set, laid out once and fitted many times."""

    def __init__(self, data: Observations) -> None:
        self.data, self.rows = data, lay_out(data)
        self._starters: dict[float, Starter] = {}

    @cached_property
    def noise(self) -> Array:
        """The unit of the floor: to find it, some laws are fitted."""
        return mean_noise(self.data, self.rows.units)

    def fit(
        self, recipe: Recipe, rng: np.random.RandomState, start: Mixture | None = None
    ) -> EMResult:
        """Fit once; the answer's mixture is in the user's units."""
        rules = recipe.rules(self)
        start = self.start(recipe, rng) if start is None else start
        begin = feasible(self.rows.units.into(start), rules)
        result = em(begin, self.rows, rules, recipe.stopping)
        if recipe.split_merge > 0:
            result = split_and_merge(
                result, self.rows, rules, recipe.stopping, recipe.split_merge, rng
            )
        result.mixture = self.rows.units.back(result.mixture)
        return result

    def start(self, recipe: Recipe, rng: np.random.RandomState) -> Mixture:
        """Make a start, in the user's units."""
        if recipe.floor not in self._starters:
            floor = recipe.rules(self).floor
            self._starters[recipe.floor] = Starter(self.data, self.rows, floor)
        made = self._starters[recipe.floor].make(recipe.n_components, recipe.init, rng)
        made = self.rows.units.back(made)
        return made if recipe.complete is None else recipe.complete(made)

    def fit_best(self, recipe: Recipe, n_init: int, rng: np.random.RandomState) -> EMResult:
        """Fit from several starts, and keep the one of the largest likelihood."""
        results = [self.fit(recipe, rng) for _ in range(n_init)]
        return max(results, key=lambda result: result.log_likelihood)


def _smallest_variance(data: Observations, rows: Rows) -> float:
    noise = data.noise.variance().amin(0)
    spread = (data.w - data.w.mean(0)).square().mean(0)
    noisy = bool((noise > SMALLEST_OF_NOISY * spread).all())
    return SMALLEST_OF_NOISY if noisy or rows.dim == 1 else SMALLEST_VARIANCE


def feasible(mixture: Mixture, rules: Rules) -> Mixture:
    """Raise the covariances that are free to the floor, the fixed ones to what is invertible."""
    covariances = raised(mixture.covariances, rules.floor)
    fixed = raised(mixture.covariances, SMALLEST_OF_NOISY * np.eye(mixture.dim))
    covariances = np.where(rules.fixed_covariances[:, None, None], fixed, covariances)
    return Mixture(mixture.weights, mixture.means, covariances)


def fit_exact(values: Array, n_components: int, seed: int) -> Mixture:
    """Fit a mixture to values without noise."""
    exact = gaussian(sd=torch.zeros(values.shape[1], dtype=torch.float64))
    problem = Problem(Observations.from_arrays(values, exact))
    recipe = Recipe(n_components, stopping=Stopping(tol=1e-5, accelerate=True))
    return problem.fit(recipe, check_random_state(seed)).mixture
