"""Observations in, fit out: reductions, an engine, and the way back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from deconflow.checks import first_bad
from deconflow.copies import keep_copies_together
from deconflow.core import EVERYTHING, Run, refuse
from deconflow.engines import Engine
from deconflow.fits import FittedDensity
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Labels, Observations
from deconflow.reductions import (
    REDUCTIONS,
    CurvesFound,
    Known,
    Learned,
    LearnErrors,
    PlainFit,
    SelectionFound,
    Unseen,
    encoded,
    within,
)
from deconflow.truth import Covariates


class Solution(Protocol):
    """What an engine has learned of plain rows, in its own terms."""

    def density(self, names: list[str], threads: int | None) -> FittedDensity:
        """Return the density of the rows that were fitted."""

    def words(self) -> str:
        """Return one line on what was fitted."""

    def attributes(self) -> dict[str, Any]:
        """Return what the estimator shows of it, by names that end in an underscore."""


@dataclass(frozen=True)
class Streamed(Learned):
    """How many rows of a stream were fitted, and how many there are."""

    fitted: int
    total: int

    def words(self) -> list[str]:
        """Return the numbers."""
        if self.fitted == self.total:
            return [f"All {self.total:,} rows were fitted, in chunks."]
        return [f"A sample of {self.fitted:,} of {self.total:,} rows was fitted."]


@dataclass(frozen=True)
class Fit:
    """What was learned from rows; nothing is changed afterwards.

    Attributes
    ----------
    solution : Solution
        What the engine has learned.
    known : Known
        Bounds, atoms and background, as checked.
    learned : tuple of Learned
        What reductions have learned, in the order in which they were made.
    traits : frozenset of str
        Facts of the fitted rows.
    labels : Labels
        Names and units of the measured columns.
    names : list of str
        Names of the true columns.
    threads : int or None
        Number of threads for what is asked of it.
    """

    solution: Any
    known: Known
    learned: tuple[Learned, ...]
    traits: frozenset[str]
    labels: Labels
    names: list[str]
    threads: int | None = None

    @cached_property
    def own(self) -> FittedDensity:
        """The density of the rows that the engine saw."""
        return self.solution.density(self.names, self.threads)

    @cached_property
    def density(self) -> FittedDensity:
        """The density of the true values."""
        density = restored(self.own, self.learned)
        density.units = self.units
        return density

    def found(self, kind: type[Any]) -> Any:
        """Return what a reduction of some kind has learned, or None."""
        return next((each for each in self.learned if isinstance(each, kind)), None)

    @property
    def covariates(self) -> Covariates | None:
        """Covariates of the fitted rows."""
        return getattr(self.found(CurvesFound), "covariates", None)

    @property
    def seen_share(self) -> float:
        """The share of all rows, seen or not, that the selection lets through."""
        return getattr(self.found(SelectionFound), "share", 1.0)

    @property
    def working(self) -> GaussianMixture | None:
        """A single Gaussian mixture that fits the rows the engine saw, if there is one."""
        return getattr(self.solution, "working", None)

    @property
    def units(self) -> list[str | None] | None:
        """Units of the true columns, if these are the measured ones."""
        return None if "projected" in self.traits else self.labels.units

    def words(self) -> list[str]:
        """Return sentences on what was known or learned besides the density."""
        lines = [] if self.known.bounds is None else self.known.bounds.in_words(self.names)
        return lines + [line for each in reversed(self.learned) for line in each.words()]


def restored(own: FittedDensity, learned: Sequence[Learned]) -> FittedDensity:
    """Return the density of the true values, from one of the rows that an engine saw."""
    for each in reversed(learned):
        own = each.density(own)
    return own


def fit_rows(rows: Observations, engine: Engine, known: Known, run: Run) -> Fit:
    """Fit an engine to rows, with all that is known of them."""
    _refuse_unmeasured(rows)
    traits = rows.traits | known.traits | frozenset(["beyond memory"] if run.beyond else [])
    refuse(engine.name, engine.takes, traits)
    labels, names = replace(rows.labels, index=None, kind=object, header=None), rows.names
    learned: list[Learned] = []
    if LearnErrors.facts & traits:
        refuse(LearnErrors.name, LearnErrors.takes, traits)
        rows, errors = LearnErrors(known).prepare(rows, run, _plain(engine, known))
        learned.append(errors)
    if rows.noise.truth_ends is not None or not rows.noise.additive:
        rows = within(rows, known.bounds_of(rows))
    if rows.covariates is not None:
        rows = encoded(rows)
    rows = keep_copies_together(rows.with_weight())
    solution, facts, more = _reduced(rows, engine, known, run, traits)
    if run.beyond is not None:
        total = run.beyond[1].n_rows
        more.append(Streamed(len(rows) if engine.samples else total, total))
    return Fit(solution, facts, (*learned, *more), traits, labels, names, run.threads)


def _reduced(
    rows: Observations, engine: Engine, known: Known, run: Run, traits: frozenset[str]
) -> tuple[Any, Known, list[Learned]]:
    """Fit an engine to rows whose facts are taken out one by one; return the ways back."""
    facts = known.checked(rows)
    inside = replace(facts, bounds=None) if "own bounds" in engine.takes else facts
    pending: list[Learned] = []
    for kind in REDUCTIONS:
        if not kind.facts & (rows.traits | inside.traits):
            continue
        reduction = kind(facts if kind is Unseen else inside)
        refuse(reduction.name, reduction.takes, traits | facts.traits)
        rows, found = reduction.prepare(rows, run, _plain(engine, known))
        pending.append(found)
    solution = engine.fit(rows, run)
    if not pending:
        return solution, facts, []
    own, learned = solution.density(rows.names, run.threads), list[Learned]()
    for each in reversed(pending):
        learned.insert(0, each.settled(own))
        own = learned[0].density(own)
    return solution, facts, learned


def _plain(engine: Engine, known: Known) -> PlainFit:
    """Return a function that fits rows without the fact which a reduction is about."""

    def fit(rows: Observations, run: Run) -> FittedDensity:
        solution, _, learned = _reduced(rows, engine, known, replace(run), rows.traits)
        return restored(solution.density(rows.names, None), learned)

    return fit


def _refuse_unmeasured(data: Observations) -> None:
    """Raise for a column that no row measures, or that has limits to one side only."""
    seen = np.abs(np.asarray(data.projections())).sum((0, 1))
    if (seen == 0).any():
        raise ValueError(
            "Expected every dimension to be measured in at least one row of w; "
            f"got none for column {int(seen.argmin())}. Drop it."
        )
    if data.noise.flags is None:
        return
    flags = np.asarray(data.noise.flags)  # no true value is too far beyond limits to one side
    seen = np.ones(flags.shape, bool) if data.observed is None else np.asarray(data.observed)
    one_sided = [((flags == side) | ~seen).all(0) & seen.any(0) for side in (-1, 1)]
    position = first_bad(one_sided[0] | one_sided[1])
    if position is not None:
        raise ValueError(
            "Expected measured values beside limits in every column of w; got only limits to one "
            f"side in column {data.measured_names[position[0]]}. Drop it."
        )


def refuse_beyond_memory(engine: Engine, known: Known) -> None:
    """Raise for what rows beyond memory are not fitted with, before a pass over them."""
    refuse(engine.name, engine.takes, known.traits | {"beyond memory"})
    refuse("rows beyond memory", EVERYTHING - {"bounds", "atoms", "background"}, known.traits)
