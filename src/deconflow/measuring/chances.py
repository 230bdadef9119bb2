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

LAWS, DRAWS_PER_LAW, DRAWS_OF_ONE = 32, 8, 128
"""Rows whose laws stand for all; and draws of each of these, or of the only one."""
WIDER = 1.6
"""Where there is no closed form: draws of Gaussian noise lie wider than it and are weighed, so that
a chance is small, not zero, where only large noise lets a truth be seen."""
NUMBERS_AT_ONCE = 2_000_000


class Chances:
    """Chances of truths to be seen, for one rule and the laws of some rows.

    Attributes
    ----------
    rows : array
        ``(L,)`` rows whose laws stand for all, each for as many as any other.
    """

    def __init__(self, rule: Rule, data: Observations, seed: int) -> None:
        self.rule = rule
        alike = rule.of_truth or rule.errors is not None
        alike = alike or (data.noise.shared and rule.columns is None)
        self.rows = _standing_for_all(data, 1 if alike else LAWS)
        self.laws = data[torch.from_numpy(self.rows)].noise
        self.sd = _sd(self.laws)
        count = DRAWS_OF_ONE if alike else DRAWS_PER_LAW
        sobol = qmc.Sobol(data.dim, seed=seed).random(count)
        self.white = WIDER * ndtri(sobol.clip(1e-6, 1 - 1e-6))
        logs = -0.5 * np.square(self.white).sum(1) * (1 - WIDER**-2)
        self.shares = np.exp(logs - np.logaddexp.reduce(logs))
        self.noise = self._draws(count, seed)

    def _draws(self, count: int, seed: int) -> Array:
        """Draws of each law's noise, ``(L, J, D)``, whose shares are ``shares``."""
        if isinstance(self.laws, GaussianNoise):
            factors = self.laws.cholesky().double().numpy()
            factors = np.broadcast_to(factors, (len(self.laws), *factors.shape[1:]))
            return np.einsum("lab,jb->lja", factors, self.white)
        self.shares = np.full(count, 1 / count)
        with isolated_rng(seed):
            return self.laws.sample(count).double().numpy().transpose(1, 0, 2)

    def __call__(self, v: Array) -> Array:
        """Chance ``(N,)`` of each truth ``(N, D)``, over all laws."""
        return self.by_law(v).mean(0)

    def by_law(self, v: Array) -> Array:
        """Chance ``(L, N)`` of each truth ``(N, D)``, with each law."""
        size = max(1, NUMBERS_AT_ONCE // (self.noise.size or 1))
        parts = [self._of(v[i : i + size]) for i in range(0, len(v), size)]
        return np.concatenate(parts, axis=1)

    def _of(self, v: Array) -> Array:
        if self.rule.of_truth:
            return self.rule(v)[None]
        gaussian = isinstance(self.laws, GaussianNoise) and self.laws.independent
        if self.rule.errors is None and self.rule.seen is None and gaussian:
            return self._in_ranges(v)
        return self._by_draws(v)

    def _in_ranges(self, v: Array) -> Array:
        """Probability that Gaussian noise leaves a value in all ranges."""
        found = np.ones((len(self.sd), len(v)))
        for d, each in self.rule.ranges:
            size = np.maximum(self.sd[:, d, None], 1e-300)
            upper = ndtr((each.upper - v[:, d]) / size)
            found *= upper - ndtr((each.lower - v[:, d]) / size)
        return found

    def _by_draws(self, v: Array) -> Array:
        """Average over all draws at once: a user's function is called seldom."""
        laws, draws = self.noise.shape[:2]
        shape = (laws, draws, *v.shape)
        if self.rule.errors is None:
            sd = np.broadcast_to(self.sd[:, None, None], shape)
            w = v + self.noise[:, :, None]
        else:
            said = said_errors(self.rule, v)
            sd = np.broadcast_to(said, shape)
            w = v + self.white[None, :, None] * said
        rows = np.broadcast_to(self.rows[:, None, None], shape[:-1])
        dim = v.shape[1]
        seen = self.rule(w.reshape(-1, dim), rows.ravel(), sd.reshape(-1, dim))
        return np.einsum("j,ljn->ln", self.shares, seen.reshape(shape[:-1]))


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


def _standing_for_all(data: Observations, count: int) -> NDArray[np.int64]:
    """Choose rows at even steps of their weights, in the order of the size of their noise."""
    order = np.argsort(_sd(data.noise).prod(1), kind="stable")
    weights = np.ones(len(data)) if data.weights is None else data.weights.double().numpy()
    reached = np.cumsum(weights[order])
    steps = (np.arange(count) + 0.5) / count * reached[-1]
    return order[np.searchsorted(reached, steps).clip(0, len(order) - 1)]


def _sd(noise: Noise) -> Array:
    sd = noise.variance().sqrt().double().numpy()
    return np.broadcast_to(sd, (len(noise), noise.dim))
