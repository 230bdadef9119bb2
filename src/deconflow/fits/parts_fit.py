"""A density with atoms beside it, and rows that are background."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.evaluation import Estimate
from deconflow.fits.changed_posteriors import PartedPosterior
from deconflow.fits.fitted import Columns, FittedDensity
from deconflow.fits.one_column import ColumnWithAtoms, OneColumn
from deconflow.fits.posterior import Posterior, as_seed
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.truth import Background
from deconflow.xd import memberships

#: What is taken as the error of exact values, so that they are at an atom for sure, or not.
EXACT = 1e-100


class PartsFit(FittedDensity):
    r"""The truth :math:`\sum_a \alpha_a \delta_a + (1 - \sum \alpha) \, p(v)`, and a background.

    A share of the *rows* is background; all answers about the truth are about the others. Log
    densities are those of the continuous part with its share: atoms have no density.

    Attributes
    ----------
    inner : FittedDensity
        The continuous part.
    atoms : array
        ``(A, D)``.
    atom_weights : array
        ``(A,)``: the share of the truths at each atom.
    background : callable or None
        Gives the log density of rows as background.
    background_share : float
        The share of the rows that is background.
    """

    def __init__(
        self,
        inner: FittedDensity,
        atoms: Array,
        atom_weights: Array,
        background: Background | None = None,
        background_share: float = 0.0,
    ) -> None:
        self.inner, self.atoms, self.atom_weights = inner, atoms, atom_weights
        self.background, self.background_share = background, background_share
        self.names, self.threads = inner.names, inner.threads

    @property
    def _log_rest(self) -> float:
        return float(np.log(max(1e-300, 1.0 - self.atom_weights.sum())))

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        return self.inner.ends

    def _log_prob(self, v: Array) -> Array:
        return self.inner._log_prob(v) + self._log_rest

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``; some exactly at an atom."""
        rng = check_random_state(random_state)
        drawn = self.inner._sample(n, rng).copy()
        edges = np.cumsum(self.atom_weights)
        which = edges.searchsorted(rng.uniform(size=n), side="right")
        at = which < len(self.atoms)
        drawn[at] = self.atoms[which[at]]
        return drawn

    def given(self, x: Any) -> "PartsFit":
        """Return the density for one value of the covariates."""
        background, share = self.background, self.background_share
        return PartsFit(self.inner.given(x), self.atoms, self.atom_weights, background, share)

    def known(self, data: Observations) -> Array:
        """Log density ``(J, N)`` of rows under each atom, and as background."""
        return log_densities_of_parts(data, self.atoms, self.background)

    @property
    def shares(self) -> Array:
        """Shares ``(J,)`` of the rows, in the order of :meth:`known`."""
        own = (1.0 - self.background_share) * self.atom_weights
        return own if self.background is None else np.r_[own, self.background_share]

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row: atoms, background and all."""
        rest = self.inner.log_marginal(data, n_draws, random_state)
        q, log_p = memberships(self.shares, self.known(data), rest.log_p)
        return Estimate(log_p, q[-1] * rest.error, q[-1] * rest.bias)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, with the probabilities of the parts."""
        seed = as_seed(random_state)
        inner = self.inner.posterior(data, n_samples, n_proposals, seed)
        return PartedPosterior.of(inner, self.atoms, *self.memberships(data, seed), seed)

    def memberships(self, data: Observations, random_state: RandomState = 0) -> tuple[Array, Array]:
        """Probability that a row is background ``(N,)``, else that it is each atom ``(N, A)``."""
        rest = self.inner.log_marginal(data, None, random_state).log_p
        q, _ = memberships(self.shares, self.known(data), rest)
        count = len(self.atoms)
        of_background = q[count] if self.background is not None else np.zeros(len(data))
        signal = np.maximum(q[:count].sum(0) + q[-1], 1e-300)
        return (q[:count] / signal).T, of_background

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the continuous part is."""
        return self.inner.exact(gaussian_noise=gaussian_noise)

    def averaged(self) -> list[FittedDensity]:
        """Return the densities that the continuous part is an average of."""
        return self.inner.averaged()

    def _marginal(self, columns: Columns) -> "PartsFit":
        return PartsFit(self.inner._marginal(columns), self.atoms[:, columns], self.atom_weights)

    def _one_column(self) -> OneColumn:
        if not len(self.atoms):
            return self.inner._one_column()
        return ColumnWithAtoms(self.inner._one_column(), self.atoms[:, 0], self.atom_weights)

    def measuring(self, rows: Observations) -> "PartsFit":
        """Return the density for such rows, of which none is background."""
        return PartsFit(self.inner.measuring(rows), self.atoms, self.atom_weights)


def log_densities_of_parts(
    data: Observations, atoms: Array, background: Background | None
) -> Array:
    """Log density ``(J, N)`` of each row at each atom, and as background if there is one."""
    parts = list(log_densities_of_atoms(data, atoms))
    if background is not None:
        parts.append(background(data))
    return np.array(parts).reshape(-1, len(data))


def log_densities_of_atoms(data: Observations, atoms: Array) -> Array:
    """Log density ``(A, N)`` of each row for a truth at each atom.

    An exact value at an atom has an infinite one, which is a large number here.
    """
    if not len(atoms):
        return np.empty((0, len(data)))
    if isinstance(data.noise, GaussianNoise) and (data.noise.variance() == 0).any():
        data = replace(data, noise=data.noise.floor(EXACT))  # at an atom, or not: by its sign
    each = np.broadcast_to(atoms[:, None], (len(atoms), len(data), atoms.shape[1]))
    return data.log_likelihood(each)
