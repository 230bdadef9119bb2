r"""The rows that checks look at, with simulated companions: sums over both are compared.

Any function of a row whose simulated companions come from the fitted model would have the same mean
on both, if the model were not fitted to these very rows. A fit by maximum likelihood removes what
goes together with the scores (derivatives of ``log p(w)`` by the parameters): to first order,

.. math:: \sum_i f_i(\hat\theta) \approx \sum_i e_i, \quad e = f - \mathrm{Cov}(f, s)
          \mathrm{Cov}(s, s)^{-1} s,

and :math:`\sum_i e_i` does not change with the parameters, so that it need not matter how exactly
they were fitted (a C(alpha) test). All covariances are those of simulated rows, given the noise of
each row.

The scores are those of each row under a Gaussian mixture, the lens. With
:math:`T = R V R^T + S`, :math:`t = T^{-1} (w - R m - b)` and the probability :math:`q` of each
component (and part of the noise) given the row, the derivatives of :math:`\log p(w)` are

.. math:: \frac{\partial}{\partial m} = q R^T t, \quad
          \frac{\partial}{\partial V} = \tfrac12 q R^T (t t^T - T^{-1}) R, \quad
          \frac{\partial}{\partial S} = \tfrac12 q (t t^T - T^{-1}).

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
from scipy.special import eval_legendre, ndtr
from scipy.stats import chi2, norm

from deconflow._types import Array, BoolArray, IntArray
from deconflow.mixtures import LOG_2PI, GaussianMixture
from deconflow.noise import GaussianNoise, JointMixture, Noise, gaussian
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser
from deconflow.xd import (
    COMPONENTS_TO_TRY,
    FitSettings,
    PreparedData,
    Stopping,
    n_parameters,
    row_weights,
)

#: Gaussians that noise is seen as at most: each costs as much as a component.
MOST_PARTS = 8
#: Variance of a missing value, in units of the data's: so large that it says nothing.
IDLE = 1e12


@dataclass(frozen=True)
class Rows:
    """Rows in units in which they spread by about one, each beside others with the same noise.

    Attributes
    ----------
    w : array
        ``(N, C, M)`` values; a row and its ``C - 1`` companions have the same noise. Zero where
        missing.
    seen : array
        ``(N, M)``: which values are measured.
    shares, shifts, covariances : array
        ``(N or 1, J)``, ``(N or 1, J, M)`` and ``(N or 1, J, M, M)``: the noise as a mixture of
        Gaussians.
    projection : array or None
        ``(N, M, D)``; None for the identity.
    """

    w: Array
    seen: Array
    shares: Array
    shifts: Array
    covariances: Array
    projection: Array | None

    @classmethod
    def of(cls, data: Observations, values: list[Array]) -> "Rows":
        """Put measured values ``(N, M)``, several per row, beside the noise of the rows."""
        parts = data.noise.as_mixture()
        if parts.n_parts > MOST_PARTS:  # companions are drawn by the law itself
            moments = data.noise.mean(), data.noise.covariance()
            mean, covariance = (np.asarray(x, np.float64)[:, None] for x in moments)
            parts = JointMixture(np.ones((1, 1)), mean, covariance)
        parts = parts.take()
        seen, dim = ~np.isnan(data.measured()), data.dim
        covariances = parts.covariances
        if parts.diagonal:
            covariances = covariances[..., None] * np.eye(dim)
        if data.observed is not None:
            both = (seen[:, :, None] & seen[:, None, :])[:, None]
            idle = np.where(seen, 0.0, IDLE)[:, None, :, None] * np.eye(dim)
            covariances = np.where(both, covariances, 0.0) + idle
        shifts = np.zeros((1, parts.n_parts, dim)) if parts.means is None else parts.means
        w = np.where(seen[:, None], np.stack(values, axis=1), 0.0)
        return cls(w, seen, parts.weights, shifts, covariances, data.projection)

    @property
    def sd(self) -> Array:
        """Standard deviations ``(N or 1, M)`` of the noise; large where a value is missing."""
        mean = np.einsum("nj,njm->nm", self.shares, self.shifts)
        second = np.diagonal(self.covariances, axis1=2, axis2=3) + np.square(self.shifts)
        return np.sqrt(np.einsum("nj,njm->nm", self.shares, second) - np.square(mean))

    def measured(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and covariance of a component, as the rows see it."""
        if self.projection is None:
            return mean, covariance
        return (self.projection @ mean)[:, None], self.projection @ covariance @ self.projection.mT

    def stretched(self, factors: Array) -> "Rows":
        """Return the same values with noise of other sizes, by a factor per column."""
        covariances = self.covariances * factors[:, None] * factors
        return replace(self, shifts=self.shifts * factors, covariances=covariances)

    def swapped(self, a: int, b: int, scale: Array) -> "Rows":
        """Return the same values with the noise of two columns exchanged.

        ``scale`` are the columns' units, in which the exchange is made.
        """
        order = np.arange(self.w.shape[2])
        order[[a, b]] = b, a
        covariances = self.covariances[..., order, :][..., order]
        exchanged = replace(self, shifts=self.shifts[..., order], covariances=covariances)
        return exchanged.stretched(scale[order] / scale)


@dataclass(frozen=True)
class View:
    """What a mixture sees of rows; the second axis is that of the companions of a row.

    Attributes
    ----------
    log_p : array
        ``(N, C)`` log-likelihoods.
    scores : array
        ``(N, C, P)`` derivatives by the mixture's weights, means and covariances.
    by_covariance : array
        ``(N, C, M, M)``: twice the derivative by the covariance of the noise.
    by_size : array
        ``(N, C, M)``: the derivative by the logarithm of a factor on the noise of each column.
    skewness : array
        ``(N, C, M)``: expected third Hermite polynomial of the noise, in units of its size.
    """

    log_p: Array
    scores: Array
    by_covariance: Array
    by_size: Array
    skewness: Array


def log_p(mixture: GaussianMixture, rows: Rows) -> Array:
    """Log-likelihoods ``(N, C)``, but for a constant of the rows' missing values."""
    return np.logaddexp.reduce([log_joint for *_, log_joint in _parts(mixture, rows)])


def view(mixture: GaussianMixture, rows: Rows) -> View:
    """Look at rows."""
    parts, R = list(_parts(mixture, rows)), rows.projection
    whole = np.logaddexp.reduce([log_joint for *_, log_joint in parts])
    shape, size, latent = rows.w.shape, mixture.n_components, mixture.dim
    lower = np.tril_indices(latent)
    of_weights, of_means, of_covariances = (
        np.zeros((*shape[:2], size, m)) for m in (1, latent, len(lower[0]))
    )
    by_covariance, by_size = np.zeros((*shape, shape[2])), np.zeros(shape)
    skewness, sd = np.zeros(shape), np.where(rows.sd > 0, rows.sd, 1.0)  # exact values have no skew
    for k, j, residual, precision, log_joint in parts:
        q, t = np.exp(log_joint - whole), residual @ precision
        g = t[..., :, None] * t[..., None, :] - precision[:, None]
        shift, covariance = rows.shifts[:, None, j], rows.covariances[:, j]
        left = covariance - covariance @ precision @ covariance
        variance = (np.diagonal(left, axis1=1, axis2=2) / np.square(sd))[:, None]
        covariance = np.broadcast_to(covariance, precision.shape)
        by_covariance += q[..., None, None] * g
        # A factor on the noise moves the mean of a part, too.
        by_size += q[..., None] * (np.einsum("ncij,nij->nci", g, covariance) + t * shift)
        mean = (np.einsum("nij,ncj->nci", covariance, t) + shift) / sd[:, None]
        skewness += q[..., None] * (mean**3 + 3 * mean * (variance - 1))
        if R is not None:
            t, g = np.einsum("nmd,ncm->ncd", R, t), np.einsum("nmd,ncmk,nke->ncde", R, g, R)
        of_weights[:, :, k, 0] += q
        of_means[:, :, k] += q[..., None] * t
        of_covariances[:, :, k] += q[..., None] * g[..., lower[0], lower[1]]
    scores = [each.reshape(*whole.shape, -1) for each in (of_weights, of_means, of_covariances)]
    return View(whole, np.concatenate(scores, axis=-1), by_covariance, by_size, skewness)


def _parts(mixture: GaussianMixture, rows: Rows) -> Iterator[tuple[int, int, Array, Array, Array]]:
    """Yield a Gaussian per row for each component with each part of the noise.

    These are the numbers of both, residuals, precisions, and logarithms of joint densities.
    """
    with np.errstate(divide="ignore"):
        log_shares = np.log(rows.shares)
    for k in np.flatnonzero(mixture.weights > 0).tolist():
        mean, covariance = rows.measured(mixture.means[k], mixture.covariances[k])
        for j in range(rows.shares.shape[1]):
            total = np.broadcast_to(
                covariance + rows.covariances[:, j], (len(rows.w), *rows.covariances.shape[2:])
            )
            precision = np.asarray(np.linalg.inv(total), np.float64)
            residual = np.where(rows.seen[:, None], rows.w - mean - rows.shifts[:, None, j], 0.0)
            distance = np.einsum("nci,ncj,nij->nc", residual, residual, precision, optimize=True)
            constant = np.linalg.slogdet(total)[1] + rows.w.shape[2] * LOG_2PI
            log_joint = log_shares[:, None, j] - 0.5 * (distance + constant[:, None])
            yield k, j, residual, precision, np.log(mixture.weights[k]) + log_joint


def below(mixture: GaussianMixture, rows: Rows) -> Array:
    """Probability ``(N, C, M)`` of a smaller value in each column; a half where it is missing."""
    answer = np.zeros(rows.w.shape)
    for k in range(mixture.n_components):
        mean, covariance = rows.measured(mixture.means[k], mixture.covariances[k])
        spread = np.diagonal(covariance, axis1=-2, axis2=-1)
        for j in range(rows.shares.shape[1]):
            variance = spread + np.diagonal(rows.covariances[:, j], axis1=1, axis2=2)
            white = (rows.w - mean - rows.shifts[:, None, j]) / np.sqrt(variance)[:, None]
            answer += mixture.weights[k] * rows.shares[:, None, j, None] * ndtr(white)
    return np.where(rows.seen[:, None], answer, 0.5)


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
#: Errors whose logarithms spread by less are all alike.
ALIKE = 0.05


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
    """

    excess: Array
    covariance: Array
    left: Array

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
        self._at_rows, companions = self._weighed(scores)
        gram = companions.T @ companions
        unit = np.sqrt(np.diag(gram))
        unit[unit == 0] = 1.0
        values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
        used = values > SMALLEST_DIRECTION * max(values[-1], 1e-300)
        self._white = vectors[:, used] / np.sqrt(values[used]) / unit[:, None]
        self._directions = companions @ self._white

    def sums(self, functions: Array) -> Sums:
        """Compare functions ``(N, C, F)`` of the rows."""
        raw, companions = self._weighed(functions)
        slopes = self._directions.T @ companions
        left = companions - self._directions @ slopes
        # The mean of the companions has an error of its own.
        draws = functions.shape[1] - 1
        blur = (1 + 1 / draws) / (draws - 1)
        share = np.square(left).sum(0) / np.maximum(np.square(companions).sum(0), 1e-300)
        return Sums(raw - self._at_rows @ self._white @ slopes, blur * left.T @ left, share)

    def _weighed(self, values: Array) -> tuple[Array, Array]:
        """Return sums over the rows, and the companions, each by its row's weight.

        The latter are ``(N (C - 1), F)``. The mean of each row's companions is taken off both.
        """
        inside = values - values[:, 1:].mean(1, keepdims=True)
        companions = (inside[:, 1:] * self.weights[:, None, None]).reshape(-1, values.shape[2])
        return np.einsum("n,nf->f", self.weights, inside[:, 0]), companions


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
        columns = [sizes[seen] for sizes, seen in zip(sd.T, self.rows.seen.T, strict=True)]
        # Errors differ if some are zero and others not, too.
        return np.array([x.any() and (not x.all() or np.log(x).std() > ALIKE) for x in columns])


def make_table(
    data: Observations,
    sample: Sampler,
    names: list[str],
    working: GaussianMixture | None,
    seed: int,
) -> Table:
    """Choose rows, simulate companions, and fit the mixture that looks at them if there is none.

    ``working`` and what ``sample`` draws are in the units of ``data``.
    """
    rng = np.random.RandomState(seed)
    data = data[chosen_rows(data, rng)]
    units = Standardiser.powers_of_two(data)
    ready = units.observations(data)
    mixture = fitting_lens(
        ready, None if working is None else units.mixture_to_standard(working), rng
    )
    parts = min(data.noise.as_mixture().n_parts, MOST_PARTS) * mixture.n_components
    most = MOST_NUMBERS / max(n_parameters(mixture.n_components, mixture.dim), parts)
    draws = int(np.clip(min(MOST_VALUES, most) / len(data), FEWEST_DRAWS, MOST_DRAWS))
    if len(data) * draws > most:
        kept = np.sort(rng.permutation(len(data))[: max(1, int(most / draws))])
        ready, data = ready[kept], data[kept]
    with isolated_rng(seed):
        v = units.to_standard(sample(draws * len(data), seed)).reshape(draws, len(data), -1)
        companions = [np.asarray(ready.remeasure(each).w) for each in v]
    return Table(
        ready, Rows.of(ready, [ready.measured(), *companions]), mixture, names, units, data
    )


def chosen_rows(data: Observations, rng: np.random.RandomState) -> IntArray:
    """Return some rows at random, in their order: one of each group, since others say the same."""
    order = rng.permutation(len(data))
    if data.groups is not None:
        order = rng.permutation(order[np.unique(data.groups[order], return_index=True)[1]])
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
        settings = FitSettings(
            count, floor=FLOOR, stopping=Stopping(tol=1e-5, max_iter=100, accelerate=True)
        )
        result = prepared.fit_best(settings, 1 if count == 1 else STARTS, rng)
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
