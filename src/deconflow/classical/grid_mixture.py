r"""A density on a grid as a mixture of Gaussians, for answers in closed form.

.. math:: p(v) \approx \sum_k a_k \, N(v; m_k, s^2), \quad
          a_k \leftarrow a_k \sum_g \pi_g \frac{N(x_g; m_k, s^2)}{\sum_j a_j N(x_g; m_j, s^2)}

with Gaussians at even nodes :math:`m_k`, as wide as 0.8 of their distance, and masses
:math:`\pi_g` of the grid's points. The step is that of Richardson and Lucy, each of which brings
the mixture nearer to the density, so that weights make up for the width of the Gaussians.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm

from deconflow._types import Array
from deconflow.classical.grid import GridDensity
from deconflow.mixtures import GaussianMixture

#: Most nodes per dimension.
NODES = {1: 240, 2: 80, 3: 24}
#: Least distance of nodes, in steps of the grid: nearer ones would follow its hats.
FEWEST_STEPS = 2.0
WIDTH = 0.8
ROUNDS, SETTLED = 200, 1e-7
#: Components are dropped that have less than this share of the mean weight.
NEGLIGIBLE = 1e-7
#: Most components.
MOST = 3000


def grid_mixture(density: GridDensity) -> GaussianMixture:
    """Write a density on a grid as a mixture of Gaussians.

    At most 240 Gaussians in one dimension and 3,000 in more, and one for the normal distribution
    behind the grid. In one and two dimensions the divergence of the mixture from the density is
    below 5e-4 for densities that are smooth over four steps of the grid (narrower features were
    seen to cost up to .01); a jump at a bound is blurred to the width of a Gaussian, and some of
    its mass leaves the bound.
    """
    mass = density.mass
    kernels, nodes, sds = zip(*(_kernel(density, d) for d in range(density.dim)), strict=True)
    weights = _deconvolved(mass, kernels)
    least = np.sort(weights, axis=None)[-min(MOST, weights.size)]
    kept = (weights > NEGLIGIBLE * weights.mean()) & (weights >= least)
    shares = np.append(
        weights[kept] * (1 - density.background) / weights[kept].sum(), density.background
    )
    means = np.concatenate(
        [np.stack(np.meshgrid(*nodes, indexing="ij"), -1)[kept], density.mean[None]]
    )
    covariances = np.empty((len(shares), density.dim, density.dim))
    covariances[:-1], covariances[-1] = np.diag(np.square(sds)), density.factor @ density.factor.T
    used = shares > 0
    return GaussianMixture(shares[used], means[used], covariances[used])


def _kernel(density: GridDensity, d: int) -> tuple[Array, Array, float]:
    """Gaussians at the points of one dimension ``(points, nodes)``, their nodes and width."""
    n, step = density.values.shape[d], float(density.step[d])
    count = int(min(NODES[density.dim], np.floor((n - 1) / FEWEST_STEPS) + 1))
    places = np.linspace(0, n - 1, max(count, 2))
    sd = WIDTH * (places[1] - places[0])
    z = (np.arange(n)[:, None] - places) / sd
    return norm.pdf(z) / sd, density.low[d] + step * places, sd * step


def _deconvolved(mass: Array, kernels: tuple[Array, ...]) -> Array:
    """Weights of the nodes by Richardson and Lucy's steps, until fifty gain nothing."""
    back = [kernel.T for kernel in kernels]
    weights, used, before = _apply(mass, back), mass > 0, -np.inf
    weights = weights / weights.sum()
    for i in range(ROUNDS):
        blurred = np.maximum(_apply(weights, kernels), np.finfo(float).tiny)
        weights = weights * _apply(mass / blurred, back)
        if i % 50 == 0:
            now = float(mass[used] @ np.log(blurred[used]))
            if now - before < SETTLED:
                break
            before = now
    return weights / weights.sum()


def _apply(table: Array, kernels: Sequence[Array]) -> Array:
    """Multiply each axis by its kernel."""
    for kernel in kernels:
        table = np.tensordot(table, kernel, axes=(0, 1))
    return table
