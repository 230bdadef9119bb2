r"""The chance of a truth to be seen, over the laws of noise that rows have.

.. math:: F(v) = \sum_i g_i \int f(v + n) \, p_i(n) \, dn

with the probability ``f`` to be seen, the laws :math:`p_i` of the rows, and the share
:math:`g_i` of all rows, seen or not, that have such a law. Where the truth decides, it is ``f(v)``.
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

LAWS = 16
"""Rows whose laws stand for all."""
LAWS_PER_CLASS, CLASSES = 4, 4
"""Classes of rows by the size of their noise, each with a chance of its own."""
DRAWS_PER_LAW, WIDER = 16, 1.6
"""Where there is no closed form: draws of Gaussian noise lie wider than it and are weighed, so that
a chance is small, not zero, where only large noise lets a truth be seen."""
POINTS_AT_ONCE = 200_000


class Chances:
    """``F(v)`` of truths, for one rule, some rows, and the shares of their laws."""

    def __init__(
        self, rule: Rule, data: Observations, shares: Array, seed: int, laws: int = LAWS
    ) -> None:
        self.rule = rule
        self.rows = _standing_for_all(data, shares, laws)
        self.laws = data[torch.from_numpy(self.rows)].noise
        self.sd = _sd(self.laws)
        self.law = np.tile(np.arange(laws), DRAWS_PER_LAW)
        sobol = qmc.Sobol(data.dim, seed=seed).random(len(self.law))
        self.white = WIDER * ndtri(sobol.clip(1e-6, 1 - 1e-6))
        logs = -0.5 * np.square(self.white).sum(1) * (1 - WIDER**-2)
        self.shares = np.exp(logs - np.logaddexp.reduce(logs))
        self.noise = self._draws(seed)

    def _draws(self, seed: int) -> Array:
        """Draws of the laws' noise, ``(J, D)``, whose shares are theirs."""
        if isinstance(self.laws, GaussianNoise):
            factors = self.laws.cholesky().double().numpy()
            factors = np.broadcast_to(factors, (len(self.laws), *factors.shape[1:]))
            return np.einsum("jab,jb->ja", factors[self.law], self.white)
        self.shares = np.full(len(self.law), 1 / len(self.law))
        with isolated_rng(seed):
            return self.laws.sample(DRAWS_PER_LAW).double().numpy().reshape(len(self.law), -1)

    def __call__(self, v: Array) -> Array:
        """Chance ``(N,)`` of each truth ``(N, D)``."""
        parts = [v[i : i + POINTS_AT_ONCE] for i in range(0, len(v), POINTS_AT_ONCE)]
        return np.concatenate([self._of(part) for part in parts]) if parts else np.empty(0)

    def _of(self, v: Array) -> Array:
        if self.rule.of_truth:
            return self.rule(v)
        if self.rule.errors is None and self.rule.seen is None and self._closed_form:
            return np.mean([self._in_ranges(v, sd) for sd in self.sd], axis=0)
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
        total = np.zeros(len(v))
        own = self.rule.errors is None
        for law, noise, white, share in zip(
            self.law, self.noise, self.white, self.shares, strict=True
        ):
            sd = np.broadcast_to(self.sd[law], v.shape) if own else said_errors(self.rule, v)
            w = v + (noise if own else sd * white)
            total += share * self.rule(w, np.full(len(v), self.rows[law]), sd)
        return total


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


class ChancesByClass:
    """Chances ``(B, N)`` of truths ``(N, D)``, for each class of rows by the size of their noise.

    Attributes
    ----------
    classes : array
        ``(N,)``: the class of each row.
    """

    def __init__(self, rule: Rule, data: Observations, seed: int) -> None:
        own = _weights(data)
        self.classes = np.zeros(len(data), np.int64)
        if not (rule.of_truth or rule.errors is not None or data.noise.shared):
            self.classes = _classes(data)
        self.each = [
            Chances(rule, data, own * (self.classes == b), seed, LAWS_PER_CLASS)
            for b in range(self.classes.max() + 1)
        ]

    def __call__(self, v: Array) -> Array:
        """Chance of each truth, with the noise of each class."""
        return np.stack([chances(v) for chances in self.each])


def shares_of_laws(data: Observations, chances: ChancesByClass, truths: Array) -> Array:
    """Share ``(N,)`` of each row's law among all rows, seen or not, for truths ``(S, D)``.

    Of the laws with which few are seen there are more than were seen.
    """
    chance = chances(truths).mean(1)[chances.classes]
    shares = _weights(data) / np.maximum(chance, 1e-6)
    return shares / shares.sum()


def _weights(data: Observations) -> Array:
    return np.ones(len(data)) if data.weights is None else data.weights.double().numpy()


def _classes(data: Observations) -> NDArray[np.int64]:
    """Put rows in classes by the size of their noise, as large as each other, none empty."""
    size = np.log(np.maximum(_sd(data.noise), 1e-300)).sum(1)
    edges = np.quantile(size, np.linspace(0, 1, CLASSES + 1)[1:-1])
    return np.unique(np.searchsorted(edges, size), return_inverse=True)[1].astype(np.int64)


def _standing_for_all(data: Observations, shares: Array, laws: int) -> NDArray[np.int64]:
    """Choose rows at even steps of their shares, in the order of the size of their noise."""
    if data.noise.shared:
        return np.zeros(laws, np.int64)
    order = np.argsort(_sd(data.noise).prod(1), kind="stable")
    reached = np.cumsum(shares[order])
    steps = (np.arange(laws) + 0.5) / laws * reached[-1]
    return order[np.searchsorted(reached, steps).clip(0, len(order) - 1)]


def _sd(noise: Noise) -> Array:
    sd = noise.variance().sqrt().double().numpy()
    return np.broadcast_to(sd, (len(noise), noise.dim))
