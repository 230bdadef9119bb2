"""Bounds: rows are fitted with their mirror images, and densities are folded back."""

from dataclasses import dataclass, replace

from deconflow.core import EVERYTHING, Run
from deconflow.fits import FittedDensity, folded
from deconflow.observations import Observations
from deconflow.reductions.base import Known, Learned, PlainFit
from deconflow.truth import MOST_MIRRORS, Bounds


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
        return replace(data, images=min(len(bounds.mirrors()), MOST_MIRRORS)), Folding(bounds)
