"""Posteriors made of others: moved to other units, or with atoms and a background beside them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.checks import check_integer, check_seed
from deconflow.fits.one_column import quantile_beside_atoms
from deconflow.fits.posterior import ARRAYS, USUAL_DRAWS, Posterior
from deconflow.randomness import RandomState


class MovedPosterior(Posterior):
    r"""The posterior of :math:`v = m_i + \tau_i z`, from that of ``z``.

    Parameters
    ----------
    inner
        The posterior of ``z``.
    location, scale
        ``(N, D)``: ``m`` and ``tau`` of each row.
    """

    def __init__(self, inner: Posterior, location: Array, scale: Array, names: list[str]) -> None:
        self._inner, self._location, self._scale = inner, location, scale
        self.names, self._exact = names, inner._exact
        self.mean, self.effective_sample_size = self._moved(inner.mean), inner.effective_sample_size
        self.covariance = inner.covariance * scale[:, :, None] * scale[:, None, :]

    @cached_property
    def samples(self) -> Array:
        """Draws ``(N, S, D)``, the same at every call."""
        return self._moved_draws(self._inner.samples)

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""
        return self._moved_draws(self._inner.sample(n_samples, random_state))

    def _draw_by(self, seed: int) -> None:
        self._inner._draw_by(seed)

    def _take(self, chosen: NDArray[np.int64]) -> MovedPosterior:
        return MovedPosterior(
            self._inner[chosen], self._location[chosen], self._scale[chosen], self.names
        )

    def _marginal(self, keep: NDArray[np.int64]) -> MovedPosterior:
        names = [self.names[d] for d in keep]
        inner = self._inner.marginal(keep)
        return MovedPosterior(inner, self._location[:, keep], self._scale[:, keep], names)

    def _moved_draws(self, draws: Array) -> Array:
        """Move draws ``(N, S, D)``."""
        moved = self._scale[:, None] * draws
        moved += self._location[:, None]
        return moved

    def _moved(self, values: Array) -> Array:
        """Move values ``(..., N, D)``."""
        moved = self._scale * values
        moved += self._location
        return moved

    def _quantiles(self, shares: Array) -> Array:
        return self._moved(self._inner._quantiles(shares))

    def _quantiles_at(self, shares: Array) -> Array:
        return self._moved(self._inner._quantiles_at(shares))

    def _probability(self, lower: Array, upper: Array) -> Array:
        ends = ((end - self._location) / self._scale for end in (lower, upper))
        return self._inner._probability(*ends)


class PartedPosterior(Posterior):
    """The posterior of a truth that may sit exactly at an atom, or of rows that may be background.

    All answers about the truth hold for a row that is not background.

    Attributes
    ----------
    probability_of_background : array
        ``(N,)``: the probability that a row is background, and tells nothing of a truth.
    probability_of_atoms : array
        ``(N, A)``: the probability of each atom, for a row that is not background.
    continuous : Posterior
        The posterior of a truth that is at no atom.
    """

    def __init__(
        self, continuous: Posterior, atoms: Array, of_atoms: Array, of_background: Array
    ) -> None:
        self.continuous, self._atoms = continuous, atoms
        self.probability_of_atoms, self.probability_of_background = of_atoms, of_background
        self.names = continuous.names
        self._exact = continuous._exact
        self.effective_sample_size = continuous.effective_sample_size
        self._rest = np.maximum(0.0, 1.0 - of_atoms.sum(1))
        self.mean = self._rest[:, None] * continuous.mean + of_atoms @ atoms
        self.covariance = self._whole_covariance()

    def _whole_covariance(self) -> Array:
        """Covariances ``(N, D, D)`` of the continuous part and the atoms together."""
        mean, own, rest = self.mean, self.continuous.mean, self._rest[:, None, None]
        within, total = self.continuous.covariance, np.empty((*mean.shape, mean.shape[1]))
        for some in row_slices(len(mean), ARRAYS * mean.shape[1] ** 2):
            apart = own[some] - mean[some]
            spread = within[some] + apart[:, :, None] * apart[:, None]
            total[some] = rest[some] * spread
            for atom, chance in zip(self._atoms, self.probability_of_atoms[some].T, strict=True):
                away = atom - mean[some]
                total[some] += chance[:, None, None] * away[:, :, None] * away[:, None]
        return total

    @cached_property
    def samples(self) -> Array:
        """Draws ``(N, S, D)``, the same at every call."""
        return self._with_atoms(self.continuous.samples, np.random.RandomState(self._seed))

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``; some of them exactly at an atom."""
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        rng = check_random_state(random_state)
        return self._with_atoms(self.continuous.sample(n_samples, rng), rng)

    def _with_atoms(self, draws: Array, rng: np.random.RandomState) -> Array:
        edges = np.cumsum(self.probability_of_atoms, axis=1)
        drawn, each = draws.copy(), draws.shape[1]
        for some in row_slices(len(draws), ARRAYS * each * (1 + len(self._atoms))):
            uniform = rng.uniform(size=(some.stop - some.start, each, 1))
            which = (edges[some, None] <= uniform).sum(2)
            for a, atom in enumerate(self._atoms):
                drawn[some][which == a] = atom
        return drawn

    def _draw_by(self, seed: int) -> None:
        self._seed = seed
        self.continuous._draw_by(seed)

    def _take(self, chosen: NDArray[np.int64]) -> PartedPosterior:
        of_atoms, of_background = self.probability_of_atoms, self.probability_of_background
        inner = self.continuous[chosen]
        return PartedPosterior(inner, self._atoms, of_atoms[chosen], of_background[chosen])

    def _marginal(self, keep: NDArray[np.int64]) -> PartedPosterior:
        inner, chances = self.continuous.marginal(keep), self.probability_of_atoms
        return PartedPosterior(inner, self._atoms[:, keep], chances, self.probability_of_background)

    def _probability(self, lower: Array, upper: Array) -> Array:
        found = self._rest[:, None] * self.continuous._probability(lower, upper)
        for a, atom in enumerate(self._atoms):
            found = found + self.probability_of_atoms[:, a, None] * (
                (lower <= atom) & (atom <= upper)
            )
        return found.clip(0.0, 1.0)

    def _quantiles(self, shares: Array) -> Array:
        if not len(self._atoms):
            return self.continuous._quantiles(shares)
        below = self._below_atoms()
        return np.stack([self._quantile(np.full_like(below[0][0], q), *below) for q in shares])

    def _quantiles_at(self, shares: Array) -> Array:
        if not len(self._atoms):
            return self.continuous._quantiles_at(shares)
        return self._quantile(shares, *self._below_atoms())

    def _below_atoms(self) -> tuple[Array, Array]:
        """Probabilities ``(A, N, D)`` of values below each atom, and of those or the atom."""
        places = [np.broadcast_to(atom, self.mean.shape) for atom in self._atoms]
        least = np.full(self.mean.shape, -np.inf)
        upto = np.stack([self._probability(least, place) for place in places])
        under = np.stack([self._probability(least, np.nextafter(at, -np.inf)) for at in places])
        return under, upto

    def _quantile(self, shares: Array, under: Array, upto: Array) -> Array:
        """Quantiles ``(N, D)``: the atom where its jump holds the share, else of the rest."""
        chances = self.probability_of_atoms.T[:, :, None]
        of_rest = self.continuous._quantiles_at
        return quantile_beside_atoms(shares, self._atoms, chances, under, upto, of_rest)
