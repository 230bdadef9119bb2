r"""Gaussian mixtures in closed form, one or many at once, and Gaussians cut to a box.

Draws within a box follow Genz: with the Cholesky factor :math:`C = L L^T`, bounded dimensions
first, :math:`v = m + L y`, each :math:`y_j` is drawn from a standard normal law cut to what the
ones before it leave, and the draw's weight is the product of what these cuts leave of the laws.
With one bounded dimension all weights of a Gaussian are equal: draws are exact then, and so are
mass and moments, in closed form.

References
----------
Genz (1992), "Numerical computation of multivariate normal probabilities", Journal of Computational
and Graphical Statistics 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, ndtri_exp
from scipy.stats import qmc
from sklearn.utils import check_random_state

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import (
    as_floats,
    check_integer,
    check_number,
    check_seed,
    refuse_extremes,
    refuse_if,
)
from deconflow.noise import as_noise
from deconflow.randomness import RandomState
from deconflow.saving import refuse

LOG_2PI = float(np.log(2 * np.pi))
#: How far sums of saved weights may be from one, and saved covariances from symmetric ones.
CLOSE = 1e-6
#: Halvings of the interval that holds a quantile: to the last digit of a double.
HALVINGS = 60
#: Quasi-random points for the mass of a box in several dimensions; and parts of them, by which its
#: error is told.
POINTS, REPEATS = 64, 4
TINY = 1e-300
#: Standard deviations beyond which moments of a tail are those of an exponential distribution.
FAR = 30.0


@dataclass(frozen=True, repr=False)
class GaussianMixture:
    r"""The density :math:`p(v) = \sum_k \pi_k \, N(v; m_k, V_k)`, or one per row.

    Leading axes ``B`` are those of a batch: none for one mixture, ``(N,)`` for a mixture per row.

    Attributes
    ----------
    weights, means, covariances : array
        ``(*B, K)``, ``(*B, K, D)`` and ``(*B, K, D, D)``.

    Examples
    --------
    >>> mixture = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    >>> mixture.log_prob(np.zeros((1, 2))).round(4)
    array([-1.8379])
    >>> mixture.quantile(0.975).round(2)
    array([1.96, 1.96])
    """

    weights: Array
    means: Array
    covariances: Array

    def validate(self) -> None:
        """Raise unless this is one mixture: of what a file says that it is."""
        K, D = self.weights.size, self.means.shape[-1]
        fits = self.means.shape == (K, D) and self.covariances.shape == (K, D, D)
        refuse("mixture", not fits, "of weights, means and covariances that fit together")
        positive = (self.weights >= 0).all() and abs(self.weights.sum() - 1) < CLOSE
        refuse("weights", not positive, "positive with sum one")
        refuse("means", not np.isfinite(self.means).all(), "finite")
        size = np.abs(self.covariances).max(axis=(1, 2), initial=0.0)
        uneven = np.abs(self.covariances - self.covariances.swapaxes(1, 2)).max((1, 2), initial=0.0)
        refuse("covariances", not (uneven <= CLOSE * size).all(), "symmetric")
        try:
            np.linalg.cholesky(self.covariances)
        except np.linalg.LinAlgError:
            refuse("covariances", True, "positive")

    def __repr__(self) -> str:
        rows = f"{self.batch_shape[0]} rows, " if self.batch_shape else ""
        return f"GaussianMixture({rows}{self.n_components} components, {self.dim} dimensions)"

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape ``B`` of the batch; empty for a single mixture."""
        return self.weights.shape[:-1]

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.weights.shape[-1]

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.means.shape[-1]

    def __getitem__(self, rows: Any) -> "GaussianMixture":
        """Take some mixtures of a batch."""
        if not self.batch_shape:
            raise TypeError("Expected a mixture per row to take rows of; got a single mixture.")
        return GaussianMixture(self.weights[rows], self.means[rows], self.covariances[rows])

    @property
    def mean(self) -> Array:
        """Means ``(*B, D)``."""
        first = self.means[..., 0, :]  # weights sum to one but for rounding, which it keeps out
        return first + np.einsum("...k,...kd->...d", self.weights, self.means - first[..., None, :])

    @property
    def covariance(self) -> Array:
        """Covariances ``(*B, D, D)``."""
        offset = self.means - self.mean[..., None, :]
        within = np.einsum("...k,...kij->...ij", self.weights, self.covariances)
        return within + np.einsum("...k,...ki,...kj->...ij", self.weights, offset, offset)

    @property
    def sd(self) -> Array:
        """Standard deviations ``(*B, D)``."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0))

    def log_joint(self, v: Array) -> Array:
        """Log of ``pi_k N(v; m_k, V_k)``, ``(..., *B, K)`` for ``v`` of shape ``(..., *B, D)``."""
        v = self._points(v)
        if self.dim == 1:  # at once: averages may have thousands of components
            sd = self._factors[..., 0, 0]
            white = (v - self.means[..., 0]) / sd
            with np.errstate(divide="ignore"):
                return -0.5 * (np.square(white) + LOG_2PI) - np.log(sd) + np.log(self.weights)
        answer = np.empty((*np.broadcast_shapes(v.shape[:-1], self.batch_shape), self.n_components))
        for k in range(self.n_components):
            factor = self._factors[..., k, :, :]
            white = _solve(factor, v - self.means[..., k, :])
            log_det = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
            answer[..., k] = -0.5 * (np.square(white).sum(-1) + self.dim * LOG_2PI) - log_det
        with np.errstate(divide="ignore"):
            return answer + np.log(self.weights)

    def log_prob(self, v: Array) -> Array:
        """Log density ``(..., *B)`` of ``v`` with shape ``(..., *B, D)``."""
        return logsumexp(self.log_joint(v), axis=-1)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(*B, n, D)``, in random order."""
        check_integer("n", n, 1)
        check_seed(random_state)
        rng = check_random_state(random_state)
        which = picked(self.weights, rng.uniform(size=(*self.batch_shape, n)))
        white = rng.standard_normal((*self.batch_shape, n, self.dim))
        if self.batch_shape:
            row = np.indices(which.shape)[:-1]
            roots = self._roots[(*row, which)]
            return self.means[(*row, which)] + (roots @ white[..., None])[..., 0]
        drawn = np.empty((n, self.dim))
        order = np.argsort(which, kind="stable")  # averages may have thousands of components
        numbers, first = np.unique(which[order], return_index=True)
        for k, mine in zip(numbers, np.split(order, first[1:]), strict=True):
            drawn[mine] = self.means[k] + white[mine] @ self._roots[k].T
        return drawn

    def marginal(self, dimensions: ArrayLike) -> "GaussianMixture":
        """Return the density of some dimensions, in the order given."""
        keep = np.atleast_1d(np.asarray(dimensions))
        refuse_if(
            keep.dtype.kind not in "iu"
            or keep.ndim != 1
            or not np.isin(keep, range(self.dim)).all(),
            f"Expected dimensions as numbers between 0 and {self.dim - 1}; got {dimensions!r}.",
        )
        return GaussianMixture(
            self.weights, self.means[..., keep], self.covariances[..., keep[:, None], keep]
        )

    def in_units(self, location: ArrayLike, scale: ArrayLike) -> "GaussianMixture":
        """Return the density of ``location + scale v``."""
        s = np.asarray(scale)
        return GaussianMixture(
            self.weights, np.asarray(location) + s * self.means, self.covariances * s[:, None] * s
        )

    def convolve(self, noise: Any) -> "GaussianMixture":
        """Return the density of ``v + n`` for one distribution of the noise."""
        if isinstance(noise, list | tuple | float | int | np.ndarray):
            noise = as_floats(noise, "noise")
            noise = noise[None] if noise.ndim == 2 else noise
        parts = as_noise(noise, 1, self.dim).as_mixture().take()
        own = parts.covariances[0]
        own = own[:, :, None] * np.eye(self.dim) if own.ndim == 2 else own
        shifts = np.zeros((1, self.dim)) if parts.means is None else parts.means[0]
        shape = self.n_components, len(own), self.dim
        return GaussianMixture(
            np.outer(self.weights, parts.weights[0]).ravel(),
            np.broadcast_to(self.means[:, None] + shifts, shape).reshape(-1, self.dim),
            (self.covariances[:, None] + own).reshape(-1, self.dim, self.dim),
        )

    def pdf(self, dimension: int, x: Array) -> Array:
        """Density of one dimension at points ``x``, of the shape of ``x``."""
        white, sd = self._whitened(dimension, x)
        return (np.exp(-0.5 * np.square(white)) / (sd * np.sqrt(2 * np.pi)) * self.weights).sum(-1)

    def cdf(self, dimension: int, x: Array) -> Array:
        """Probability that one dimension is below ``x``, of the shape of ``x``."""
        return (ndtr(self._whitened(dimension, x)[0]) * self.weights).sum(-1)

    def probability(self, lower: ArrayLike, upper: ArrayLike) -> Array:
        """Probability ``(*B, D)`` of each dimension between bounds ``(D,)``, ends included.

        Bounds may be infinite. A value without variance, which a row's posterior may have,
        is inside or not. Small probabilities keep all their digits.
        """
        sd = np.sqrt(np.maximum(np.diagonal(self.covariances, axis1=-2, axis2=-1), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = (np.asarray(lower) - self.means) / sd, (np.asarray(upper) - self.means) / sd
        low, high = np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf)
        turned = low > 0  # in the upper tail by the lower one: there is no room next to one
        inside = np.where(turned, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        return np.einsum("...k,...kd->...d", self.weights, inside).clip(0.0, 1.0)

    def quantile(self, share: float) -> Array:
        """Quantile of each dimension, ``(*B, D)``, by halving an interval that holds it."""
        check_number("share", share, 0, 1, open_low=True)
        return self.quantiles_at(np.full((*self.batch_shape, self.dim), float(share)))

    def quantiles_at(self, shares: Array) -> Array:
        """Quantiles ``(*B, D)`` of each dimension, at shares of the same shape."""
        variance = np.diagonal(self.covariances, axis1=-2, axis2=-1)
        sd = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
        # The quantile lies among those of the components.
        each = self.means + sd * ndtri(shares)[..., None, :]
        used = self.weights[..., None] > 0
        low = np.where(used, each, np.inf).min(-2)
        high = np.where(used, each, -np.inf).max(-2)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            inside = ndtr((middle[..., None, :] - self.means) / sd)
            below = np.einsum("...k,...kd->...d", self.weights, inside) < shares
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    def heaviest(self, most: int) -> "GaussianMixture":
        """Return the ``most`` heaviest components, with weights that sum to one again."""
        most = min(most, self.n_components)
        chosen = np.argpartition(-self.weights, most - 1, axis=-1)[..., :most]
        weights = np.take_along_axis(self.weights, chosen, -1)
        return GaussianMixture(
            weights / weights.sum(-1, keepdims=True),
            np.take_along_axis(self.means, chosen[..., None], -2),
            np.take_along_axis(self.covariances, chosen[..., None, None], -3),
        )

    def without_copies(self) -> "GaussianMixture":
        """Return the same density with components that are equal put together."""
        numbers = np.column_stack([self.means, self.covariances.reshape(self.n_components, -1)])
        _, first, owner = np.unique(numbers, axis=0, return_index=True, return_inverse=True)
        weights = np.bincount(owner.ravel(), self.weights).astype(np.float64)
        return GaussianMixture(weights, self.means[first], self.covariances[first])

    def _points(self, v: ArrayLike) -> Array:
        """Check points ``(..., *B, D)``."""
        points = as_floats(v, "v")
        ending = (*self.batch_shape, self.dim)
        same = zip(points.shape[::-1], ending[::-1], strict=False)
        refuse_if(
            not points.ndim or any(got not in (wanted, 1) for got, wanted in same),
            f"Expected v of shape (..., {str(ending)[1:-1]}); got {points.shape}.",
        )
        refuse_if(
            np.isnan(points).any(),
            "Expected numbers in v; got NaN. A density has no value there.",
        )
        refuse_extremes("v", points)
        return points

    @cached_property
    def _factors(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covariances), dtype=np.float64)

    @cached_property
    def _roots(self) -> Array:
        """Roots of the covariances, which may be singular: a row's value may be known exactly."""
        if not self.batch_shape:
            return self._factors
        values, vectors = np.linalg.eigh(self.covariances)
        return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]

    def _whitened(self, dimension: int, x: Array) -> tuple[Array, Array]:
        sd = np.sqrt(self.covariances[..., dimension, dimension])
        return (np.asarray(x)[..., None] - self.means[..., dimension]) / sd, sd


def mix(mixtures: Sequence[GaussianMixture], shares: ArrayLike | None = None) -> GaussianMixture:
    """Return the average of mixtures, equal or by shares, as one mixture of all components."""
    if shares is None:
        shares = np.full(len(mixtures), 1.0 / len(mixtures))
    return GaussianMixture(
        np.concatenate(
            [
                share * each.weights
                for each, share in zip(mixtures, np.asarray(shares), strict=True)
            ],
            axis=-1,
        ),
        np.concatenate([mixture.means for mixture in mixtures], axis=-2),
        np.concatenate([mixture.covariances for mixture in mixtures], axis=-3),
    )


def stack(parts: Sequence[GaussianMixture]) -> GaussianMixture:
    """Put the rows of batches one after another.

    Where there are fewer components, copies of the first are added, with a weight of zero.
    """
    most = np.arange(max(part.n_components for part in parts))
    index = [np.where(most < part.n_components, most, 0) for part in parts]
    pairs = list(zip(parts, index, strict=True))
    return GaussianMixture(
        np.concatenate([part.weights[:, i] * (i == most) for part, i in pairs]),
        np.concatenate([part.means[:, i] for part, i in pairs]),
        np.concatenate([part.covariances[:, i] for part, i in pairs]),
    )


def _solve(factor: Array, offset: Array) -> Array:
    """Whiten ``(..., *B, D)`` by triangular factors ``(*B, D, D)``."""
    if factor.ndim == 2:
        flat = offset.reshape(-1, offset.shape[-1])
        return solve_triangular(factor, flat.T, lower=True).T.reshape(offset.shape)
    return np.asarray(np.linalg.solve(factor, offset[..., None])[..., 0], dtype=np.float64)


def picked(weights: Array, u: Array) -> IntArray:
    """Return the component of each uniform number ``(*B, n)``, by weights ``(*B, K)``."""
    edges = np.cumsum(weights, axis=-1)
    edges /= edges[..., -1:]
    # All rows in one search: row i owns the numbers from i to i + 1.
    row = np.arange(edges[..., 0].size).reshape(*edges.shape[:-1], 1)
    found = (edges + row).ravel().searchsorted((u + row).ravel(), side="right").reshape(u.shape)
    return (found - row * edges.shape[-1]).clip(0, edges.shape[-1] - 1)


# -- cut to a box -------------------------------------------------------------------------------


class CutMixture:
    """A Gaussian mixture per row, cut to a box.

    Attributes
    ----------
    mixture : GaussianMixture
        One per row, before the cut.
    shares : array
        ``(N, K)``: weights of the components after the cut.
    log_mass : array
        ``(N,)``: log of what the box holds of each row's mixture.
    error : array
        ``(N,)``: standard error of ``log_mass``; zero for one bounded dimension.
    exact : array or None
        ``(N, D)``: values that are known, and in the box, of which no cut takes anything.
    """

    def __init__(
        self,
        mixture: GaussianMixture,
        lower: Array,
        upper: Array,
        exact: BoolArray | None = None,
    ) -> None:
        self.mixture, self.lower, self.upper, self.exact = mixture, lower, upper, exact
        self.columns = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper))
        self.order = np.r_[self.columns, np.setdiff1d(np.arange(mixture.dim), self.columns)]
        #: Whether moments are closed forms.
        self.one_bounded = len(self.columns) == 1
        parts = self._log_parts()
        self._log_masses = np.logaddexp.reduce(parts, axis=-1) - np.log(parts.shape[-1])
        with np.errstate(divide="ignore"):
            log_weights = np.log(mixture.weights)
        each = log_weights + self._log_masses
        top = np.maximum(each.max(1, keepdims=True), -1e300)
        shares = np.exp(each - top)
        total = shares.sum(1, keepdims=True)
        self.log_mass, self.shares = (top + np.log(total))[:, 0], shares / total
        self.error = np.zeros(len(total))
        if not self.one_bounded:
            masses = np.exp(log_weights[..., None] + parts - top[..., None]).sum(1)
            self.error = masses.std(1, ddof=1) / masses.mean(1) / np.sqrt(REPEATS)

    def moments(self) -> tuple[Array, Array]:
        """Means ``(N, D)`` and covariances ``(N, D, D)``, for one bounded dimension."""
        d = int(self.columns[0])
        means, covariances = self.mixture.means, self.mixture.covariances
        variance = np.maximum(covariances[..., d, d], TINY)
        shift, left = _cut_moments(means[..., d], np.sqrt(variance), self.lower[d], self.upper[d])
        along = covariances[..., d] / variance[..., None]  # how the others follow
        centres = means + along * shift[..., None]
        lost = (variance - left)[..., None, None] * along[..., :, None] * along[..., None, :]
        cut = GaussianMixture(self.shares, centres, covariances - lost)
        return cut.mean, cut.covariance

    def sample(self, n: int, rng: np.random.RandomState) -> tuple[Array, Array]:
        """Draw ``(N, n, D)``, with log weights ``(N, n)``; equal ones for one bounded dimension."""
        which = picked(self.shares, rng.uniform(size=(len(self.shares), n)))
        row = np.arange(len(which))[:, None]
        means, factors = self.mixture.means[row, which], self._factors[row, which]
        y = rng.uniform(size=means.shape)
        log_weights = self._to_normal(y, means, factors)
        for j in range(len(self.columns), len(self.order)):
            y[..., j] = rng.standard_normal(which.shape)
        drawn = np.empty_like(means)
        drawn[..., self.order] = np.einsum("...ij,...j->...i", factors, y)
        drawn = np.clip(means + drawn, self.lower, self.upper)
        return drawn, log_weights - self._log_masses[row, which]

    def _to_normal(self, y: Array, means: Array, factors: Array) -> Array:
        """Turn uniform numbers of bounded columns into normal ones; return log of what is left."""
        log_left = np.zeros(y.shape[:-1])
        for j, d in enumerate(self.columns.tolist()):
            along, size = factors[..., j, :j], np.maximum(factors[..., j, j], TINY)
            centre = means[..., d] + np.einsum("...i,...i->...", along, y[..., :j])
            with np.errstate(over="ignore"):
                low, high = (self.lower[d] - centre) / size, (self.upper[d] - centre) / size
            y[..., j] = cut_normal(low, high, y[..., j])
            log_left += self._left(log_between(low, high), d)
        return log_left

    def _left(self, log_shares: Array, d: int) -> Array:
        """Leave all of values that are known."""
        if self.exact is None:
            return log_shares
        known = self.exact[:, d].reshape(-1, *[1] * (log_shares.ndim - 1))
        return np.where(known, 0.0, log_shares)

    def _log_parts(self) -> Array:
        """Log of what the box holds of each component, ``(N, K, R)``, by parts of the points."""
        if self.one_bounded:
            d = int(self.columns[0])
            sd = np.sqrt(np.maximum(self.mixture.covariances[..., d, d], TINY))
            with np.errstate(over="ignore"):
                low, high = (
                    (end[d] - self.mixture.means[..., d]) / sd for end in (self.lower, self.upper)
                )
            return self._left(log_between(low, high), d)[..., None]
        factors, means = self._factors[..., None, :, :], self.mixture.means[..., None, :]
        points = qmc.Sobol(len(self.columns), seed=0).random(POINTS)
        y = np.broadcast_to(points, (*factors.shape[:2], *points.shape)).copy()
        log_p = self._to_normal(y, means, factors)
        parts = log_p.reshape(*log_p.shape[:-1], REPEATS, -1)  # by turns of the sequence
        return np.asarray(np.logaddexp.reduce(parts, axis=-1) - np.log(parts.shape[-1]))

    @cached_property
    def _factors(self) -> Array:
        """Cholesky factors, bounded dimensions first, of covariances that may be singular."""
        C = self.mixture.covariances[..., self.order[:, None], self.order]
        size = np.trace(C, axis1=-2, axis2=-1)[..., None, None]
        return np.asarray(np.linalg.cholesky(C + (1e-14 * size + TINY) * np.eye(C.shape[-1])))


def log_between(low: Array, high: Array) -> Array:
    """Log probability of a standard normal number between two ends, to the tails' last digits."""
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        above, below = log_ndtr(high), log_ndtr(low)
        return np.fmax(above + np.log1p(-np.exp(below - above)), -1e300)


def cut_normal(low: Array, high: Array, u: Array) -> Array:
    """Turn uniform numbers into standard normal ones between two ends."""
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    with np.errstate(divide="ignore"):
        y = ndtri_exp(np.logaddexp(log_ndtr(low), np.log(u) + log_between(low, high)))
    y = np.clip(y, np.maximum(low, -1e150), np.minimum(high, 1e150))
    return np.where(flip, -y, y)


def _cut_moments(mean: Array, sd: Array, low: float, high: float) -> tuple[Array, Array]:
    """How far a cut moves the mean of normal laws, and the variance that it leaves."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        a, b = (low - mean) / sd, (high - mean) / sd
        log_mass = log_between(a, b)
        at_a, at_b = (np.exp(-0.5 * (np.square(end) + LOG_2PI) - log_mass) for end in (a, b))
        shift = at_a - at_b
        pull = np.where(np.isfinite(a), a * at_a, 0.0) - np.where(np.isfinite(b), b * at_b, 0.0)
        left = np.clip(1.0 + pull - np.square(shift), 0.0, 1.0)
        # Far out in a tail an exponential law is left, whose mean the difference would lose.
        for far, end, sign in ((a > FAR, a, 1.0), (b < -FAR, -b, -1.0)):
            mean_left, variance_left = _cut_exponential(np.where(far, end, 1.0), b - a)
            shift = np.where(far, sign * (end + mean_left), shift)
            left = np.where(far, variance_left, left)
        shift = np.clip(shift, a, b)
    return sd * shift, np.square(sd) * left


def _cut_exponential(rate: Array, length: Array) -> tuple[Array, Array]:
    """Mean and variance of exponential laws that end after a length, which may be infinite."""
    t = rate * length
    short = t < 1e-3  # as good as uniform, where the formulas lose their digits
    t = np.where(short, 1.0, t)
    mean = 1 / rate - np.where(np.isinf(t), 0.0, length / np.expm1(t))
    ends = np.where(t > 500, 0.0, np.square(length / (2 * np.sinh(np.minimum(t, 500) / 2))))
    variance = np.where(np.isinf(t), 1 / np.square(rate), 1 / np.square(rate) - ends)
    return np.where(short, length / 2, mean), np.where(short, np.square(length) / 12, variance)
