r"""Where EM starts: k-means or random rows, of those that say something about the truth.

Rows that miss values count by a draw from what one Gaussian says of their truth.
Components start as wide as their noisy rows, noise included. Starts with the noise subtracted
converge as fast, but to densities of more spikes: on moons twice as far from the truth.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from deconflow._limits import openmp_threads
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.em import Stopping, em
from deconflow.xd.layout import KernelRows, lay_out
from deconflow.xd.maximisation import Constraints, with_floor
from deconflow.xd.posterior import posterior

ROWS_FOR_A_START = 10_000
STARTS = ("kmeans", "random")
LEAST_SHARE = 0.25
"""Values that say less than this share of what the usual ones say are no places to start at."""


def mean_noise(data: Observations, units: Standardiser) -> Array:
    """Mean noise covariance ``(D, D)`` of the truth's dimensions, in the units of the rows.

    That of the law's core, where it has heavy tails. Values that say next to nothing are left
    out, be they most of the rows, and so are rows with a far larger noise than the others.
    """
    some = data[torch.from_numpy(_spread_out(len(data), ROWS_FOR_A_START))]
    noise = np.broadcast_to(some.noise.core_covariance(), (len(some), some.dim, some.dim))
    channel = units.measured_scale.numpy()
    noise = noise / np.outer(channel, channel)
    telling = _telling(some).numpy()
    R = some.projections().numpy() * units.scale.numpy() / channel[:, None] * telling[:, :, None]
    vague = ~telling if some.observed is None else ~telling & some.observed.numpy()
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
        some = data[torch.from_numpy(_spread_out(len(data), ROWS_FOR_A_START))]
        telling = _telling(some)
        some, telling = some[telling.any(-1)], telling[telling.any(-1)]
        self.points = rows.units.observations(some).w.numpy()
        if data.observed is not None:
            # Means of rows that miss a value lie on a line, across clumps: EM got stuck there.
            self.points = _one_gaussian(some, rows.units, self.floor).sample(1, 0)[:, 0]
        elif data.projection is not None:
            self.points = _one_gaussian(some, rows.units, self.floor).mean
        elif not telling.all():
            guesses = _one_gaussian(some, rows.units, self.floor).mean
            self.points = np.where(telling.numpy(), self.points, guesses)

    def make(self, n_components: int, method: str, rng: np.random.RandomState) -> GaussianMixture:
        """Make one start."""
        if method == "kmeans":
            return self._from_labels(self._clusters(n_components, rng), n_components, rng)
        return self._random(n_components, rng)

    def _clusters(self, n_components: int, rng: np.random.RandomState) -> NDArray[np.int64]:
        distinct = len(np.unique(self.points, axis=0))
        clusters = min(n_components, distinct)
        means = KMeans(clusters, n_init=1, random_state=rng.randint(2**31 - 1))
        with openmp_threads(1):  # fast enough, and repeatable
            return means.fit(self._bounded()).labels_

    def _bounded(self) -> Array:
        """Points with far outliers pulled in, which k-means would give clusters of their own."""
        low, high = np.quantile(self.points, [0.01, 0.99], axis=0)
        margin = high - low
        return np.clip(self.points, low - margin, high + margin)

    def _from_labels(
        self, labels: NDArray[np.int64], n_components: int, rng: np.random.RandomState
    ) -> GaussianMixture:
        start = self._random(n_components, rng)
        weights, means, covariances = start.weights, start.means, start.covariances
        points = self._bounded()
        for k in np.unique(labels):
            mine = points[labels == k]
            weights[k] = len(mine) / len(points)
            means[k] = mine.mean(0)
            if len(mine) > points.shape[1]:
                covariances[k] = _covariance(mine)
        empty = np.setdiff1d(np.arange(n_components), labels)
        weights[empty] = 1.0 / len(points)
        return GaussianMixture(weights / weights.sum(), means, with_floor(covariances, self.floor))

    def _random(self, n_components: int, rng: np.random.RandomState) -> GaussianMixture:
        points = self._bounded()
        chosen = rng.choice(len(points), n_components, replace=len(points) < n_components)
        whole = _covariance(points) / n_components ** (2 / self.dim)
        covariances = np.repeat(with_floor(whole[None], self.floor), n_components, axis=0)
        return GaussianMixture(np.full(n_components, 1 / n_components), points[chosen], covariances)


def _covariance(points: Array) -> Array:
    spread = np.cov(points.T, ddof=0).reshape(points.shape[1], -1)
    return spread + 1e-12 * np.eye(len(spread))


def _telling(some: Observations) -> torch.Tensor:
    """Which measured values ``(N, M)`` say nearly as much about the truth as the usual ones.

    A value says as much as the share of the truth in its variance. Values of far larger noise
    than others say next to nothing, and their scatter makes starts that no component survives.
    """
    seen = torch.ones_like(some.w, dtype=torch.bool) if some.observed is None else some.observed
    variance = some.noise.variance()
    if len(variance) == 1 or not seen.any(0).all():
        return seen
    signal = (some.projections() * Standardiser.fit(some).scale).square().sum(-1)
    share = torch.where(seen, signal / (signal + variance), 0.0)
    usual = share.square().sum(0) / share.sum(0)
    return seen & (share >= LEAST_SHARE * usual)


def _one_gaussian(some: Observations, units: Standardiser, floor: Array | None) -> GaussianMixture:
    """Posteriors under one Gaussian, for rows that do not show all of the truth."""
    rows = lay_out(some, units)
    start = GaussianMixture(np.ones(1), np.zeros((1, rows.dim)), np.eye(rows.dim)[None])
    start = GaussianMixture(
        start.weights, start.means, with_floor(100.0 * start.covariances, floor)
    )
    settings = Stopping(tol=1e-4, max_iter=50, accelerate=True, threads=1)
    fitted = em(start, rows, Constraints.free(1, floor), settings).mixture
    return posterior(fitted, units.observations(some))


def _spread_out(n: int, most: int) -> NDArray[np.int64]:
    """Indices of at most ``most`` rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
