r"""Where EM starts: k-means or random rows, of those that say something about the truth.

Rows that miss values count by a draw from what one Gaussian says of their truth.
Components start as wide as their noisy rows, noise included. Starts with the noise subtracted
converge as fast, but to densities of more spikes: on moons twice as far from the truth.
"""

import numpy as np
from sklearn.cluster import KMeans

from deconflow._limits import openmp_threads
from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.em import Stopping, em
from deconflow.xd.layout import KernelRows, lay_out
from deconflow.xd.maximisation import Constraints, with_floor
from deconflow.xd.posterior import posterior

ROWS_FOR_A_START = 10_000
STARTS = ("kmeans", "random")
#: Values that say less than this share of what the usual ones say are no places to start at.
LEAST_SHARE = 0.25


def mean_noise(data: Observations, units: Standardiser) -> Array:
    """Mean noise covariance ``(D, D)`` of the truth's dimensions, in the units of the rows.

    That of the law's core, where it has heavy tails. Values that say next to nothing are left
    out, be they most of the rows, and so are rows with a far larger noise than the others.
    """
    some = _spread_out(data)
    noise = np.broadcast_to(some.noise.core_covariance(), (len(some), some.dim, some.dim))
    channel = np.asarray(units.measured_scale)
    noise = noise / np.outer(channel, channel)
    telling = _telling(some)
    R = np.asarray(some.projections()) * np.asarray(units.scale) / channel[:, None]
    R = R * telling[:, :, None]
    vague = ~telling & seen_values(some)
    size = np.where(vague, 0.0, np.einsum("nii->ni", noise)).sum(1)
    usual = size <= 10 * np.median(size[telling.any(1)])
    back = np.linalg.pinv(R[usual])
    pulled = back @ noise[usual] @ np.swapaxes(back, 1, 2)
    touched = (np.square(back).sum(2) > 0).astype(float)
    counts = np.einsum("ni,nj->ij", touched, touched)
    mean = pulled.sum(0) / np.maximum(counts, 1)
    return with_floor(mean[None], 1e-12 * max(1e-300, np.trace(mean)) * np.eye(len(mean)))[0]


class Starter:
    """Makes starts for one data set, in the units of its rows."""

    def __init__(self, data: Observations, rows: KernelRows, floor: Array | None) -> None:
        self.floor, self.dim = floor, rows.dim
        some = _spread_out(data)
        telling = _telling(some)
        rows_kept = np.flatnonzero(telling.any(-1))
        some, telling = some[rows_kept], telling[rows_kept]
        self.points = np.asarray(rows.units.observations(some).w)
        if data.observed is None and data.projection is None and telling.all():
            return
        guesses = _one_gaussian(some, rows.units, self.floor)
        if data.observed is not None:
            # Means of rows that miss a value lie on a line, across clumps: EM got stuck there.
            self.points = guesses.sample(1, 0)[:, 0]
        elif data.projection is not None:
            self.points = guesses.mean
        else:
            self.points = np.where(telling, self.points, guesses.mean)

    def make(self, n_components: int, method: str, rng: np.random.RandomState) -> GaussianMixture:
        """Make one start."""
        points = self._bounded()
        if method != "kmeans":
            return self._random(points, n_components, rng)
        clusters = min(n_components, len(np.unique(self.points, axis=0)))
        found = KMeans(clusters, n_init=1, random_state=rng.randint(2**31 - 1))
        with openmp_threads(1):  # fast enough, and repeatable
            labels = found.fit(points).labels_
        start = self._random(points, n_components, rng)
        weights = np.maximum(np.bincount(labels, minlength=n_components), 1) / len(points)
        for k in np.unique(labels):
            mine = points[labels == k]
            start.means[k] = mine.mean(0)
            if len(mine) > points.shape[1]:
                start.covariances[k] = _covariance(mine)
        covariances = with_floor(start.covariances, self.floor)
        return GaussianMixture(weights / weights.sum(), start.means, covariances)

    def _bounded(self) -> Array:
        """Points with far outliers pulled in, which k-means would give clusters of their own."""
        low, high = np.quantile(self.points, [0.01, 0.99], axis=0)
        return np.clip(self.points, low - (high - low), high + (high - low))

    def _random(
        self, points: Array, n_components: int, rng: np.random.RandomState
    ) -> GaussianMixture:
        chosen = rng.choice(len(points), n_components, replace=len(points) < n_components)
        whole = _covariance(points) / n_components ** (2 / self.dim)
        covariances = np.repeat(with_floor(whole[None], self.floor), n_components, axis=0)
        return GaussianMixture(np.full(n_components, 1 / n_components), points[chosen], covariances)


def _covariance(points: Array) -> Array:
    spread = np.cov(points.T, ddof=0).reshape(points.shape[1], -1)
    return spread + 1e-12 * np.eye(len(spread))


def seen_values(data: Observations) -> BoolArray:
    """Which values ``(N, M)`` were measured."""
    return (
        np.ones((len(data), data.dim), bool) if data.observed is None else np.asarray(data.observed)
    )


def shares_of_truth(data: Observations) -> Array:
    """The share ``(N, M)`` of the truth in the variance of each value; 0 where one is missing."""
    scales = np.asarray(data.projections()) * np.asarray(Standardiser.fit(data).scale)
    signal = np.square(scales).sum(-1)
    return np.where(seen_values(data), signal / (signal + np.asarray(data.noise.variance())), 0.0)


def _telling(some: Observations) -> BoolArray:
    """Which measured values ``(N, M)`` say nearly as much about the truth as the usual ones.

    A value says as much as the share of the truth in its variance. Values of far larger noise
    than others say next to nothing, and their scatter makes starts that no component survives.
    """
    seen = seen_values(some)
    if len(some.noise.variance()) == 1 or not seen.any(0).all():
        return seen
    share = shares_of_truth(some)
    return seen & (share >= LEAST_SHARE * np.square(share).sum(0) / share.sum(0))


def _one_gaussian(some: Observations, units: Standardiser, floor: Array | None) -> GaussianMixture:
    """Posteriors under one Gaussian, for rows that do not show all of the truth."""
    rows = lay_out(some, units)
    wide = with_floor(100.0 * np.eye(rows.dim)[None], floor)
    start = GaussianMixture(np.ones(1), np.zeros((1, rows.dim)), wide)
    settings = Stopping(tol=1e-4, max_iter=50, accelerate=True, threads=1)
    fitted = em(start, rows, Constraints.free(1, floor), settings).mixture
    return posterior(fitted, units.observations(some))


def _spread_out(data: Observations) -> Observations:
    """Return at most so many rows, evenly spread."""
    n = len(data)
    return data[np.unique(np.linspace(0, n - 1, min(n, ROWS_FOR_A_START)).astype(int))]
