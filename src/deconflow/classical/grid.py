r"""Densities on a grid: linear between the points, with a thin normal law behind it.

.. math:: p(v) = (1 - b) \sum_g p_g \prod_d \Lambda\Bigl(\frac{v_d - x_{gd}}{\Delta_d}\Bigr)
                 + b \, N(v; m, C)

with hats :math:`\Lambda`, so that the integral is a sum and draws are exact. The normal law keeps
log densities finite where the estimate was cut off at zero, and outside of the box.

For answers in closed form a mixture of Gaussians stands for the density,

.. math:: p(v) \approx \sum_k a_k \, N(v; m_k, s^2), \quad
          a_k \leftarrow a_k \sum_g \pi_g \frac{N(x_g; m_k, s^2)}{\sum_j a_j N(x_g; m_j, s^2)}

with Gaussians at even nodes :math:`m_k`, as wide as 0.8 of their distance, and masses
:math:`\pi_g` of the grid's points. The step is that of Richardson and Lucy, each of which brings
the mixture nearer to the density, so that weights make up for the width of the Gaussians.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from scipy.ndimage import map_coordinates
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import norm
from sklearn.utils import check_random_state

from deconflow._types import Array, IntArray
from deconflow.checks import refuse_if
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.saving import refuse

#: How far the sum of saved values may be from one.
CLOSE = 1e-6
#: Distance from an edge, in steps, that counts as on it.
ON_THE_EDGE = 1e-9
UNBOUNDED = np.array([[-np.inf], [np.inf]])
#: Most nodes of a mixture per dimension.
NODES = {1: 240, 2: 80, 3: 24}
#: Least distance of nodes, in steps of the grid: nearer ones would follow its hats.
FEWEST_STEPS = 2.0
WIDTH = 0.8
ROUNDS, SETTLED = 200, 1e-7
#: Components are dropped that have less than this share of the mean weight.
NEGLIGIBLE = 1e-7
#: Most components.
MOST = 3000


@dataclass(frozen=True)
class GridDensity:
    """A density on a grid.

    Attributes
    ----------
    low, step : array
        ``(D,)``: the first grid point and the distance between two.
    values : array
        Density at the points, one axis per dimension. Where it is not zero at an edge, as at a
        bound of the truth, the hats there are cut.
    background : float
        Share ``b`` of the normal law.
    mean, factor : array
        ``(D,)`` and ``(D, D)``: the normal law's mean and Cholesky factor.
    bounds : array
        ``(2, D)``, or ``(2, 1)`` for all dimensions: where the truth can be at all, infinite where
        there is no bound; the normal law is cut to it, and its columns are then independent.
    """

    low: Array
    step: Array
    values: Array
    background: float
    mean: Array
    factor: Array
    bounds: Array = field(default_factory=UNBOUNDED.copy)

    def validate(self) -> None:
        """Raise unless this is a density: of what a file says that it is."""
        dim, factor = self.low.size, self.factor
        refuse("background", not 0 <= self.background <= 1, "a share")
        fit = self.low.shape == self.step.shape == self.mean.shape == (dim,) == (self.values.ndim,)
        refuse("step", not fit or not (self.step > 0).all(), "positive, one number per column")
        whole = (self.values >= 0).all() and abs(self.mass.sum() - 1) < CLOSE
        refuse("values", not whole, "a density")
        lower = factor.shape == (dim, dim) and (np.triu(factor, 1) == 0).all()
        refuse("factor", not lower or not (np.diag(factor) > 0).all(), "that of a normal law")

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.low)

    def log_prob(self, v: Array) -> Array:
        """Log density of ``(N, D)`` points."""
        place = ((v - self.low) / self.step).T
        last = np.array(self.values.shape)[:, None] - 1.0
        near = np.clip(place, 0.0, last)  # a bound itself is inside, whatever the rounding
        place = np.where(np.abs(near - place) < ON_THE_EDGE, near, place)
        inside = map_coordinates(self.values, place, order=1, mode="constant", cval=0.0)
        with np.errstate(divide="ignore"):
            log_grid = np.log(inside) + np.log1p(-self.background)
        return logsumexp([log_grid, self.log_behind(v)], axis=0)

    def log_behind(self, v: Array) -> Array:
        """Log density of the normal law behind the grid, with its share."""
        white = np.linalg.solve(self.factor, (v - self.mean).T)
        low, high = self._shares_of_bounds()
        with np.errstate(divide="ignore"):
            log_share = np.log(self.background) - np.log(np.diag(self.factor) * (high - low)).sum()
        log_p = log_share + norm.logpdf(white).sum(0)
        return np.where(((v >= self.bounds[0]) & (v <= self.bounds[1])).all(-1), log_p, -np.inf)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``: a grid point by its mass, moved within the hat around it."""
        rng = check_random_state(random_state)
        mass = np.cumsum(self.mass.ravel())
        chosen = np.searchsorted(mass, rng.uniform(size=n) * mass[-1], side="right")
        hat = rng.uniform(size=(2, n, self.dim)).sum(0) - 1
        v = self.folded(self.points(np.minimum(chosen, len(mass) - 1)) + self.step * hat)
        low, high = self._shares_of_bounds()
        free = (high - low == 1).all()
        white = rng.normal(size=v.shape) if free else ndtri(rng.uniform(low, high, size=v.shape))
        behind = self.mean + white @ self.factor.T
        return np.where(rng.uniform(size=(n, 1)) < self.background, behind, v)

    def _shares_of_bounds(self) -> Array:
        """Shares ``(2, D)`` of the normal law below each bound."""
        return ndtr((self.bounds - self.mean) / np.diag(self.factor))

    def marginal(self, dimensions: IntArray) -> "GridDensity":
        """Return the density of some dimensions, in the order given."""
        others = tuple(d for d in range(self.dim) if d not in dimensions)
        values = (self.values * self._edge_shares(others)).sum(axis=others)
        values = values * self.step[list(others)].prod()
        covariance = (self.factor @ self.factor.T)[np.ix_(dimensions, dimensions)]
        return GridDensity(
            self.low[dimensions],
            self.step[dimensions],
            values.transpose(np.argsort(np.argsort(dimensions))),
            self.background,
            self.mean[dimensions],
            np.asarray(np.linalg.cholesky(covariance), dtype=np.float64),
            np.broadcast_to(self.bounds, (2, self.dim))[:, dimensions],
        )

    def in_units(self, scale: Array, location: Array | float = 0.0) -> "GridDensity":
        """Return the density of ``location + scale * v``."""
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            values = self.values / scale.prod()
        refuse_if(
            not 1e-302 < values.max() < 1e302,
            f"Expected units in which densities of {self.dim} columns are between 1e-302 and "
            f"1e302; got values of w that scatter by about {scale.max():.1g}. Change the units.",
        )
        return GridDensity(
            location + self.low * scale,
            self.step * scale,
            values,
            self.background,
            location + self.mean * scale,
            self.factor * scale[:, None],
            location + self.bounds * scale,
        )

    @property
    def mass(self) -> Array:
        """Integral of the hat around each point, times the density there; they sum to one."""
        return self.values * self._edge_shares(range(self.dim)) * self.step.prod()

    def _edge_shares(self, dimensions: Iterable[int]) -> Array:
        """Share of each hat that lies within the grid: a half at an edge of a dimension."""
        along = [np.ones(n) for n in self.values.shape]
        for d in dimensions:
            along[d][[0, -1]] = 0.5
        return reduce(np.multiply, np.ix_(*along))

    def folded(self, v: Array) -> Array:
        """Fold points beyond the edges back: the halves of hats that are cut."""
        high = self.low + self.step * (np.array(self.values.shape) - 1)
        v = np.where(v < self.low, 2 * self.low - v, v)
        return np.where(v > high, 2 * high - v, v)

    def points(self, which: IntArray) -> Array:
        """Coordinates of some grid points, by their flat numbers."""
        return self.low + self.step * np.stack(np.unravel_index(which, self.values.shape), -1)


def refuse_unsuitable(data: Observations, name: str, most_columns: int) -> None:
    """Raise for too many columns, too few rows, and columns of one value."""
    word = "one column" if most_columns == 1 else f"at most {most_columns} columns"
    refuse_if(
        data.dim > most_columns,
        f"Expected {word} in w with {name}; got {data.dim}. "
        "Use XDGMM or FlowDeconvolver in more dimensions.",
    )
    refuse_if(
        len(data) < 2,
        f"Expected at least 2 rows in w to fit a density; got n_samples = {len(data)}.",
    )
    w = data.measured()
    constant = np.nanmax(w, axis=0) == np.nanmin(w, axis=0)
    refuse_if(
        constant.any(),
        "Expected values that differ in every column of w; "
        f"got one value in column {int(constant.argmax())}. Drop it.",
    )


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
