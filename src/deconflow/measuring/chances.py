r"""The chance of a truth to be seen, over the laws of noise that rows have.

.. math:: F_i(v) = \int f(v + n) \, p_i(n) \, dn

with the probability ``f`` to be seen and the law :math:`p_i` of a row, or the mean of that over
rows. Where the truth decides, it is ``f(v)``.
"""

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from deconflow._types import Array, IntArray
from deconflow.measuring.selection import Rule
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng

#: Rows whose laws stand for all, where there is a closed form and where there are draws; and draws
#: of each of these, or of the only one.
LAWS, LAWS_WITH_DRAWS, DRAWS_PER_LAW, DRAWS_OF_ONE = 256, 128, 8, 128
#: Where there is no closed form: draws lie wider than the noise and are weighed, so that
#: a chance is small, not zero, where only large noise lets a truth be seen.
WIDER = 1.6
NUMBERS_AT_ONCE = 2_000_000


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
        size = max(1, NUMBERS_AT_ONCE // (self.noise.size or 1))
        parts = [self._of(v[i : i + size]) for i in range(0, len(v), size)]
        return np.concatenate(parts, axis=1)

    def _of(self, v: Array) -> Array:
        if self.rule.of_truth:
            return self.rule(v)[None]
        return self._in_ranges(v) if self.closed_form else self._by_draws(v)

    def _in_ranges(self, v: Array) -> Array:
        """Probability that Gaussian noise leaves a value in all ranges."""
        found = np.ones((len(self.sd), len(v)))
        for d, each in self.rule.ranges:
            size = np.maximum(self.sd[:, d, None], 1e-300)
            with np.errstate(over="ignore"):  # exact values are inside, or are not
                below = [
                    ndtr((end - v[:, d]) / size) if np.isfinite(end) else float(end > 0)
                    for end in (each.lower, each.upper)
                ]
            found *= below[1] - below[0]
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
            w = v + self.white[:, :, None] * said
        rows = np.broadcast_to(self.rows[:, None, None], shape[:-1])
        dim = v.shape[1]
        seen = self.rule(w.reshape(-1, dim), rows.ravel(), sd.reshape(-1, dim))
        return np.einsum("lj,ljn->ln", self.shares, seen.reshape(shape[:-1]))


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
