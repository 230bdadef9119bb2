"""The contract of reductions: facts that are taken out of the rows before an engine fits them.

A reduction has a ``name``; ``facts``, the traits that it is about; ``takes``, those that the rows
may have with these; ``finds``, the type of what it learns; and ``prepare(rows, run, fit)``, which
returns changed rows and the way back, a :class:`Learned`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow.core import Run
from deconflow.fits import FittedDensity
from deconflow.observations import Observations
from deconflow.truth import Bounds, as_atoms, as_background, as_bounds

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
        atoms = as_atoms(self.atoms, rows.names, bounds)
        return Known(bounds, atoms, as_background(self.background, rows))


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
