"""The contract of reductions: facts that are taken out of the rows before an engine fits them.

A reduction has a ``name``; ``facts``, the traits that it is about; ``takes``, those that the rows
may have with these; ``finds``, the type of what it learns; and ``prepare(rows, run, fit)``, which
returns changed rows and the way back, a :class:`Learned`.

Here are those that change rows. Errors are learned first, so that nothing after this knows they
were. With atoms or a background rows are weighed by how likely they are neither. Location and scale
of the true values, curves of covariates, are taken out of the rows. With bounds rows are fitted
with their mirror images, and densities are folded back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.core import EVERYTHING, Run
from deconflow.errors import LearnedErrors, learn_errors
from deconflow.fits import FittedDensity, GivenFit, PartsFit, folded, log_densities_of_parts
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, check_groups
from deconflow.truth import (
    MOST_MIRRORS,
    Bounds,
    Covariates,
    GivenBackground,
    LocationScale,
    UniformBackground,
    as_atoms,
    as_background,
    as_bounds,
)
from deconflow.xd import (
    fit_with_known_parts,
    lay_out,
    log_p,
    memberships,
    row_weights,
    shares_of_parts,
)

#: A fit of rows without the fact that a reduction is about.
PlainFit = Callable[[Observations, Run], FittedDensity]


class Learned:
    """The way back: what a reduction has learned from the rows of a fit."""

    def settled(self, own: FittedDensity) -> "Learned":
        """Learn the rest, if there is any, from the density of the changed rows."""
        return self

    def density(self, own: FittedDensity) -> FittedDensity:
        """Return the density of true values, from that of the changed rows."""
        return own

    def rows(self, rows: Observations) -> Observations:
        """Change other rows as those of the fit were."""
        return rows

    def words(self) -> list[str]:
        """Return sentences for the user."""
        return []


@dataclass(frozen=True)
class Known:
    """Facts about the true values: as users give them, or checked for rows.

    Attributes
    ----------
    bounds
        Where the true values can be at all.
    atoms
        Points at which a share of them lies exactly.
    background
        The distribution of rows that measure no true value.
    """

    bounds: Any = None
    atoms: Any = None
    background: Any = None

    @property
    def traits(self) -> frozenset[str]:
        """Names of the facts that there are."""
        given = frozenset(name for name, fact in vars(self).items() if fact is not None)
        return given if np.size(self.atoms) > 0 else given - {"atoms"}

    def bounds_of(self, rows: Observations) -> Bounds | None:
        """Return the bounds that were given, and those that what was measured implies."""
        given, ends = as_bounds(self.bounds, rows.names), rows.noise.truth_ends
        if ends is None:
            return given
        free = np.full(rows.latent_dim, np.inf)
        return (Bounds(-free, free) if given is None else given).with_ends(ends, rows.names)

    def checked(self, rows: Observations) -> "Known":
        """Return the facts for these rows, which must agree with them."""
        if not any(fact is not None for fact in (*vars(self).values(), rows.noise.truth_ends)):
            return Known(atoms=np.empty((0, rows.latent_dim)))
        bounds = self.bounds_of(rows)
        if bounds is not None:
            bounds.check_rows(rows, rows.names, background=self.background is not None)
        return Known(
            bounds, as_atoms(self.atoms, rows.names, bounds), as_background(self.background, rows)
        )


def within(rows: Observations, bounds: Bounds | None) -> Observations:
    """Return rows whose noise, where it depends on them, has the ends of the true values."""
    ends = rows.noise.truth_ends
    if rows.noise.additive or (bounds is None and ends is None):
        return rows
    if bounds is not None and rows.projection is not None:
        raise ValueError(
            "Expected no projection of values with a likelihood, where the true values have "
            "bounds; got one. Leave out the bounds."
        )
    free = np.full(rows.dim, np.inf)
    low, high = (-free, free) if ends is None else ends
    if bounds is None or (bounds.lower < low).any() or (bounds.upper > high).any():
        raise ValueError(
            "Expected a model whose true values end where those of what was measured do, at "
            f"{low} and {high}; got one that goes on. Fit with such rows, or bounds=."
        )
    return replace(rows, noise=rows.noise.within(bounds.lower, bounds.upper))


#: Rows of covariates that a model keeps: methods without covariates average over these.
MOST_KEPT = 200


@dataclass(frozen=True)
class ErrorsFound(Learned):
    """What was learned of the errors; other rows get the same corrections."""

    errors: LearnedErrors

    def rows(self, rows: Observations) -> Observations:
        """Return rows with the errors as they were learned."""
        if rows.uncertain is None:
            raise ValueError(self.errors.missing())
        return self.errors.applied(rows.uncertain, replace(rows, uncertain=None))

    def words(self) -> list[str]:
        """Return what was learned, a line for each kind."""
        return self.errors.in_words()


@dataclass(frozen=True)
class LearnErrors:
    """Reduction of rows whose errors are partly unknown."""

    known: Known
    name = "errors to learn"
    facts = frozenset({"errors to learn"})
    finds = ErrorsFound
    takes = EVERYTHING - {"selected", "beyond memory", "limits", "counts"}

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows with the errors that they are found to have."""
        free: Any = rows.uncertain
        of_errors = rows.covariates is not None and rows.covariates.with_errors
        if of_errors and free.kinds != ("groups",):
            raise ValueError(
                f'Expected errors that are known for given="noise"; got {free.as_said()}. They '
                "are learned from rows whose true values do not depend on their errors."
            )
        data = replace(rows, uncertain=None)
        errors = learn_errors(free, data, rows.measured_names, run.rng(), run.threads)
        if rows.groups is None and free.replicates is not None:
            data = replace(data, groups=check_groups(rows.w, free.replicates, "replicates"))
        return errors.applied(free, data), ErrorsFound(errors)


def encoded(rows: Observations) -> Observations:
    """Return rows with their covariates as numbers, and how these were made."""
    found = Covariates.fit(rows.covariates, rows, rows.measured_names)
    return replace(rows, given=found.encode(rows.covariates, rows), covariates=found)


@dataclass(frozen=True)
class CurvesFound(Learned):
    """Curves of location and scale, and covariates of some of the fitted rows."""

    covariates: Covariates
    curves: LocationScale
    kept: Array

    def density(self, own: FittedDensity) -> FittedDensity:
        """Return the density given covariates."""
        return GivenFit(own, self.curves, self.covariates, self.kept)

    def rows(self, rows: Observations) -> Observations:
        """Return rows with their covariates as numbers."""
        if rows.covariates is None:
            raise ValueError(self.covariates.missing())
        return replace(rows, given=self.covariates.encode(rows.covariates, rows), covariates=None)

    def words(self) -> list[str]:
        """Return what depends on which covariates."""
        names = ", ".join(self.covariates.names)
        return [f"Location and spread of the true values are curves of {names}."]


@dataclass(frozen=True)
class Curves:
    """Reduction of rows with covariates."""

    known: Known
    name = "covariates"
    facts = frozenset({"covariates"})
    finds = CurvesFound
    takes = EVERYTHING - {
        "bounds", "projected", "limits", "counts", "selected", "beyond memory",
    }  # fmt: skip

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows without their location and scale."""
        chosen = np.sort(run.reducing.permutation(len(rows))[:MOST_KEPT])
        x = np.asarray(rows.given)
        curves = LocationScale.fit(rows, x, rows.covariates.continuous)
        data = replace(curves.standardised(rows, x), covariates=None)
        return data, CurvesFound(rows.covariates, curves, x[chosen])


@dataclass(frozen=True)
class Folding(Learned):
    """The way back from mirror images."""

    bounds: Bounds

    def density(self, own: FittedDensity) -> FittedDensity:
        """Return the density within the bounds."""
        return folded(own, self.bounds)


@dataclass(frozen=True)
class Mirrors:
    """Reduction of true values with bounds."""

    known: Known
    name = "bounds"
    facts = frozenset({"bounds"})
    finds = Folding
    takes = EVERYTHING - {"limits", "covariates", "beyond memory"}

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows with their mirror images."""
        bounds = self.known.bounds
        bounds.refuse_many()
        data = bounds.mirrored(rows, int(run.reducing.randint(2**30)))
        return replace(data, images=min(len(bounds.reflections(0)), MOST_MIRRORS)), Folding(bounds)


#: Rows that are less likely than this to be of the continuous part are not fitted.
LEAST_MEMBERSHIP = 1e-3
#: Rounds of curves and memberships, for atoms or a background with covariates.
CURVE_ROUNDS = 8


@dataclass(frozen=True)
class PartsFound(Learned):
    """Shares of atoms and background."""

    atoms: Array
    atom_weights: Array
    background: UniformBackground | GivenBackground | None
    background_share: float

    @classmethod
    def of(cls, known: Known, shares: Array) -> "PartsFound":
        """Take shares of the rows ``(J,)``; those of atoms become shares of the true values."""
        share = float(shares[-1]) if known.background is not None else 0.0
        weights = shares[: len(known.atoms)] / max(1.0 - share, 1e-300)
        return cls(known.atoms, weights, known.background, share)

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
        lines = []
        for atom, share in zip(self.atoms, self.atom_weights, strict=True):
            point = ", ".join(f"{value:g}" for value in atom)
            lines.append(f"An estimated {share:.1%} of the true values are exactly {point}.")
        if self.background is not None:
            lines.append(f"An estimated {self.background_share:.1%} of the rows are background.")
        return lines


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
        shares = pilot.shares
        q, own = memberships(shares, densities, rest)
        if rows.covariates is not None:
            shares, q = _by_curves(rows, densities, shares, q, own, run.threads)
        weights, keep = row_weights(rows) * q[-1], q[-1] > LEAST_MEMBERSHIP
        if not keep.any():
            raise ValueError(
                "Expected rows that are neither at an atom nor background; got none. Leave out "
                "the atoms, or the background."
            )
        some = rows[keep].weighed(weights[keep])
        return some, _Pending(PartsFound.of(self.known, shares), rows, densities)


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

    def settled(self, own: FittedDensity) -> PartsFound:
        """Return the shares that go with the density of the rest."""
        found, rest = self.start, own.log_marginal(self.data).log_p
        shares = found.density(own).shares
        shares = shares_of_parts(shares, self.densities, rest, row_weights(self.data))
        return PartsFound.of(Known(None, found.atoms, found.background), shares)
