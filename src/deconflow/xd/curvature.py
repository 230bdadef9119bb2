r"""Steps that need few passes over many rows: quasi-Newton, with the curvature of a sample.

EM may need hundreds of passes where components overlap. A sample in memory is passed over quickly
and has nearly the curvature of all rows, so that the first step from the sample's optimum is nearly
Newton's; what curvature it does not have right, BFGS learns from the passes.
"""

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.acceleration import coordinates, mixture_at
from deconflow.xd.em_statistics import EMStatistics, one_pass
from deconflow.xd.layout import KernelRows, lower_triangle
from deconflow.xd.maximisation import Constraints

#: Of the largest: below it a sample's curvature is mostly chance, and its steps too long.
LEAST_CURVATURE = 1e-4
#: How far away, in coordinates of order one, slopes are compared to find the curvature.
NEARBY = 1e-4


class QuasiNewton:
    """Proposes mixtures as :class:`~deconflow.xd.acceleration.Anderson` does, from slopes.

    Parameters
    ----------
    constraints
        What every mixture must respect.
    inverse
        ``(P, P)``: inverse curvature of the mean log-likelihood; see :func:`inverse_curvature`.
    """

    def __init__(self, constraints: Constraints, inverse: Array) -> None:
        self.constraints, self.inverse = constraints, inverse.copy()
        self.last: tuple[Array, Array] | None = None
        self.length = 1.0

    def forget(self) -> None:
        """Be more careful after a refused proposal."""
        self.length *= 0.5

    def propose(
        self, before: GaussianMixture, after: GaussianMixture, sums: EMStatistics
    ) -> GaussianMixture:
        """Return a mixture beyond ``before``, whose sums these are; ``after`` if there is none."""
        x, slope = coordinates(before), slopes(before, sums)
        if self.last is not None:
            self._learn(x - self.last[0], self.last[1] - slope)
        self.last = x, slope
        step = self.length * self.inverse @ slope
        self.length = min(1.0, 2.0 * self.length)
        new = mixture_at(x + step, after, self.constraints)
        return after if new is None else new

    def _learn(self, step: Array, change: Array) -> None:
        """Correct the curvature so that it explains how the slope has changed (BFGS)."""
        along = step @ change
        if along <= 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
            return
        left = np.eye(len(step)) - np.outer(step, change) / along
        self.inverse = left @ self.inverse @ left.T + np.outer(step, step) / along


def slopes(mixture: GaussianMixture, sums: EMStatistics) -> Array:
    """Gradient of the mean log-likelihood in the coordinates of a mixture, from its sums."""
    factors = np.linalg.cholesky(mixture.covariances)
    precisions = np.linalg.inv(mixture.covariances)
    i, j = lower_triangle(mixture.dim, -1)
    of_means = np.einsum("kij,kj->ki", precisions, sums.vu)
    of_factors = precisions @ sums.vgv @ np.swapaxes(np.linalg.inv(factors), 1, 2)
    pivots = np.diagonal(factors, axis1=1, axis2=2)
    of_pivots = (np.tril(of_factors) * factors).sum(2)  # a pivot scales all of its row
    of_weights = sums.q0 - sums.weight * mixture.weights
    below = of_factors[:, i, j] * pivots[:, i]
    parts = (of_weights, of_means, of_pivots, below)
    return np.concatenate([part.ravel() for part in parts]) / sums.weight


def inverse_curvature(
    mixture: GaussianMixture,
    rows: KernelRows,
    constraints: Constraints,
    threads: int | None,
) -> Array:
    """Return the inverse curvature of rows' mean log-likelihood at a mixture, by differences."""
    x = coordinates(mixture)
    here = slopes(mixture, one_pass(mixture, rows, threads))
    curvature = np.empty((len(x), len(x)))
    for d in range(len(x)):
        moved = x.copy()
        moved[d] += NEARBY
        there = mixture_at(moved, mixture, constraints)
        assert there is not None
        curvature[d] = (here - slopes(there, one_pass(there, rows, threads))) / NEARBY
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    sizes = np.abs(values)  # where the sample stands at a saddle, steps lead away from it
    return (vectors / np.maximum(sizes, LEAST_CURVATURE * sizes.max())) @ vectors.T
