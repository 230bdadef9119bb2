r"""The chance of a truth to be seen, and what a row that was seen says of its truth.

.. math:: F_i(v) = \int f(v + n) \, p_i(n) \, dn

with the probability ``f`` to be seen and the law :math:`p_i` of a row, or the mean of that over
rows. Where the truth decides, it is ``f(v)``.

The truths of the rows that were seen have the density :math:`q(v) \propto p(v) F(v)`, and a row
with such a truth has the likelihood

.. math:: p(w_i \mid v, \text{seen}) \propto p_i(w_i - v) / F(v)

So ``q`` is deconvolved as ever, from rows whose likelihoods lean towards what is seldom seen, and
``p`` is ``q / F``. Here that likelihood becomes one Gaussian.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from deconflow._types import Array, IntArray
from deconflow.measuring.selection import Rule
from deconflow.noise import GaussianNoise, Noise, gaussian, psd_cholesky
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng

#: Rows whose laws stand for all, where there is a closed form and where there are draws; and draws
#: of each of these, or of the only one.
LAWS, LAWS_WITH_DRAWS, DRAWS_PER_LAW, DRAWS_OF_ONE = 256, 128, 8, 128
#: Where there is no closed form: draws lie wider than the noise and are weighed, so that
#: a chance is small, not zero, where only large noise lets a truth be seen.
WIDER = 1.6
NUMBERS_AT_ONCE = 2_000_000
#: Points per row, how much wider than the likelihood they lie, and how often they move to it.
POINTS, WIDER_POINTS, ROUNDS = 64, 1.5, 2
LEAST_CHANCE, LEAST_WIDTH = 1e-3, 1e-5


class Chances:
    """Chances of truths to be seen, for one rule and the laws of some rows.

    Attributes
    ----------
    rows, counts : array
        ``(L,)`` rows whose laws stand for all, and for what share of these.
    """

    def __init__(self, rule: Rule, data: Observations, seed: int) -> None:
        self.rule = rule
        alike = rule.of_truth or rule.errors is not None
        alike = alike or (data.noise.shared and rule.columns is None)
        plain = isinstance(data.noise, GaussianNoise) and data.noise.independent
        self.closed_form = rule.errors is None and rule.seen is None and plain
        most = 1 if alike else LAWS if self.closed_form else LAWS_WITH_DRAWS
        columns = [d for d, _ in rule.ranges] or list(range(data.dim))
        self.rows, self.counts = _standing_for_all(data, most, columns)
        self.laws = data[self.rows].noise
        self.sd = _sd(self.laws)
        count = DRAWS_OF_ONE if len(self.rows) == 1 else DRAWS_PER_LAW
        bits = int(np.ceil(np.log2(len(self.rows) * count)))  # Sobol's points come in such numbers
        sobol = qmc.Sobol(data.dim, seed=seed).random_base2(bits)[: len(self.rows) * count]
        white = WIDER * ndtri(sobol.clip(1e-6, 1 - 1e-6))
        self.white = white.reshape(len(self.rows), count, -1)  # each law has even points of its own
        logs = -0.5 * np.square(self.white).sum(2) * (1 - WIDER**-2)
        self.shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
        self.noise = self._draws(seed)

    def _draws(self, seed: int) -> Array:
        """Draws of each law's noise, ``(L, J, D)``, whose shares are ``shares``."""
        laws, count, _ = self.white.shape
        drawn = self.laws.from_uniform(ndtr(self.white).transpose(1, 0, 2))
        if drawn is None:  # a law that can only be drawn from
            self.shares = np.full((laws, count), 1 / count)
            with isolated_rng(seed):
                drawn = np.asarray(self.laws.sample(count), np.float64)
        return drawn.transpose(1, 0, 2)

    def __call__(self, v: Array) -> Array:
        """Chance ``(N,)`` of each truth ``(N, D)``, over all laws."""
        return self.counts @ self.by_law(v)

    def by_law(self, v: Array) -> Array:
        """Chance ``(L, N)`` of each truth ``(N, D)``, with each law."""
        if self.rule.of_truth:
            return self.rule(v)[None]
        size = max(1, NUMBERS_AT_ONCE // (self.noise.size or 1))
        chances = self._in_ranges if self.closed_form else self._by_draws
        return np.concatenate([chances(v[i : i + size]) for i in range(0, len(v), size)], axis=1)

    def _in_ranges(self, v: Array) -> Array:
        """Probability that Gaussian noise leaves a value in all ranges."""
        found = np.ones((len(self.sd), len(v)))
        for d, each in self.rule.ranges:
            size = np.maximum(self.sd[:, d, None], 1e-300)
            with np.errstate(over="ignore"):  # exact values are inside, or are not
                low, high = ((end - v[:, d]) / size for end in (each.lower, each.upper))
            found *= ndtr(high) - ndtr(low)
        return found

    def _by_draws(self, v: Array) -> Array:
        """Average over all draws at once: a user's function is called seldom."""
        if self.rule.errors is None:
            sd, noise = self.sd[:, None, None], self.noise[:, :, None]
        else:
            sd = said_errors(self.rule, v)
            noise = self.white[:, :, None] * sd
        w = v + noise
        rows = np.broadcast_to(self.rows[:, None, None], w.shape[:-1])
        sd = np.broadcast_to(sd, w.shape)
        dim = v.shape[1]
        seen = self.rule(w.reshape(-1, dim), rows.ravel(), sd.reshape(-1, dim))
        return np.einsum("lj,ljn->ln", self.shares, seen.reshape(w.shape[:-1]))


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


def _standing_for_all(data: Observations, most: int, columns: list[int]) -> tuple[IntArray, Array]:
    """Choose rows whose laws stand for all, by the size of the noise in some columns, with shares.

    Few different sizes are all there; of many, each row stands for neighbours in their order.
    """
    sizes = _sd(data.noise)[:, columns].prod(1)
    weights = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
    different, first, which = np.unique(sizes, return_index=True, return_inverse=True)
    if most == 1 or len(different) > most:
        order = np.argsort(sizes, kind="stable")
        parts = np.array_split(order, min(most, len(order)))
        rows = np.array([part[len(part) // 2] for part in parts])
        counts = np.array([weights[part].sum() for part in parts])
    else:
        rows, counts = first, np.bincount(which, weights=weights)
    return rows.astype(np.int64), counts / counts.sum()


def _sd(noise: Noise) -> Array:
    return np.sqrt(np.broadcast_to(np.asarray(noise.variance()), (len(noise), noise.dim)))


def seen_rows(data: Observations, chances: Callable[[Array], Array]) -> Observations:
    """Return rows as Gaussians: mean and covariance of each one's likelihood, if it was seen."""
    half = ndtri(qmc.Sobol(data.dim, seed=0).random(POINTS // 2).clip(1e-9, 1 - 1e-9))
    white = np.concatenate([half, -half])
    size = max(1, 2 * NUMBERS_AT_ONCE // (POINTS * data.dim))
    # Rows that are exact get a width, too, which is small compared with the data's.
    spread = data.measured().var(0) + np.asarray(data.noise.variance()).mean(0)
    least = np.diag(np.maximum(LEAST_WIDTH**2 * spread, 1e-300))
    pieces = [_leaning(piece, chances, white, least) for piece in data.chunks(size)]
    means, covariances = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return replace(data, w=means, noise=gaussian(covariance=covariances))


def _leaning(
    data: Observations, chances: Callable[[Array], Array], white: Array, least: Array
) -> tuple[Array, Array]:
    """Mean ``(N, D)`` and covariance ``(N, D, D)`` of ``p(w - v) / F(v)`` over ``v``."""
    count, dim = len(data), data.dim
    centre = data.measured() - np.asarray(data.noise.mean())
    covariance = np.broadcast_to(np.asarray(data.noise.covariance()), (count, dim, dim))
    own = psd_cholesky(covariance + least)
    mean, factor = centre, own
    for _ in range(ROUNDS):
        v = mean[:, None] + WIDER_POINTS * np.einsum("nij,pj->npi", factor, white)
        residual = np.linalg.solve(own, np.swapaxes(v - centre[:, None], 1, 2))
        chance = chances(v.reshape(-1, dim)).reshape(v.shape[:2])
        logs = 0.5 * np.square(white).sum(1) - 0.5 * np.square(residual).sum(1)
        logs = logs - np.log(np.maximum(chance, LEAST_CHANCE))
        share = np.exp(logs - logs.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        mean = np.einsum("np,npi->ni", share, v)
        offset = v - mean[:, None]
        covariance = np.einsum("np,npi,npj->nij", share, offset, offset)
        factor = psd_cholesky(covariance + least)
    return mean, covariance
