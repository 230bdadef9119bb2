r"""The posterior of a row's true value under a density on a grid.

A row with noise wider than the grid's cells is weighed at grid points, by
:math:`p(v_g) \, p(w \mid v_g)`, and at draws :math:`w - n` of its noise by the normal distribution
behind the grid; a row with narrower noise (or none) at the draws alone, by :math:`p(v)`, unless all
of them lie where the true value cannot be, beyond a bound. Either way the weights add up to
:math:`p(w)`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import as_floats
from deconflow.classical.grid import GridDensity
from deconflow.noise import Noise
from deconflow.observations import Observations
from deconflow.randomness import Draws, RandomState

#: Largest number of points, over rows, in memory at once.
AT_ONCE = 2_000_000
#: Noise of at least this many cells in every dimension is seen by the grid.
WIDE = 4.0
#: Grid points of less density than this share of the largest are left out of posteriors.
NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class WeightedPoints:
    """Points of the latent space with weights, for some rows.

    Attributes
    ----------
    rows : array
        Numbers of these rows.
    grid : array
        ``(G, D)`` grid points, for all rows; each stands for the cell around it.
    draws : array
        ``(n, K, D)`` draws of each row's noise around its measurement.
    log_weights : array
        ``(n, G + K)``; their exponentials add up to ``p(w)``.
    """

    rows: IntArray
    grid: Array
    draws: Array
    log_weights: Array

    def log_marginal(self) -> Array:
        """Log density of each measurement, ``(n,)``."""
        return logsumexp(self.log_weights, axis=1)

    def relative_error(self) -> Array:
        """Relative standard error of each row's density, from the draws alone, ``(n,)``."""
        shares = self.shares()[:, len(self.grid) :]
        return np.sqrt(shares.shape[1] * shares.var(1))

    def shares(self) -> Array:
        """Weights of sum one, ``(n, G + K)``; equal weights of the draws for a row out of reach."""
        total = self.log_marginal()[:, None]
        alike = (np.arange(self.log_weights.shape[1]) >= len(self.grid)) / self.draws.shape[1]
        with np.errstate(invalid="ignore"):
            shares = np.exp(self.log_weights - total)
        return np.where(np.isfinite(total), shares, alike)


def weighted_points(
    density: GridDensity, data: Observations, n_draws: int, random_state: RandomState
) -> Iterator[WeightedPoints]:
    """Walk through all rows in pieces of bounded memory, not in their order."""
    wide = np.broadcast_to(_wide(data.noise, density.step), len(data))
    own = Draws.of(random_state)
    yield from _weigh(density, data, np.flatnonzero(wide), n_draws, own)
    for weighed in _weigh(density, data, np.flatnonzero(~wide), n_draws, own, on_grid=False):
        reached = np.isfinite(weighed.log_marginal())
        parts = {name: getattr(weighed, name)[reached] for name in ("rows", "draws", "log_weights")}
        yield replace(weighed, **parts)
        yield from _weigh(density, data, weighed.rows[~reached], n_draws, own)


def _wide(noise: Noise, step: Array) -> BoolArray:
    """Whether a grid sees rows' noise: wide in all dimensions, nowhere thinner than a cell."""
    wide = (np.sqrt(np.asarray(noise.variance())) >= WIDE * step).all(1)
    if noise.independent or not wide.any():
        return wide
    pivots = np.diagonal(np.asarray(noise.cholesky()), axis1=-2, axis2=-1)
    return wide & (pivots >= step).all(1)


def _weigh(
    density: GridDensity,
    data: Observations,
    rows: IntArray,
    n_draws: int,
    own: Draws,
    on_grid: bool = True,
) -> Iterator[WeightedPoints]:
    """Weigh draws by the density behind the grid and its points by the rest, or draws by all."""
    flat = density.values.ravel()
    used = np.flatnonzero(flat > NEGLIGIBLE * flat.max()) if on_grid else np.empty(0, np.int64)
    log_density = density.log_behind if on_grid else density.log_prob
    points = density.points(used)
    log_mass = np.log(density.mass.ravel()[used]) + np.log1p(-density.background)
    size = max(1, AT_ONCE // (len(used) + n_draws * density.dim))
    for part in (rows[i : i + size] for i in range(0, len(rows), size)):
        some = data[part]
        log_noise = np.empty((len(some), 0))
        if on_grid:
            log_noise = np.asarray(some.log_likelihood(as_floats(points, "v")[:, None])).T
        with own.in_use():
            draws = np.swapaxes(np.asarray(some.w - some.noise.sample(n_draws)), 0, 1)
        log_p = log_density(draws.reshape(-1, density.dim)).reshape(draws.shape[:2])
        log_weights = np.concatenate([log_mass + log_noise, log_p - np.log(n_draws)], axis=1)
        yield WeightedPoints(part, points, draws, log_weights)


def resample(
    density: GridDensity, weighted: WeightedPoints, n_samples: int, rng: np.random.RandomState
) -> tuple[Array, Array, Array, Array]:
    """Draws ``(n, S, D)``, means, covariances and effective sample sizes of some rows.

    Draws at points of the grid are moved within their cells.
    """
    shares, size = weighted.shares(), len(weighted.grid)
    edges = np.cumsum(shares, axis=1)
    spots = rng.uniform(size=(len(shares), n_samples)) * edges[:, -1:]
    found = [np.searchsorted(*row) for row in zip(edges, spots, strict=True)]
    chosen = np.array(found, np.int64).reshape(spots.shape).clip(max=shares.shape[1] - 1)
    picked = np.take_along_axis(weighted.draws, np.maximum(chosen - size, 0)[:, :, None], 1)
    on_grid = chosen < size
    inside = density.step * rng.uniform(-0.5, 0.5, size=(on_grid.sum(), density.dim))
    picked[on_grid] = density.folded(weighted.grid[chosen[on_grid]] + inside)
    return picked, *_moments(weighted, shares), 1 / np.square(shares).sum(1)


def _moments(weighted: WeightedPoints, shares: Array) -> tuple[Array, Array]:
    """Means ``(n, D)`` and covariances ``(n, D, D)``, without large offsets that cancel."""
    size, dim = weighted.grid.shape
    on_grid, of_draws = shares[:, :size], shares[:, size:]
    rest = of_draws.sum(1)[:, None] if size else 1.0
    first = weighted.draws[:, 0]  # draws of an exact value are all the same: so is their mean
    mean = on_grid @ weighted.grid + rest * first
    mean = mean + np.einsum("nk,nkd->nd", of_draws, weighted.draws - first[:, None])
    offset = weighted.draws - mean[:, None]
    covariance = np.einsum("nk,nki,nkj->nij", of_draws, offset, offset)
    if size:
        centre = weighted.grid.mean(0)
        points, shift = weighted.grid - centre, mean - centre
        products = (points[:, :, None] * points[:, None]).reshape(size, -1)
        mixed = (on_grid @ points)[:, :, None] * shift[:, None]
        square = on_grid.sum(1)[:, None, None] * shift[:, :, None] * shift[:, None]
        covariance += (on_grid @ products).reshape(-1, dim, dim) + square
        covariance -= mixed + mixed.swapaxes(1, 2)
    return mean, covariance
