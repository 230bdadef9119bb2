"""Covariates: location and scale of the true values are curves, which are taken out of the rows."""

from dataclasses import dataclass, replace

import numpy as np

from deconflow._types import Array
from deconflow.core import EVERYTHING, Run
from deconflow.fits import FittedDensity, GivenFit
from deconflow.observations import Observations
from deconflow.reductions.base import Known, Learned, PlainFit
from deconflow.truth import Covariates, LocationScale

#: Rows of covariates that a model keeps: methods without covariates average over these.
MOST_KEPT = 200


def encoded(rows: Observations) -> Observations:
    """Return rows with their covariates as numbers, and how these were made."""
    parts = rows.covariates.parts
    found = Covariates.fit(parts, rows, rows.measured_names)
    return replace(rows, given=found.encode(parts, rows), covariates=found)


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
        given = self.covariates.encode(rows.covariates.parts, rows)
        return replace(rows, given=given, covariates=None)

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
