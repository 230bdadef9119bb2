r"""The chance of a truth to be seen, over the laws of noise that rows have.

.. math:: F_i(v) = \int f(v + n) \, p_i(n) \, dn

with the probability ``f`` to be seen and the law :math:`p_i` of a row, or the mean of that over
rows. Where the truth decides, it is ``f(v)``.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from deconflow._types import Array
from deconflow.measuring.selection import Rule
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng

LAWS, LAWS_BY_THEMSELVES, DRAWS_PER_LAW = 128, 32, 16
"""Rows whose laws stand for all together, or each for its own kind; and draws of each of these."""
WIDER = 1.6
"""Where there is no closed form: draws of Gaussian noise lie wider than it and are weighed, so that
a chance is small, not zero, where only large noise lets a truth be seen."""
POINTS_AT_ONCE = 20_000


class Chances:
    """``F(v)`` of truths, for one rule, some rows, and the shares of their laws."""

    def __init__(
        self, rule: Rule, data: Observations, seed: int, rows: NDArray[np.int64] | None = None
    ) -> None:
        self.rule = rule
        self.rows = standing_for_all(data, LAWS) if rows is None else rows
        self.laws = data[torch.from_numpy(self.rows)].noise
        self.sd = _sd(self.laws)
        sobol = qmc.Sobol(data.dim, seed=seed).random(len(self.rows))
        self.white = WIDER * ndtri(sobol.clip(1e-6, 1 - 1e-6))
        logs = -0.5 * np.square(self.white).sum(1) * (1 - WIDER**-2)
        self.shares = np.exp(logs - np.logaddexp.reduce(logs))
        self.noise = self._draws(seed)

    def _draws(self, seed: int) -> Array:
        """Draws of the laws' noise, ``(J, D)``, whose shares are theirs."""
        if isinstance(self.laws, GaussianNoise):
            factors = self.laws.cholesky().double().numpy()
            factors = np.broadcast_to(factors, (len(self.laws), *factors.shape[1:]))
            return np.einsum("jab,jb->ja", factors, self.white)
        self.shares = np.full(len(self.rows), 1 / len(self.rows))
        with isolated_rng(seed):
            return self.laws.sample(1)[0].double().numpy()

    def __call__(self, v: Array) -> Array:
        """Chance ``(N,)`` of each truth ``(N, D)``."""
        parts = [v[i : i + POINTS_AT_ONCE] for i in range(0, len(v), POINTS_AT_ONCE)]
        return np.concatenate([self._of(part) for part in parts]) if parts else np.empty(0)

    def _of(self, v: Array) -> Array:
        if self.rule.of_truth:
            return self.rule(v)
        if self.rule.errors is None and self.rule.seen is None and self._closed_form:
            sizes, counts = np.unique(self.sd, axis=0, return_counts=True)
            found = [self._in_ranges(v, sd) for sd in sizes]
            return np.average(found, axis=0, weights=counts)
        return self._by_draws(v)

    @property
    def _closed_form(self) -> bool:
        return isinstance(self.laws, GaussianNoise) and self.laws.independent

    def _in_ranges(self, v: Array, sd: Array) -> Array:
        """Probability that Gaussian noise leaves a value in all ranges."""
        found = np.ones(len(v))
        for d, each in self.rule.ranges:
            size = max(sd[d], 1e-300)
            found *= ndtr((each.upper - v[:, d]) / size) - ndtr((each.lower - v[:, d]) / size)
        return found

    def _by_draws(self, v: Array) -> Array:
        """Average over all draws at once: a user's function is called seldom."""
        draws, count = len(self.rows), len(v)
        if self.rule.errors is None:
            sd = np.repeat(self.sd, count, axis=0)
            w = (self.noise[:, None] + v).reshape(-1, v.shape[1])
        else:
            said = said_errors(self.rule, v)
            sd = np.tile(said, (draws, 1))
            w = (v + self.white[:, None] * said).reshape(-1, v.shape[1])
        seen = self.rule(w, np.repeat(self.rows, count), sd)
        return self.shares @ seen.reshape(draws, count)


def said_errors(rule: Rule, v: Array) -> Array:
    """Return the standard deviations that users say unseen truths ``(N, D)`` are measured with."""
    assert rule.errors is not None
    sd = np.asarray(rule.errors(v), np.float64)
    if sd.shape != v.shape or not (np.isfinite(sd) & (sd >= 0)).all():
        raise ValueError(
            f"Expected errors of the selection to return shape {v.shape}, finite and at least "
            f"zero; got shape {sd.shape}{'' if sd.shape != v.shape else ' with other values'}."
        )
    return sd


class ChancesByLaw:
    """Chances ``(L, N)`` of truths ``(N, D)`` with each of some laws of noise.

    Attributes
    ----------
    rows : array
        ``(L,)`` rows whose laws these are; each stands for as many rows as any other.
    """

    def __init__(self, rule: Rule, data: Observations, seed: int) -> None:
        alike = rule.of_truth or rule.errors is not None
        alike = alike or (data.noise.shared and rule.columns is None)
        self.rows = standing_for_all(data, 1 if alike else LAWS_BY_THEMSELVES)
        count = LAWS if alike else DRAWS_PER_LAW
        self.each = [Chances(rule, data, seed, np.full(count, row)) for row in self.rows]

    def __call__(self, v: Array) -> Array:
        """Chance of each truth, with each law."""
        return np.stack([chances(v) for chances in self.each])


def standing_for_all(data: Observations, count: int) -> NDArray[np.int64]:
    """Choose rows at even steps of their weights, in the order of the size of their noise."""
    order = np.argsort(_sd(data.noise).prod(1), kind="stable")
    weights = np.ones(len(data)) if data.weights is None else data.weights.double().numpy()
    reached = np.cumsum(weights[order])
    steps = (np.arange(count) + 0.5) / count * reached[-1]
    return order[np.searchsorted(reached, steps).clip(0, len(order) - 1)]


def _sd(noise: Noise) -> Array:
    sd = noise.variance().sqrt().double().numpy()
    return np.broadcast_to(sd, (len(noise), noise.dim))
