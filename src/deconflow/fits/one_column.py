"""The distribution of one column of the truth: its cumulative probabilities and quantiles."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.integrate import cumulative_trapezoid, trapezoid
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.fits.replicates import Answer
from deconflow.mixtures import GaussianMixture
from deconflow.randomness import RandomState

#: Draws that say where a density is, and how much wider than these a table of it is.
DRAWS, PAD = 20_000, 0.05
#: Points of a table: so many evenly spaced, and so many where the density is high.
EVEN_POINTS, DENSE_POINTS = 1000, 1000


class OneColumn(ABC):
    """Density, cumulative probability, quantiles, draws and moments of one column.

    Attributes
    ----------
    ends : (float, float)
        Between which it lies.
    mean, sd : float
        Its mean and standard deviation.
    """

    ends: tuple[float, float]
    mean: float
    sd: float

    @abstractmethod
    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""

    @abstractmethod
    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""

    @abstractmethod
    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``, which are between 0 and 1."""

    @abstractmethod
    def sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n,)``."""


class MixtureColumn(OneColumn):
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
        return self._in_pieces(self._quantiles, shares)

    def sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n,)``."""
        return self.mixture.sample(n, random_state)[:, 0]

    def _quantiles(self, shares: Array) -> Array:
        """Quantiles ``(Q,)``: as those of so many rows that have the same mixture."""
        own, count = self.mixture, len(shares)
        rows = GaussianMixture(
            np.broadcast_to(own.weights, (count, *own.weights.shape)),
            np.broadcast_to(own.means, (count, *own.means.shape)),
            np.broadcast_to(own.covariances, (count, *own.covariances.shape)),
        )
        return rows.quantiles_at(shares[:, None])[:, 0]

    def _in_pieces(self, question: Any, values: Array) -> Array:
        flat = values.ravel()
        step = rows_at_once(5 * self.mixture.n_components)  # arrays on the way
        parts = [question(flat[lo : lo + step]) for lo in range(0, len(flat), step)]
        return np.concatenate([np.empty(0), *parts]).reshape(values.shape)


class TabulatedColumn(OneColumn):
    """A density at points, linear between them and zero beyond, with an integral of one.

    Attributes
    ----------
    points, density, below : array
        ``(P,)``: points in ascending order, the density there, and the probability up to each.
    """

    def __init__(self, points: Array, density: Array) -> None:
        below = cumulative_trapezoid(density, points, initial=0.0)
        self.points, self.density, self.below = points, density / below[-1], below / below[-1]
        self.ends = float(points[0]), float(points[-1])
        self.mean = float(trapezoid(points * self.density, points))
        square = np.square(points - self.mean)
        self.sd = float(np.sqrt(trapezoid(square * self.density, points)))

    @classmethod
    def of(cls, density: Answer, points: Array) -> "TabulatedColumn":
        """Tabulate a density of one column at points ``(P,)``."""
        return cls(points, np.exp(density.log_prob(points[:, None])))

    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""
        return np.interp(x, self.points, self.density, left=0.0, right=0.0)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return np.interp(x, self.points, self.below)

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``."""
        return np.interp(shares, self.below, self.points)

    def sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n,)``."""
        return self.quantile(check_random_state(random_state).uniform(size=n))


class ColumnWithAtoms(OneColumn):
    """A distribution with atoms beside it, which have no density.

    Parameters
    ----------
    continuous
        What is at no atom.
    atoms, weights
        ``(A,)``: where the atoms are, and the probability of each.
    """

    def __init__(self, continuous: OneColumn, atoms: Array, weights: Array) -> None:
        self.continuous = continuous
        self.atoms, into = np.unique(atoms, return_inverse=True)
        self.weights = np.bincount(into, weights).astype(np.float64)
        self.rest = max(1.0 - float(weights.sum()), 1e-300)
        low, high = continuous.ends
        self.ends = min(low, *self.atoms), max(high, *self.atoms)
        self.mean = self.rest * continuous.mean + float(self.weights @ self.atoms)
        spread = continuous.sd**2 + (continuous.mean - self.mean) ** 2
        apart = self.weights @ np.square(self.atoms - self.mean)
        self.sd = float(np.sqrt(self.rest * spread + apart))

    def pdf(self, x: Array) -> Array:
        """Density of what is at no atom, with its share."""
        return self.rest * self.continuous.pdf(x)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return self.rest * self.continuous.cdf(x) + (self.atoms <= x[..., None]) @ self.weights

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``: an atom where its jump holds the share."""
        upto = self.cdf(self.atoms)
        return quantile_beside_atoms(
            shares, self.atoms, self.weights, upto - self.weights, upto, self.continuous.quantile
        )

    def sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n,)``, some exactly at an atom."""
        rng = check_random_state(random_state)
        return self.quantile(rng.uniform(np.finfo(float).tiny, 1.0, size=n))


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
