"""The distribution of one column of the truth: cumulative probabilities, quantiles, and scipy's."""

from typing import Any

import numpy as np
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.stats import rv_continuous

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture

#: Draws that say where a density is, and how much wider than these a table of it is.
DRAWS, PAD = 20_000, 0.05
#: Points of a table: so many evenly spaced, and so many where the density is high.
EVEN_POINTS, DENSE_POINTS = 1000, 1000


class MixtureColumn:
    """A mixture of Gaussians in one dimension: closed forms."""

    ends = (-np.inf, np.inf)

    def __init__(self, mixture: GaussianMixture) -> None:
        self.mixture = mixture
        self.mean, self.sd = float(mixture.mean[0]), float(mixture.sd[0])

    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""
        return self._in_pieces(lambda some: self.mixture.pdf(0, some), x)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return self._in_pieces(lambda some: self.mixture.cdf(0, some), x)

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``."""
        return self._in_pieces(lambda some: self.mixture.quantiles_at(some[:, None])[:, 0], shares)

    def _in_pieces(self, question: Any, values: Array) -> Array:
        flat = values.ravel()
        pieces = row_slices(len(flat), 5 * self.mixture.n_components)  # arrays on the way
        return np.concatenate([np.empty(0), *(question(flat[some]) for some in pieces)]).reshape(
            values.shape
        )


class TabulatedColumn:
    """A density at points, linear between them and zero beyond, with an integral of one.

    Parameters
    ----------
    density
        What has ``log_prob``, of one dimension.
    points
        ``(P,)``, in ascending order.
    """

    def __init__(self, density: Any, points: Array) -> None:
        height = np.exp(density.log_prob(points[:, None]))
        below = cumulative_trapezoid(height, points, initial=0.0)
        self.points, self.density, self.below = points, height / below[-1], below / below[-1]
        self.ends = float(points[0]), float(points[-1])
        self.mean = float(trapezoid(points * self.density, points))
        square = np.square(points - self.mean)
        self.sd = float(np.sqrt(trapezoid(square * self.density, points)))

    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""
        return np.interp(x, self.points, self.density, left=0.0, right=0.0)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return np.interp(x, self.points, self.below)

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``."""
        return np.interp(shares, self.below, self.points)


#: A column that has a density.
SmoothColumn = MixtureColumn | TabulatedColumn


class ColumnWithAtoms:
    """A distribution with atoms beside it, which have no density.

    Parameters
    ----------
    continuous
        The column of what is at no atom.
    atoms, weights
        ``(A,)``: where the atoms are, and the probability of each.
    """

    def __init__(self, continuous: Any, atoms: Array, weights: Array) -> None:
        self.continuous = continuous
        self.atoms, into = np.unique(atoms, return_inverse=True)
        self.weights = np.bincount(into, weights).astype(np.float64)
        self.rest = max(1.0 - float(weights.sum()), 1e-300)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return self.rest * self.continuous.cdf(x) + (self.atoms <= x[..., None]) @ self.weights

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``: an atom where its jump holds the share."""
        upto = self.cdf(self.atoms)
        return quantile_beside_atoms(
            shares, self.atoms, self.weights, upto - self.weights, upto, self.continuous.quantile
        )


def quantile_beside_atoms(
    shares: Array, atoms: Array, weights: Array, under: Array, upto: Array, of_rest: Any
) -> Array:
    """Quantiles at ``shares``: an atom where its jump holds the share, else those of the rest.

    Parameters
    ----------
    shares
        Of any shape.
    atoms, weights, under, upto
        Each atom's place and probability, and the probability of all below it without it and with
        it: the first axis is that of the atoms, the others go with those of the shares.
    of_rest
        Gives quantiles of the rest.
    """
    first = (len(atoms), *[1] * shares.ndim)
    each = [x if x.ndim > 1 else x.reshape(first) for x in (atoms, weights, under, upto)]
    places, chances, without, including = each
    passed = np.where(including < shares, chances, 0.0).sum(0)
    rest = np.maximum(1.0 - chances.sum(0), 1e-300)
    found = of_rest(np.clip((shares - passed) / rest, 1e-12, 1 - 1e-12))
    for place, low, high in zip(places, without, including, strict=True):
        found = np.where((low < shares) & (shares <= high), place, found)
    return found


def fine_grid(density: Any, even: int = EVEN_POINTS, dense: int = DENSE_POINTS) -> Array:
    """Points ``(P,)`` to integrate a density of one column over, within the ends of the truth.

    Some are evenly spaced, some are where the density is high.
    """
    draws = density.sample(DRAWS, 0)[:, 0]
    pad = PAD * (draws.max() - draws.min())
    low, high = (float(end[0]) for end in density.ends)
    low, high = max(draws.min() - pad, low), min(draws.max() + pad, high)
    inner = np.quantile(draws, (np.arange(dense) + 0.5) / dense)
    return np.unique(np.concatenate([np.linspace(low, high, even), inner]))


class ScipyColumn(rv_continuous):
    """A column as scipy's base class needs it."""

    def __init__(self, column: SmoothColumn, **options: Any) -> None:
        self._column = column
        options["a"], options["b"] = column.ends
        super().__init__(**options)

    def _updated_ctor_param(self) -> dict[str, Any]:
        """Return what scipy needs to make a copy, as it does to freeze."""
        return {**super()._updated_ctor_param(), "column": self._column}

    def _pdf(self, x: Array) -> Array:
        return self._column.pdf(np.asarray(x, dtype=np.float64))

    def _cdf(self, x: Array) -> Array:
        return self._column.cdf(np.asarray(x, dtype=np.float64))

    def _ppf(self, q: Array) -> Array:
        return self._column.quantile(np.asarray(q, dtype=np.float64))

    def _stats(self) -> tuple[float, float, None, None]:
        return self._column.mean, self._column.sd**2, None, None
