"""The contract of reductions: facts that are taken out of the rows before an engine fits them."""

from collections.abc import Callable
from typing import Protocol

from deconflow.core import Run
from deconflow.fits import FittedDensity
from deconflow.observations import Observations

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


class Reduction(Protocol):
    """A fact that is learned, or taken out of the rows, before an engine sees them."""

    name: str
    takes: frozenset[str]

    def applies(self, rows: Observations) -> bool:
        """Whether there is such a fact."""

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return changed rows, and the way back."""
