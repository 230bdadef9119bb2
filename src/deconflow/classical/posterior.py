r"""The posterior of a row's true value under a density on a grid.

A row with noise wider than the grid's cells is weighed at grid points, by
:math:`p(v_g) \, p(w \mid v_g)`, and at draws :math:`w - n` of its noise by the normal law behind
the grid; one with narrower noise (or none) at such draws alone, by :math:`p(v)`, unless all of
them lie where the truth cannot be, beyond a bound. Either way the weights add up to :math:`p(w)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from deconflow._types import Array
from deconflow.classical.grid import GridDensity
from deconflow.noise import Noise
from deconflow.observations import Observations
from deconflow.randomness import Draws, RandomState

AT_ONCE = 2_000_000
"""Largest number of points, over rows, in memory at once."""
WIDE = 4.0
"""Noise of at least this many cells in every dimension is seen by the grid."""
NEGLIGIBLE = 1e-7
"""Grid points of less density than this share of the largest are left out of posteriors."""


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

    rows: NDArray[np.int64]
    grid: Array
    draws: Array
    log_weights: Array

    def take(self, which: NDArray[np.bool_]) -> WeightedPoints:
        """Return some of the rows."""
        return WeightedPoints(
            self.rows[which], self.grid, self.draws[which], self.log_weights[which]
        )

    def log_marginal(self) -> Array:
        """Log density of each measurement, ``(n,)``."""
        return logsumexp(self.log_weights, axis=1)

    def relative_error(self) -> Array:
        """Relative standard error of each row's density, from the draws alone, ``(n,)``."""
        shares = self.shares()[:, len(self.grid) :]
        return np.sqrt(shares.shape[1] * shares.var(1))

    def shares(self) -> Array:
        """Weights that sum to one, ``(n, G + K)``; a row out of reach has equal ones of draws."""
        total = self.log_marginal()[:, None]
        alike = np.r_[np.zeros(len(self.grid)), np.full(self.draws.shape[1], 1.0)]
        with np.errstate(invalid="ignore"):
            shares = np.exp(self.log_weights - total)
        return np.where(np.isfinite(total), shares, alike / alike.sum())


def weighted_points(
    density: GridDensity, data: Observations, n_draws: int, random_state: RandomState
) -> Iterator[WeightedPoints]:
    """Walk through all rows in pieces of bounded memory, not in their order."""
    wide = np.broadcast_to(_wide(data.noise, density.step), len(data))
    draws = Draws.of(random_state)
    yield from _on_grid(density, data, np.flatnonzero(wide), n_draws, draws)
    for weighed in _at_draws(density, data, np.flatnonzero(~wide), n_draws, draws):
        reached = np.isfinite(weighed.log_marginal())
        yield weighed.take(reached)
        yield from _on_grid(density, data, weighed.rows[~reached], n_draws, draws)


def _wide(noise: Noise, step: Array) -> NDArray[np.bool_]:
    """Whether a grid sees rows' noise: wide in all dimensions, nowhere thinner than a cell."""
    wide = (np.sqrt(noise.variance().numpy()) >= WIDE * step).all(1)
    if noise.independent or not wide.any():
        return wide
    pivots = noise.cholesky().diagonal(dim1=-2, dim2=-1).numpy()
    return wide & (pivots >= step).all(1)


def _on_grid(
    density: GridDensity, data: Observations, rows: NDArray[np.int64], n_draws: int, own: Draws
) -> Iterator[WeightedPoints]:
    """Weigh grid points by the density on the grid, and draws by the normal law behind it."""
    flat = density.values.ravel()
    used = np.flatnonzero(flat > NEGLIGIBLE * flat.max())
    points = density.points(used)
    with np.errstate(divide="ignore"):
        log_mass = np.log(density.mass.ravel()[used]) + np.log1p(-density.background)
    v = torch.from_numpy(points)[:, None]
    for part in _pieces(rows, len(used) + n_draws * density.dim):
        log_noise = data[part].log_likelihood(v.expand(-1, len(part), -1)).numpy().T
        draws, log_behind = _drawn(density.log_behind, data[part], n_draws, own)
        log_weights = np.concatenate([log_mass + log_noise, log_behind], axis=1)
        yield WeightedPoints(part, points, draws, log_weights)


def _at_draws(
    density: GridDensity, data: Observations, rows: NDArray[np.int64], n_draws: int, own: Draws
) -> Iterator[WeightedPoints]:
    """Weigh draws by the whole density."""
    none = np.empty((0, density.dim))
    for part in _pieces(rows, n_draws * density.dim):
        yield WeightedPoints(part, none, *_drawn(density.log_prob, data[part], n_draws, own))


def _drawn(
    log_density: Callable[[Array], Array], data: Observations, n_draws: int, own: Draws
) -> tuple[Array, Array]:
    """Draws ``(n, K, D)`` of the noise around each row, and the logs of their weights."""
    with own.in_use():
        v = (data.w - data.noise.sample(n_draws)).transpose(0, 1).numpy()
    log_p = log_density(v.reshape(-1, v.shape[2])).reshape(v.shape[:2])
    return v, log_p - np.log(n_draws)


def _pieces(rows: NDArray[np.int64], points: int) -> Iterator[NDArray[np.int64]]:
    size = max(1, AT_ONCE // points)
    for i in range(0, len(rows), size):
        yield rows[i : i + size]


def resample(
    density: GridDensity, weighted: WeightedPoints, n_samples: int, rng: np.random.RandomState
) -> tuple[Array, Array, Array, Array]:
    """Draws ``(n, S, D)``, means, covariances and effective sample sizes of some rows."""
    shares = weighted.shares()
    cumulated = np.cumsum(shares, axis=1)
    spots = rng.uniform(size=(len(shares), n_samples)) * cumulated[:, -1:]
    chosen = np.empty(spots.shape, np.int64)
    for i, (steps, spot) in enumerate(zip(cumulated, spots, strict=True)):
        chosen[i] = np.searchsorted(steps, spot).clip(max=len(steps) - 1)
    draws = _picked(density, weighted, chosen, rng)
    return draws, *_moments(weighted, shares), 1 / np.square(shares).sum(1)


def _picked(
    density: GridDensity,
    weighted: WeightedPoints,
    chosen: NDArray[np.int64],
    rng: np.random.RandomState,
) -> Array:
    """The points with these numbers ``(n, S)``, those on the grid moved within their cells."""
    size = len(weighted.grid)
    answer = np.take_along_axis(weighted.draws, np.maximum(chosen - size, 0)[:, :, None], 1)
    on_grid = chosen < size
    inside = rng.uniform(-0.5, 0.5, size=(on_grid.sum(), density.dim))
    answer[on_grid] = density.folded(weighted.grid[chosen[on_grid]] + density.step * inside)
    return answer


def _moments(weighted: WeightedPoints, shares: Array) -> tuple[Array, Array]:
    """Means ``(n, D)`` and covariances ``(n, D, D)``: of both kinds of points, then of all.

    Each kind is centred by itself, so that large offsets do not cancel.
    """
    size = len(weighted.grid)
    shift = weighted.grid.mean(0) if size else 0.0
    share, grid_mean, grid_cov = _of_kind(shares[:, :size], weighted.grid - shift)
    rest, draws_mean, draws_cov = _of_kind(shares[:, size:], weighted.draws)
    grid_mean = grid_mean + shift
    between = np.where(share * rest > 0, grid_mean - draws_mean, 0.0)
    mean = np.where(rest > 0, draws_mean + share * between, grid_mean)
    share, rest = share[:, None], rest[:, None]
    spread = between[:, :, None] * between[:, None]
    return mean, share * grid_cov + rest * draws_cov + share * rest * spread


def _of_kind(shares: Array, points: Array) -> tuple[Array, Array, Array]:
    """Total share ``(n, 1)``, mean and covariance of points ``(K, D)`` or ``(n, K, D)``."""
    total = shares.sum(1, keepdims=True)
    within = shares / np.where(total > 0, total, 1.0)
    if points.ndim == 2:
        mean = within @ points
        dim = points.shape[1]
        products = (points[:, :, None] * points[:, None]).reshape(-1, dim * dim)
        second = (within @ products).reshape(-1, dim, dim)
        return total, mean, second - mean[:, :, None] * mean[:, None]
    first = points[:, 0]  # draws of an exact value are all the same: so is their mean
    mean = first + np.einsum("nk,nkd->nd", within, points - first[:, None])
    offset = points - mean[:, None]
    return total, mean, np.einsum("nk,nki,nkj->nij", within, offset, offset)
