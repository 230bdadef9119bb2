"""Reductions that change each row by itself: errors that are learned, covariates, and bounds.

Errors are learned first, so that nothing after this knows they were. Location and scale of the true
values, curves of covariates, are taken out of the rows. With bounds rows are fitted with their
mirror images, and densities are folded back.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.core import EVERYTHING, Run
from deconflow.errors import LearnedErrors, learn_errors
from deconflow.fits import FittedDensity, GivenFit, folded
from deconflow.observations import Observations, check_groups
from deconflow.reductions.base import Known, Learned, PlainFit
from deconflow.truth import MOST_MIRRORS, Bounds, Covariates, LocationScale

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
