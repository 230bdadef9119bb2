"""Posteriors made of others: moved to other units, or with atoms and a background."""

from dataclasses import dataclass

import numpy as np

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.fits.one_column import quantile_beside_atoms
from deconflow.fits.posterior import ARRAYS, Posterior


@dataclass(frozen=True, eq=False, repr=False)
class MovedPosterior(Posterior):
    r"""The posterior of :math:`v = m_i + \tau_i z`, from that of ``z``.

    Attributes
    ----------
    inner : Posterior
        The posterior of ``z``.
    location, scale : array
        ``(N, D)``: ``m`` and ``tau`` of each row.
    """

    inner: Posterior
    location: Array
    scale: Array

    BY_ROW = (*Posterior.BY_ROW, "inner", "location", "scale")
    BY_COLUMN = (*Posterior.BY_COLUMN, "inner", "location", "scale")

    @classmethod
    def of(
        cls, inner: Posterior, location: Array, scale: Array, names: list[str]
    ) -> "MovedPosterior":
        """Move the moments."""
        mean = location + scale * inner.mean
        covariance = inner.covariance * scale[:, :, None] * scale[:, None, :]
        return cls(
            names, mean, covariance, inner.effective_sample_size, inner, location, scale,
            n_samples=inner.n_samples, seed=inner.seed,
        )  # fmt: skip

    @property
    def exact(self) -> bool:
        """Whether the posterior of ``z`` is."""
        return self.inner.exact

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        moved = self.scale[:, None] * self.inner.sample(n_samples, rng)
        moved += self.location[:, None]
        return moved

    def _quantiles(self, shares: Array) -> Array:
        return self.location + self.scale * self.inner._quantiles(shares)

    def _probability(self, lower: Array, upper: Array) -> Array:
        ends = ((end - self.location) / self.scale for end in (lower, upper))
        return self.inner._probability(*ends)


@dataclass(frozen=True, eq=False, repr=False)
class PartedPosterior(Posterior):
    """The posterior of a true value that may be exactly at an atom, or of a row of background.

    All answers about the true value hold for a row that is not background.

    Attributes
    ----------
    continuous : Posterior
        The posterior of a true value that is at no atom.
    atoms : array
        ``(A, D)``.
    probability_of_atoms : array
        ``(N, A)``: the probability of each atom, for a row that is not background.
    probability_of_background : array
        ``(N,)``: the probability that a row is background, and measures no true value.
    """

    continuous: Posterior
    atoms: Array
    probability_of_atoms: Array
    probability_of_background: Array

    BY_ROW = (
        *Posterior.BY_ROW, "continuous", "probability_of_atoms", "probability_of_background",
    )  # fmt: skip
    BY_COLUMN = (*Posterior.BY_COLUMN, "continuous", "atoms")

    @classmethod
    def of(
        cls,
        continuous: Posterior,
        atoms: Array,
        of_atoms: Array,
        of_background: Array,
        seed: int = 0,
    ) -> "PartedPosterior":
        """Find the moments of the continuous part and the atoms together."""
        rest = np.maximum(0.0, 1.0 - of_atoms.sum(1))
        mean = rest[:, None] * continuous.mean + of_atoms @ atoms
        covariance = np.empty((*mean.shape, mean.shape[1]))
        for some in row_slices(len(mean), ARRAYS * mean.shape[1] ** 2):
            apart = continuous.mean[some] - mean[some]
            spread = continuous.covariance[some] + apart[:, :, None] * apart[:, None]
            covariance[some] = rest[some, None, None] * spread
            for atom, chance in zip(atoms, of_atoms[some].T, strict=True):
                away = atom - mean[some]
                covariance[some] += chance[:, None, None] * away[:, :, None] * away[:, None]
        return cls(
            continuous.names, mean, covariance, continuous.effective_sample_size,
            continuous, atoms, of_atoms, of_background,
            n_samples=continuous.n_samples, seed=seed,
        )  # fmt: skip

    @property
    def exact(self) -> bool:
        """Whether the continuous part is."""
        return self.continuous.exact

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        edges = np.cumsum(self.probability_of_atoms, axis=1)
        drawn = self.continuous.sample(n_samples, rng).copy()
        for some in row_slices(len(drawn), ARRAYS * n_samples * (1 + len(self.atoms))):
            uniform = rng.uniform(size=(some.stop - some.start, n_samples, 1))
            which = (edges[some, None] <= uniform).sum(2)
            for a, atom in enumerate(self.atoms):
                drawn[some][which == a] = atom
        return drawn

    def _probability(self, lower: Array, upper: Array) -> Array:
        rest = np.maximum(0.0, 1.0 - self.probability_of_atoms.sum(1))
        found = rest[:, None] * self.continuous._probability(lower, upper)
        for atom, chance in zip(self.atoms, self.probability_of_atoms.T, strict=True):
            found = found + chance[:, None] * ((lower <= atom) & (atom <= upper))
        return found.clip(0.0, 1.0)

    def _quantiles(self, shares: Array) -> Array:
        """Quantiles: the atom where its jump holds the share, else of the rest."""
        if not len(self.atoms):
            return self.continuous._quantiles(shares)
        places = [np.broadcast_to(atom, self.mean.shape) for atom in self.atoms]
        least = np.full(self.mean.shape, -np.inf)
        upto = np.stack([self._probability(least, place) for place in places])
        under = np.stack([self._probability(least, np.nextafter(at, -np.inf)) for at in places])
        chances = self.probability_of_atoms.T[:, :, None]

        def of_rest(one: Array) -> Array:
            return self.continuous._quantiles(one[None])[0]

        return np.stack([
            quantile_beside_atoms(one, self.atoms, chances, under, upto, of_rest) for one in shares
        ])  # fmt: skip
