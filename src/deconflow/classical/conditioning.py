r"""Some dimensions of a density on a grid, given measurements of the others.

.. math:: p(v_B \mid w_A) \propto E_n \, p(w_A - n, \, v_B)

at the grid points of :math:`v_B`, with draws of the noise; one draw where the values are exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.classical.grid import GridDensity
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng

Dimensions = NDArray[np.int64]

NOISE_DRAWS = 200


def condition_on_grid(
    density: GridDensity,
    data: Observations,
    given: Dimensions,
    others: Dimensions,
    n_samples: int,
    random_state: RandomState,
) -> tuple[Array, Array, Array, Array]:
    """Draws ``(N, S, B)``, means, covariances and effective sample sizes of the others.

    Parameters
    ----------
    density
        Of all dimensions.
    data
        Complete rows that measure the dimensions ``given``.
    given, others
        The dimensions that are measured, and those asked for.
    n_samples, random_state
        Draws per row, and their seed.
    """
    if data.observed is not None:
        raise ValueError(
            "Expected complete values to condition a grid on; got NaN. Drop those rows."
        )
    rng = check_random_state(random_state)
    grid = density.marginal(others)
    points = grid.points(np.arange(grid.values.size))
    known = _draws(data, rng)
    spots = rng.uniform(size=(len(known), n_samples))
    rows = (
        _described(_shares(density, row, points, given, others), points, spot)
        for row, spot in zip(known, spots, strict=True)
    )  # one by one: a row has a weight for every point of the grid
    drawn, mean, covariance, size = (np.stack(part) for part in zip(*rows, strict=True))
    covariance += np.diag(np.square(grid.step)) / 6  # of the hat in which draws are moved
    return grid.folded(drawn + grid.jitter(spots.shape, rng)), mean, covariance, size


def _described(shares: Array, points: Array, spots: Array) -> tuple[Array, ...]:
    """Grid points ``(S, B)`` drawn by uniform numbers, and mean, covariance, effective size."""
    edges = np.cumsum(shares)
    chosen = np.searchsorted(edges, spots * edges[-1]).clip(max=len(points) - 1)
    mean = shares @ points
    offset = points - mean
    covariance = (shares[:, None] * offset).T @ offset
    return points[chosen], mean, covariance, 1 / np.square(shares).sum()


def _draws(data: Observations, rng: np.random.RandomState) -> Array:
    """Draws ``(N, K, A)`` of what the known values may truly be."""
    count = 1 if not data.noise.variance().any() else NOISE_DRAWS
    with isolated_rng(rng.randint(2**31 - 1)):
        return (data.w - data.noise.sample(count)).transpose(0, 1).double().numpy()


def _shares(
    density: GridDensity, known: Array, points: Array, given: Dimensions, others: Dimensions
) -> Array:
    """Weights of the grid points of the others, which sum to one."""
    v = np.empty((len(known), len(points), density.dim))
    v[:, :, given] = known[:, None]
    v[:, :, others] = points
    log_p = density.log_prob(v.reshape(-1, density.dim)).reshape(v.shape[:2])
    top = log_p.max()
    weights = np.exp(log_p - top).sum(0) if np.isfinite(top) else np.ones(len(points))
    return weights / weights.sum()
