"""Errors that are not quite known: learned first, so that nothing after this knows they were."""

from dataclasses import dataclass, replace
from typing import Any

from deconflow.core import EVERYTHING, Run
from deconflow.errors import LearnedErrors, learn_errors
from deconflow.observations import Observations, check_groups
from deconflow.reductions.base import Known, Learned, PlainFit


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
