"""Atoms and a background: rows are weighed by how likely they are neither."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.core import EVERYTHING, Run
from deconflow.fits import FittedDensity, PartsFit, log_densities_of_parts
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.reductions.base import Known, Learned, PlainFit
from deconflow.trust import Rows, view
from deconflow.truth import GivenBackground, LocationScale, UniformBackground
from deconflow.xd import (
    fit_with_known_parts,
    lay_out,
    log_p,
    memberships,
    row_weights,
    shares_of_parts,
)

#: Rows that are less likely than this to be of the continuous part are not fitted.
LEAST_MEMBERSHIP = 1e-3
#: Rounds of curves and memberships, for atoms or a background with covariates.
CURVE_ROUNDS = 8
#: Rows whose scores give the standard errors.
MOST_SCORED = 20_000


@dataclass(frozen=True)
class PartsFound(Learned):
    """Shares of atoms and background; ``errors`` are standard errors of both, in this order."""

    atoms: Array
    atom_weights: Array
    background: UniformBackground | GivenBackground | None
    background_share: float
    errors: Array

    @classmethod
    def of(cls, known: Known, shares: Array, errors: Array) -> "PartsFound":
        """Take shares of the rows ``(J,)``; those of atoms become shares of the true values."""
        share = float(shares[-1]) if known.background is not None else 0.0
        atoms, rest = len(known.atoms), max(1.0 - share, 1e-300)
        errors = np.r_[errors[:atoms] / rest, errors[atoms:]]
        return cls(known.atoms, shares[:atoms] / rest, known.background, share, errors)

    def density(self, own: FittedDensity) -> PartsFit:
        """Return the density with its atoms and background."""
        answer = self._with(own)
        if own.replicates is not None:
            answer.replicates = own.replicates.changed(self._with)
        return answer

    def _with(self, own: Any) -> PartsFit:
        return PartsFit(own, self.atoms, self.atom_weights, self.background, self.background_share)

    def words(self) -> list[str]:
        """Return the shares."""
        points = [", ".join(f"{value:g}" for value in atom) for atom in self.atoms]
        what = [f"the true values are exactly {point}" for point in points]
        shares = list(self.atom_weights)
        if self.background is not None:
            what, shares = [*what, "the rows are background"], [*shares, self.background_share]
        return [
            f"An estimated {share:.1%}{'' if np.isnan(error) else f' +- {error:.1%}'} of {of}."
            for share, error, of in zip(shares, self.errors, what, strict=True)
        ]


@dataclass(frozen=True)
class Parts:
    """Reduction of true values with atoms, and of rows with a background."""

    known: Known
    facts = frozenset({"atoms", "background"})
    finds = PartsFound

    @property
    def name(self) -> str:
        """The facts that there are."""
        return " and ".join(sorted(self.known.traits & self.facts))

    @property
    def takes(self) -> frozenset[str]:
        """A background is a density of measured values, which limits and counts do not have."""
        measured = {"limits", "counts"} if self.known.background is not None else set()
        return EVERYTHING - {"selected", "beyond memory", *measured}

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows weighed by how likely they are of the continuous part."""
        densities = log_densities_of_parts(rows, self.known.atoms, self.known.background)
        pilot = fit_with_known_parts(rows, densities, run.reducing, run.threads)
        rest = log_p(pilot.mixture, lay_out(rows), run.threads)
        shares, errors = pilot.shares, np.full(len(densities), np.nan)
        q, own = memberships(shares, densities, rest)
        if rows.covariates is not None:
            shares, q = _by_curves(rows, densities, shares, q, own, run.threads)
        elif rows.noise.additive:
            errors = _errors(rows, densities, pilot.mixture, q, rest, own)
        weights, keep = row_weights(rows) * q[-1], q[-1] > LEAST_MEMBERSHIP
        if not keep.any():
            raise ValueError(
                "Expected rows that are neither at an atom nor background; got none. Leave out "
                "the atoms, or the background."
            )
        some = rows[keep].weighed(weights[keep])
        return some, _Pending(PartsFound.of(self.known, shares, errors), rows, densities, errors)


def _errors(
    rows: Observations,
    densities: Array,
    mixture: GaussianMixture,
    q: Array,
    rest: Array,
    own: Array,
) -> Array:
    """Standard errors ``(J,)`` of the shares, from scores of these and of the mixture together.

    ``q`` are memberships, ``rest`` and ``own`` log densities of the rest and of the rows.
    """
    some = np.sort(np.random.default_rng(0).permutation(len(rows))[:MOST_SCORED])
    few, of_rest = rows[some], q[-1][some, None]
    slopes = np.exp(densities - own) - np.exp(rest - own)
    scores = view(mixture, Rows.of(few, [few.measured()])).scores[:, 0] * of_rest
    scores[:, : mixture.n_components] -= of_rest * mixture.weights
    scores = np.column_stack([slopes[:, some].T, scores[:, 1:]])  # shares of components sum to one
    size = np.sqrt(np.square(scores).sum(0)) + 1e-300
    scores, weights = scores / size, row_weights(few)[:, None]
    inverse = np.linalg.pinv((weights * scores).T @ scores, hermitian=True)
    spread = np.linalg.norm((weights * scores) @ inverse, axis=0) / size
    return spread[: len(densities)] * np.sqrt(len(some) / len(rows))


def _by_curves(
    rows: Observations,
    densities: Array,
    shares: Array,
    q: Array,
    log_p_without: Array,
    threads: int | None,
) -> tuple[Array, Array]:
    """Return shares and memberships by curves of the covariates, where rows are likelier so."""
    weights, without, x = row_weights(rows), (shares, q), np.asarray(rows.given)
    unit = GaussianMixture(np.ones(1), np.zeros((1, rows.dim)), np.eye(rows.dim)[None])
    for _ in range(CURVE_ROUNDS):
        by_rest = np.maximum(weights * q[-1], 1e-6)
        curves = LocationScale.fit(rows.weighed(by_rest), x, rows.covariates.continuous)
        rest = log_p(unit, lay_out(curves.standardised(rows, x)), threads)
        rest = rest - curves.log_volume(rows, x)
        shares = shares_of_parts(shares, densities, rest, weights)
        q, found = memberships(shares, densities, rest)
    return (shares, q) if weights @ found > weights @ log_p_without else without


@dataclass(frozen=True)
class _Pending(Learned):
    """Parts whose shares are settled once there is a density of the rest."""

    start: PartsFound
    data: Observations
    densities: Array
    errors: Array

    def settled(self, own: FittedDensity) -> PartsFound:
        """Return the shares that go with the density of the rest."""
        found, rest = self.start, own.log_marginal(self.data).log_p
        shares = found.density(own).shares
        shares = shares_of_parts(shares, self.densities, rest, row_weights(self.data))
        return PartsFound.of(Known(None, found.atoms, found.background), shares, self.errors)
