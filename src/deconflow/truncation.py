r"""Gaussians cut to a box: mass, moments and draws.

Draws follow Genz: with the Cholesky factor :math:`C = L L^T`, bounded dimensions first,
:math:`v = m + L y`, each :math:`y_j` is drawn from a standard normal law cut to what the ones
before it leave, and the draw's weight is the product of what these cuts leave of the laws. With one
bounded dimension all weights of a Gaussian are equal: draws are exact then, and so are mass and
moments, in closed form.

References
----------
Genz (1992), "Numerical computation of multivariate normal probabilities", Journal of Computational
and Graphical Statistics 1.
"""

from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import qmc

from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture, picked

#: Quasi-random points for the mass of a box in several dimensions; and parts of them, by which its
#: error is told.
POINTS, REPEATS = 64, 4
TINY = 1e-300
#: Standard deviations beyond which moments of a tail are those of an exponential distribution.
FAR = 30.0
LOG_2PI = float(np.log(2 * np.pi))


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
        with np.errstate(divide="ignore"):
            each = np.log(mixture.weights) + self._log_masses
        top = np.maximum(each.max(1, keepdims=True), -1e300)
        shares = np.exp(each - top)
        total = shares.sum(1, keepdims=True)
        self.log_mass, self.shares = (top + np.log(total))[:, 0], shares / total
        self.error = np.zeros(len(total)) if self.one_bounded else self._error(top)

    @property
    def one_bounded(self) -> bool:
        """Whether moments are closed forms."""
        return len(self.columns) == 1

    def moments(self) -> tuple[Array, Array]:
        """Means ``(N, D)`` and covariances ``(N, D, D)``, for one bounded dimension."""
        d = int(self.columns[0])
        means, covariances = self.mixture.means, self.mixture.covariances
        variance = np.maximum(covariances[..., d, d], TINY)
        shift, left = _cut_moments(means[..., d], np.sqrt(variance), self.lower[d], self.upper[d])
        along = covariances[..., d] / variance[..., None]  # how the others follow
        centres = means + along * shift[..., None]
        lost = (variance - left)[..., None, None]
        each = covariances - lost * along[..., :, None] * along[..., None, :]
        mean = np.einsum("nk,nkd->nd", self.shares, centres)
        apart = centres - mean[:, None]
        within = np.einsum("nk,nkij->nij", self.shares, each)
        return mean, within + np.einsum("nk,nki,nkj->nij", self.shares, apart, apart)

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

    @cached_property
    def _log_masses(self) -> Array:
        """Log of what the box holds of each component, ``(N, K)``."""
        if not self.one_bounded:
            return self._by_points()
        d = int(self.columns[0])
        sd = np.sqrt(np.maximum(self.mixture.covariances[..., d, d], TINY))
        with np.errstate(over="ignore"):
            ends = [(end[d] - self.mixture.means[..., d]) / sd for end in (self.lower, self.upper)]
        return self._left(log_between(*ends), d)

    def _by_points(self) -> Array:
        factors, means = self._factors[..., None, :, :], self.mixture.means[..., None, :]
        points = qmc.Sobol(len(self.columns), seed=0).random(POINTS)
        y = np.broadcast_to(points, (*factors.shape[:2], *points.shape)).copy()
        log_p = self._to_normal(y, means, factors)
        parts = log_p.reshape(*log_p.shape[:-1], REPEATS, -1)  # by turns of the sequence
        self._repeats = np.logaddexp.reduce(parts, axis=-1) - np.log(parts.shape[-1])
        return np.asarray(np.logaddexp.reduce(log_p, axis=-1) - np.log(POINTS))

    def _error(self, top: Array) -> Array:
        """Spread of the mass between parts of the points."""
        with np.errstate(divide="ignore"):
            each = np.log(self.mixture.weights)[..., None] + self._repeats
        masses = np.exp(each - top[..., None]).sum(1)
        return masses.std(1, ddof=1) / masses.mean(1) / np.sqrt(REPEATS)

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
