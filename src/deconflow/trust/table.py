r"""The rows that checks look at, with simulated companions: sums over both are compared.

Any function of a row whose simulated companions come from the fitted model would have the same mean
on both, if the model were not fitted to these very rows. A fit by maximum likelihood removes what
goes together with the scores (derivatives of ``log p(w)`` by the parameters): to first order,

.. math:: \sum_i f_i(\hat\theta) \approx \sum_i e_i, \quad e = f - \mathrm{Cov}(f, s)
          \mathrm{Cov}(s, s)^{-1} s,

and :math:`\sum_i e_i` does not change with the parameters, so that it need not matter how exactly
they were fitted (a C(alpha) test). All covariances are those of simulated rows, given the noise of
each row.

References
----------
Neyman (1959), "Optimal asymptotic tests of composite statistical hypotheses"; Durbin (1973), "Weak
convergence of the sample distribution function when parameters are estimated".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import eval_legendre
from scipy.stats import chi2, norm

from deconflow._types import Array, BoolArray, IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise, Noise, gaussian
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser
from deconflow.trust.lens import MOST_PARTS, Rows, View, below, view
from deconflow.xd import (
    COMPONENTS_TO_TRY,
    FitSettings,
    PreparedData,
    Stopping,
    n_parameters,
    row_weights,
)

#: Draws true values ``(n, D)``, given ``n`` and a seed.
Sampler = Callable[[int, int], Array]
#: Gives ``log p(w)`` of each row.
LogLikelihood = Callable[[Observations], Array]

#: True values drawn at a time; memory is bounded by that.
ROWS_AT_ONCE = 100_000
#: Rows that are looked at, and simulated ones in all.
MOST_ROWS, MOST_VALUES = 4000, 30_000
FEWEST_DRAWS, MOST_DRAWS = 6, 20
#: Of the largest array.
MOST_NUMBERS = 3e7
#: The mixture that looks at rows has at most so many parameters: others cost what they tell.
ROWS_PER_PARAMETER = 8
FLOOR, STARTS, PATIENCE = 0.1, 2, 2
#: Directions in which the scores vary by less than this share are none.
SMALLEST_DIRECTION = 1e-8
#: With less of its variance left, a function says nothing that the fit has not taken up.
UNTOUCHED = 1e-6
#: Directions of several functions that keep less than this share of their variance are left out:
#: first-order theory is no guide there.
TELLING = 0.02

#: Polynomials of a probability: shift, spread, skewness and finer shape (Neyman's smooth test).
DEGREES = (1, 2, 3, 4, 5)
LARGEST_LOG_RATIO = 50.0
#: What a single row contributes to a sum is at most this many of its standard deviations, so that
#: none decides a test; found in so many rounds.
MOST_OF_ONE, BOUNDING_ROUNDS = 0.5, 5


@dataclass(frozen=True)
class Sums:
    """Sums of ``F`` functions over rows, less what simulated rows give.

    Attributes
    ----------
    excess : array
        ``(F,)``: the sums, with the fit allowed for.
    covariance : array
        ``(F, F)``: theirs, if the model is right.
    left : array
        ``(F,)``: the share of the variance that the fit has not taken up.
    unbounded : array
        ``(F,)``: excess in standard deviations, had a row any say.
    """

    excess: Array
    covariance: Array
    left: Array
    unbounded: Array

    @property
    def z(self) -> Array:
        """Excess in standard deviations; NaN where the fit leaves nothing to look at."""
        known = self.left > UNTOUCHED
        variance = np.where(known, np.diag(self.covariance), 1.0)
        return np.where(known, self.excess / np.sqrt(variance), np.nan)

    def together(self, slack: float = 0.0) -> tuple[float, float]:
        """Return the p-value of all functions at once, and half their chi-square statistic.

        An excess of about ``slack`` counts as none: no model is right to the last row.
        """
        values, vectors = np.linalg.eigh(self.covariance)
        full = np.diag(self.covariance) / np.maximum(self.left, 1e-300)
        used = values > TELLING * full.mean()
        if not used.any():
            return 1.0, 0.0
        squares = np.square(vectors[:, used].T @ self.excess)
        statistic = float((squares / (values[used] + slack**2)).sum())
        return float(chi2.sf(statistic, used.sum())), 0.5 * statistic


class Comparison:
    """Rows beside their simulated companions; the first of each ``C`` values is the real one."""

    def __init__(self, scores: Array, weights: Array) -> None:
        self.weights = weights
        self._at_rows, companions, _ = self._weighed(scores)
        gram = companions.T @ companions
        unit = np.sqrt(np.diag(gram))
        unit[unit == 0] = 1.0
        values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
        used = values > SMALLEST_DIRECTION * max(values[-1], 1e-300)
        self._white = vectors[:, used] / np.sqrt(values[used]) / unit[:, None]
        self._directions = companions @ self._white

    def sums(self, functions: Array) -> Sums:
        """Compare functions ``(N, C, F)`` of the rows."""
        raw, companions, all_of_it = self._weighed(functions)
        slopes = self._directions.T @ companions
        left = companions - self._directions @ slopes
        # The mean of the companions has an error of its own.
        draws = functions.shape[1] - 1
        blur = (1 + 1 / draws) / (draws - 1)
        full = np.square(companions).sum(0)
        share = np.square(left).sum(0) / np.maximum(full, 1e-300)
        taken, covariance = self._at_rows @ self._white @ slopes, blur * left.T @ left
        spread = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
        return Sums(raw - taken, covariance, share, (all_of_it - taken) / spread)

    def _weighed(self, values: Array) -> tuple[Array, Array, Array]:
        """Return sums over the rows, and the companions, each by its row's weight.

        The latter are ``(N (C - 1), F)``. The mean of each row's companions is taken off both, and
        no row has more than :data:`MOST_OF_ONE`; last are the sums without this.
        """
        centre = np.average(values[:, 1:].mean(1), axis=0, weights=self.weights)
        values = (values - centre) * self.weights[:, None, None]
        most = np.full(values.shape[2], np.inf)
        for _ in range(BOUNDING_ROUNDS):
            held = np.clip(values, -most, most)
            inside = held - held[:, 1:].mean(1, keepdims=True)
            most = MOST_OF_ONE * np.sqrt(np.square(inside[:, 1:]).sum(0).mean(0))
        all_of_it = values[:, 0].sum(0) - values[:, 1:].mean(1).sum(0)
        return inside[:, 0].sum(0), inside[:, 1:].reshape(-1, values.shape[2]), all_of_it


@dataclass(frozen=True)
class Table:
    """Rows in standard units, their companions, and the mixture that looks at them.

    Attributes
    ----------
    data : Observations
        The rows that are looked at.
    rows : Rows
        The same, each beside its companions.
    mixture : GaussianMixture
        The lens; it need not be the model.
    names : list of str
        Names of the measured columns.
    units : Standardiser
        The change to standard units.
    original : Observations
        The rows in the units of the data.
    """

    data: Observations
    rows: Rows
    mixture: GaussianMixture
    names: list[str]
    units: Standardiser
    original: Observations

    @property
    def in_units(self) -> GaussianMixture:
        """The lens, in the units of the data."""
        return self.units.mixture_from_standard(self.mixture)

    def under(self, noise: Noise) -> Observations:
        """Return the rows with other noise."""
        return replace(self.data, noise=noise)

    @property
    def weights(self) -> Array:
        """Row weights."""
        return row_weights(self.data)

    @cached_property
    def view(self) -> View:
        """What the mixture sees."""
        return view(self.mixture, self.rows)

    @cached_property
    def below(self) -> Array:
        """Probability ``(N, C, M)`` of a smaller value in each column."""
        return below(self.mixture, self.rows)

    @cached_property
    def comparison(self) -> Comparison:
        """Real rows beside simulated ones."""
        return Comparison(self.view.scores, self.weights)

    def sums(self, functions: list[Array]) -> Sums:
        """Compare functions ``(N, C)`` of the rows."""
        return self.comparison.sums(np.stack(functions, axis=-1))

    @cached_property
    def differing(self) -> BoolArray:
        """Whether the errors of each column differ from row to row, by more than a few percent."""
        sd = np.broadcast_to(self.rows.sd, self.rows.seen.shape)
        columns = zip(sd.T, self.rows.seen.T, strict=True)
        return np.array([_spread(sizes[seen]) > ALIKE for sizes, seen in columns])


#: Errors whose logarithms spread by less are all alike.
ALIKE = 0.05


def _spread(sizes: Array) -> float:
    """Standard deviation of the logarithms; infinite if some are zero and others not."""
    if not sizes.any():
        return 0.0
    return float(np.log(sizes).std()) if sizes.all() else np.inf


def make_table(
    data: Observations,
    sample: Sampler | None,
    names: list[str],
    working: GaussianMixture | None,
    seed: int,
) -> Table:
    """Choose rows, simulate companions, and fit the mixture that looks at them if there is none.

    ``working`` and what ``sample`` draws are in the units of ``data``; None lets that mixture draw.
    """
    rng = np.random.RandomState(seed)
    data = data[chosen_rows(data, rng)]
    units = Standardiser.powers_of_two(data)
    ready = units.observations(data)
    given = None if working is None else units.mixture_to_standard(working)
    mixture = fitting_lens(ready, given, rng)
    parts = min(data.noise.as_mixture().n_parts, MOST_PARTS) * mixture.n_components
    most = MOST_NUMBERS / max(n_parameters(mixture.n_components, mixture.dim), parts)
    draws = int(np.clip(min(MOST_VALUES, most) / len(data), FEWEST_DRAWS, MOST_DRAWS))
    if len(data) * draws > most:
        kept = np.sort(rng.permutation(len(data))[: max(1, int(most / draws))])
        ready, data = ready[kept], data[kept]
    with isolated_rng(seed):
        drawn = sample or units.mixture_from_standard(mixture).sample
        v = units.to_standard(drawn(draws * len(data), seed)).reshape(draws, len(data), -1)
        companions = [np.asarray(ready.remeasure(each).w) for each in v]
    rows = Rows.of(ready, [ready.measured(), *companions])
    return Table(ready, rows, mixture, names, units, data)


def chosen_rows(data: Observations, rng: np.random.RandomState) -> IntArray:
    """Return some rows at random, in their order: one of each group, since others say the same."""
    order = rng.permutation(len(data))
    if data.groups is not None:
        firsts = np.unique(data.groups[order], return_index=True)[1]
        order = rng.permutation(order[firsts])
    return np.sort(order[:MOST_ROWS])


def weight_inflation(data: Observations) -> float:
    """Return by how much row weights raise what a parameter gains by chance: one without any."""
    weights = row_weights(data)
    return float(np.square(weights).sum() / weights.sum())


def fitting_lens(
    data: Observations, mixture: GaussianMixture | None, rng: np.random.RandomState
) -> GaussianMixture:
    """Return a mixture of few enough parameters for the rows; by AIC, if none is given.

    AIC rather than BIC: a density too simple for the rows would look like wrong noise.
    """
    most = len(data) / ROWS_PER_PARAMETER
    if mixture is not None and n_parameters(mixture.n_components, mixture.dim) <= most:
        return mixture
    prepared = PreparedData(data)
    tried: list[tuple[float, GaussianMixture]] = []
    for count in COMPONENTS_TO_TRY:
        parameters = n_parameters(count, data.latent_dim)
        if tried and parameters > most:
            break
        stopping = Stopping(tol=1e-5, max_iter=100, accelerate=True)
        settings = FitSettings(count, floor=FLOOR, stopping=stopping)
        result = prepared.fit_from([None] * (1 if count == 1 else STARTS), settings, rng)[0]
        value = len(data) * result.log_likelihood - parameters * weight_inflation(data)
        tried.append((value, result.mixture))
        best = max(range(len(tried)), key=lambda i: tried[i][0])
        if best < len(tried) - PATIENCE:
            break
    return tried[best][1]


def restricted(law: Noise, like: Noise) -> Noise:
    """Return a law for the rows and the observed values of another."""
    law = law.bind(len(like))
    return law if like.observed is None else law.restrict(like.observed)


def with_covariance(noise: Noise, covariance: Array) -> Noise:
    """Return Gaussian noise of another covariance, or raise if this noise is not Gaussian."""
    if not isinstance(noise, GaussianNoise):
        raise ValueError(f"Expected Gaussian noise to change its covariance; got {noise!r}.")
    return restricted(gaussian(covariance=covariance[0] if noise.shared else covariance), noise)


def simulate_like(
    sample: Sampler, data: Observations, seed: int = 0, times: int = 1
) -> Iterator[Array]:
    r"""Yield measurements ``(N, M)`` with the noise of these rows, missing where these are.

    .. math:: w'_i = R_i v'_i + n'_i, \quad v'_i \sim p(v), \quad n'_i \text{ as of row } i
    """
    rng, missing = np.random.default_rng(seed), np.isnan(data.measured())
    at_once = max(1, ROWS_AT_ONCE // len(data))
    for done in range(0, times, at_once):
        count = min(at_once, times - done)
        of_values, of_noise = rng.integers(2**31, size=2).tolist()  # to be independent
        v = sample(count * len(data), of_values).reshape(count, len(data), -1)
        with isolated_rng(of_noise):
            simulated = [np.asarray(data.remeasure(each).w) for each in v]
        yield from (np.where(missing, np.nan, each) for each in simulated)


def predictive_ranks(
    sample: Sampler, data: Observations, n_draws: int = 99, seed: int = 0
) -> Array:
    """Share of simulated measurements below each real one, ``(N, M)``, NaN where missing.

    Every row is compared with ``n_draws`` measurements of its own, with its own noise. If the model
    is right these shares are independent from row to row, and uniform between 0 and 1. Equal
    values, as of counts, are in a random order.
    """
    w = data.measured()
    below, equal = np.zeros(w.shape), np.zeros(w.shape)
    for simulated in simulate_like(sample, data, seed, n_draws):
        below += simulated < w
        equal += simulated == w
    u = np.random.default_rng([seed, 1]).uniform(size=w.shape)
    return np.where(np.isnan(w), np.nan, (below + u * (1 + equal)) / (n_draws + 1))


def two_sided(z: ArrayLike) -> Array:
    """P-values of standard normal numbers that may err to both sides."""
    return 2 * norm.sf(np.abs(z))


def one_sided(z: ArrayLike) -> Array:
    """P-values of standard normal numbers that would be large."""
    return norm.sf(z)


def of_smallest(p_values: ArrayLike, count: int | None = None) -> float:
    """P-value of the smallest of several (Sidak), or of ``count`` of which these are some."""
    count, smallest = count or np.size(p_values), np.min(p_values)
    return float(-np.expm1(count * np.log1p(-smallest))) if smallest < 1 else 1.0


def shape(degree: int, probability: Array) -> Array:
    """Legendre polynomial of a probability, with variance one where that is uniform."""
    return np.sqrt(2 * degree + 1) * eval_legendre(degree, 2 * probability - 1)


def ratio(log_ratio: Array) -> Array:
    """Return a ratio of likelihoods that is neither infinite nor zero."""
    return np.exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
