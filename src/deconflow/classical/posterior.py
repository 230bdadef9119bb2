r"""The posterior of a row's true value under a density on a grid.

A row with noise wider than the grid's cells is weighed on the grid, by
:math:`p(v_g) \, p(w \mid v_g)`; one with narrower noise (or none) at draws :math:`w - n` of its
noise, by :math:`p(v)`. Either way the sum of the weights is :math:`p(w)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from deconflow.classical.grid import GridDensity
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng

Array = NDArray[np.float64]

AT_ONCE = 2_000_000
"""Largest number of points, over rows, in memory at once."""
WIDE = 4.0
"""Noise of at least this many cells in every dimension is seen by the grid."""
NEGLIGIBLE = 1e-7
"""Grid points of less density than this share of the largest are left out of posteriors."""


@dataclass(frozen=True)
class WeighedPoints:
    """Points of the latent space with weights, for some rows.

    Attributes
    ----------
    rows : array
        Numbers of these rows.
    points : array
        ``(K, D)`` for all rows, or ``(n, K, D)``.
    log_weights : array
        ``(n, K)``; their exponentials add up to ``p(w)``.
    jittered : bool
        Whether a point stands for the cell around it.
    """

    rows: NDArray[np.int64]
    points: Array
    log_weights: Array
    jittered: bool

    def only(self, keep: NDArray[np.bool_]) -> WeighedPoints:
        """Leave rows on the grid out."""
        return replace(self, rows=self.rows[keep], log_weights=self.log_weights[keep])

    def log_marginal(self) -> Array:
        """Log density of each measurement, ``(n,)``."""
        return logsumexp(self.log_weights, axis=1)

    def shares(self) -> Array:
        """Weights that sum to one, ``(n, K)``; equal ones for a row out of reach."""
        total = self.log_marginal()[:, None]
        count = self.log_weights.shape[1]
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(total), np.exp(self.log_weights - total), 1 / count)


def weigh(
    density: GridDensity, data: Observations, n_draws: int, random_state: RandomState
) -> Iterator[WeighedPoints]:
    """Walk through all rows in pieces of bounded memory, not in their order.

    A row that no grid point can reach, as under bounded noise, is left to draws of its noise and
    the normal law behind the grid.
    """
    sd = np.sqrt(data.noise.variance().numpy())
    wide = np.broadcast_to((sd >= WIDE * density.step).all(1), len(data))
    with isolated_rng(random_state):
        narrow = [np.flatnonzero(~wide)]
        for weighed in _on_grid(density, data, np.flatnonzero(wide)):
            reached = weighed.log_marginal() > -np.inf
            narrow.append(weighed.rows[~reached])
            yield weighed.only(reached)
        yield from _at_draws(density, data, np.concatenate(narrow), n_draws)


def _on_grid(
    density: GridDensity, data: Observations, rows: NDArray[np.int64]
) -> Iterator[WeighedPoints]:
    flat = density.values.ravel()
    used = np.flatnonzero(flat > NEGLIGIBLE * flat.max())
    points = density.points(used)
    log_mass = density.log_prob(points) + np.log(density.cell)
    v = torch.from_numpy(points)[:, None]
    for part in _pieces(rows, len(used)):
        log_noise = data[part].log_likelihood(v.expand(-1, len(part), -1)).numpy().T
        yield WeighedPoints(part, points, log_mass + log_noise, jittered=True)


def _at_draws(
    density: GridDensity, data: Observations, rows: NDArray[np.int64], n_draws: int
) -> Iterator[WeighedPoints]:
    for part in _pieces(rows, n_draws):
        some = data[part]
        v = (some.w - some.noise.sample(n_draws)).transpose(0, 1).numpy()
        log_p = density.log_prob(v.reshape(-1, density.dim)).reshape(v.shape[:2])
        yield WeighedPoints(part, v, log_p - np.log(n_draws), jittered=False)


def _pieces(rows: NDArray[np.int64], points: int) -> Iterator[NDArray[np.int64]]:
    size = max(1, AT_ONCE // points)
    for i in range(0, len(rows), size):
        yield rows[i : i + size]


def resample(
    density: GridDensity, weighed: WeighedPoints, n_samples: int, rng: np.random.RandomState
) -> tuple[Array, Array, Array, Array]:
    """Draws ``(n, S, D)``, means, covariances and effective sample sizes of some rows."""
    shares, points = weighed.shares(), weighed.points
    cumulated = np.cumsum(shares, axis=1)
    spots = rng.uniform(size=(len(shares), n_samples)) * cumulated[:, -1:]
    chosen = np.empty(spots.shape, np.int64)
    for i, (steps, spot) in enumerate(zip(cumulated, spots, strict=True)):
        chosen[i] = np.searchsorted(steps, spot).clip(max=len(steps) - 1)
    mean, covariance = _moments(points, shares)
    if weighed.jittered:
        inside = rng.uniform(-0.5, 0.5, size=(*chosen.shape, density.dim))
        draws = points[chosen] + density.step * inside
    else:
        draws = np.take_along_axis(points, chosen[:, :, None], 1)
    return draws, mean, covariance, 1 / np.square(shares).sum(1)


def _moments(points: Array, shares: Array) -> tuple[Array, Array]:
    """Weighted means ``(n, D)`` and covariances ``(n, D, D)``."""
    if points.ndim == 2:
        mean = shares @ points
        dim = points.shape[1]
        # Around the middle of all points, so that large offsets do not cancel.
        offset = points - points.mean(0)
        products = (offset[:, :, None] * offset[:, None]).reshape(len(points), -1)
        shift = mean - points.mean(0)
        second = (shares @ products).reshape(-1, dim, dim)
        return mean, second - shift[:, :, None] * shift[:, None]
    mean = np.einsum("nk,nkd->nd", shares, points)
    offset = points - mean[:, None]
    return mean, np.einsum("nk,nki,nkj->nij", shares, offset, offset)
