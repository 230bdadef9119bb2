r"""The contract of reductions: facts that are taken out of the rows before an engine fits them.

A reduction has a ``name``; ``facts``, the traits that it is about; ``takes``, those that the rows
may have with these; ``finds``, the type of what it learns; and ``prepare(rows, run, fit)``, which
returns changed rows and the way back, a :class:`Learned`.

Here are those that change rows. Errors are learned first, so that nothing after this knows they
were. With atoms or a background rows are weighed by how likely they are neither. Location and scale
of the true values, curves of covariates, are taken out of the rows. With bounds rows are fitted
with their mirror images, and densities are folded back.

Where not all rows were seen, the others are simulated, so that any estimator can be fitted to all
there are. First comes a density of all truths. Where the truth decides what is seen, the seen
truths have the density :math:`p(v) f(v)` but for a factor: the estimator finds it, and it is
divided by ``f``.
Where the measured values decide, a mixture is fitted by EM, with unseen rows as missing data.
Then as many rows are simulated as were not seen, each with the noise of a row that was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.core import EVERYTHING, Run
from deconflow.errors import LearnedErrors, learn_errors
from deconflow.fits import FittedDensity, GivenFit, PartsFit, folded, log_densities_of_parts
from deconflow.measuring import Chances, Rule, said_errors, seen_rows
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations, check_groups
from deconflow.randomness import isolated_rng
from deconflow.saving import refuse
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
    FitSettings,
    PreparedData,
    Stopping,
    fit_averaged,
    fit_exact,
    fit_selected,
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
        return [
            "Location and spread of the true values are curves of "
            f"{', '.join(self.covariates.names)}."
        ]


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


#: Rows that inform the search for the unseen, of very many.
MOST_ROWS = 5_000
#: Truths that are drawn.
DRAWS = 50_000
#: Rows and true values that EM starts from.
START_ROWS, START_DRAWS = 1_500, 8_000
#: Truths that are seen less often than this, for each that usually is, are not divided by it; the
#: second where the chance itself is known, and not only through noise.
LEAST_CHANCE, LEAST_OF_TRUTH = 0.02, 1e-4
SMALLEST_SHARE = 1e-6
COMPONENTS, ROWS_PER_COMPONENT, FLOOR = (1, 2, 4, 8, 12, 16, 24), 20, 0.1
REFINEMENTS = 4
START = Stopping(tol=1e-4, max_iter=100, accelerate=True)
#: Unseen rows that are simulated, for each that was seen; more are stood for by weights.
MOST_UNSEEN = 4
#: But so many are simulated in any case, if there are so many.
FEWEST = 20_000
#: A row is tried so many times as often as rows take on average, and then let be.
LONGEST = 20
FEW_EFFECTIVE = 50


@dataclass(frozen=True)
class SelectionFound(Learned):
    """What was learned of a selection.

    Attributes
    ----------
    share : float
        The share of all rows that is seen.
    effective : float
        How many of the seen rows that share rests on: rows that are seldom seen count for many.
    simulated : int
        How many unseen rows were simulated.
    rule : str
        The selection in words.
    """

    share: float
    effective: float
    simulated: int
    rule: str

    def validate(self) -> None:
        """Raise unless the share is one."""
        refuse("share", not 0 < self.share <= 1, "a share")

    def words(self) -> list[str]:
        """Return the share that was seen, and a caution if few rows inform it."""
        lines = [
            f"Selected by {self.rule}: {self.share:.3g} of all rows are seen; "
            f"{self.simulated} unseen rows were simulated for the fit, with the errors of those "
            "seen, corrected by their chances."
        ]
        if self.effective < FEW_EFFECTIVE:
            lines.append(
                f"Only about {self.effective:.0f} rows inform the density where rows are rarely "
                "selected: take it there with care."
            )
        return lines


@dataclass(frozen=True)
class Unseen:
    """Reduction of rows of which some were not seen."""

    known: Known
    name = "a selection"
    facts = frozenset({"selected"})
    finds = SelectionFound
    takes = EVERYTHING - {
        "covariates", "atoms", "background", "limits", "counts", "errors to learn", "beyond memory",
    }  # fmt: skip

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows with simulated ones among them."""
        rule, rng, bounds = rows.selection, run.rng(), self.known.bounds
        rows = replace(rows, selection=None)
        if rule.of_truth:
            truths = fit(rows, run).sample(DRAWS, rng)
            truths = divided(truths, rule(truths), LEAST_OF_TRUTH, rng)
        else:
            truths = _all_truths(rule, rows, rng, run.threads)
        truths = truths if bounds is None else bounds.fold(truths)
        completed, share = _completed(rule, rows, truths, rng)
        chance = Chances(rule, rows, int(rng.randint(2**30)))(truths[:START_DRAWS])
        usual = max(float(chance.mean()), 1e-300)
        unequal = (1.0 / np.maximum(chance, LEAST_CHANCE * usual)).mean()
        effective = float(len(rows) / (usual * unequal))
        return completed, SelectionFound(
            share, effective, len(completed) - len(rows), rule.in_words()
        )


def divided(truths: Array, chances: Array, least: float, rng: np.random.RandomState) -> Array:
    """Draw truths from those of seen rows, by the inverse of their chances."""
    floor = np.maximum(least * np.median(chances), 1e-300)
    odds = np.where(chances > 0, 1.0 / np.maximum(chances, floor), 0.0)
    if not odds.any():
        raise ValueError(
            "Expected a selection by which the truths of the rows can be seen; got chances of "
            "zero for all of them. Check the selection and the noise."
        )
    return truths[rng.choice(len(truths), len(truths), p=odds / odds.sum())]


def completed_by(
    density: FittedDensity, rule: Rule, data: Observations, rng: np.random.RandomState
) -> Observations:
    """Put unseen rows as a fitted density has them among rows."""
    return _completed(rule, data, density.sample(DRAWS, rng), rng)[0]


def _completed(
    rule: Rule, data: Observations, truths: Array, rng: np.random.RandomState
) -> tuple[Observations, float]:
    """Put unseen rows of these truths among rows, and say what share of all is seen."""
    found = _Simulation(rule, data, rng).appended(truths)
    weights = row_weights(found)
    share = float(weights[: len(data)].sum() / weights.sum())
    # Unseen rows are among the seen, which stay in their own order: at the end of the table they
    # would be neighbours that are alike, as a drift is.
    unseen = rng.permutation(np.arange(len(found)) >= len(data))
    return found[np.argsort(np.argsort(unseen, kind="stable"))], share


def _all_truths(
    rule: Rule, data: Observations, rng: np.random.RandomState, threads: int | None
) -> Array:
    """Draw truths, by a mixture to some of the rows of as many components as BIC wants."""
    if len(data) > MOST_ROWS:
        chosen = np.sort(rng.permutation(len(data))[:MOST_ROWS])
        data, rule = data[chosen], rule.take(np.isin(np.arange(len(data)), chosen))
    if data.weights is not None:
        data = replace(data, weights=data.weights / data.weights.mean())
    seed = int(rng.randint(2**30))
    chances = Chances(rule, data, seed)
    some = np.sort(rng.permutation(len(data))[:START_ROWS])
    rows, prepared = PreparedData(seen_rows(data[some], chances)), PreparedData(data)
    best: Any = None
    for count in COMPONENTS:
        if count > 1 and len(data) < ROWS_PER_COMPONENT * count:
            break
        seen = rows.fit(FitSettings(count, floor=FLOOR, stopping=START), rng).mixture
        truths = seen.sample(START_DRAWS, rng)
        truths = divided(truths, chances(truths), LEAST_CHANCE, rng)
        start = fit_exact(truths, seen.n_components, seed)
        found = fit_selected(prepared, start, chances.by_law, chances.counts, threads)
        if best is not None and found.worth <= best.worth:
            break
        best = found
    truths = best.mixture.sample(DRAWS, rng)
    return truths if best.mixture.n_components == 1 else _refined(rule, data, truths, rng, threads)


def _refined(
    rule: Rule, data: Observations, truths: Array, rng: np.random.RandomState, threads: int | None
) -> Array:
    """Let averages of mixtures, of any shape, follow: each from the unseen rows of the last."""
    stopping = Stopping(tol=1e-5, max_iter=300, accelerate=True, threads=threads)
    for _ in range(REFINEMENTS):
        rows = _completed(rule, data, truths, rng)[0]
        found = fit_averaged(rows, FitSettings(1, stopping=stopping), rng, starts=1)
        truths = mix(found.mixtures, found.shares).sample(DRAWS, rng)
    return truths


class _Simulation:
    """Measures truths as each row was, until one is seen: those before it were not.

    So each row has as many unseen ones of its own law as there should be, on average.
    """

    def __init__(self, rule: Rule, data: Observations, rng: np.random.RandomState) -> None:
        self.rule, self.data, self.rng = rule, data, rng

    def appended(self, truths: Array) -> Observations:
        """Append unseen rows, each of the weight of its row, or more where only some have any."""
        data, n = self.data, len(self.data)
        some, share = self._rows_to_try(truths)
        rows, measured, sds = self._unseen(truths, some, share)
        own = np.ones(n) if data.weights is None else data.weights
        weights = np.concatenate([own, own[rows] * n / len(some)])
        completed = replace(
            data[np.concatenate([np.arange(n), rows])],
            w=np.concatenate([data.w, measured]),
            weights=weights / weights.mean(),
        )
        if data.groups is not None:
            new = data.groups.max() + 1 + np.arange(len(rows))
            completed = replace(completed, groups=np.concatenate([data.groups, new]))
        if self.rule.errors is not None:
            if not isinstance(data.noise, GaussianNoise):
                raise ValueError(
                    "Expected Gaussian noise for a selection with errors of unseen rows; got "
                    "another law."
                )
            unseen = np.square(sds)[:, :, None] * np.eye(data.dim)
            seen = np.broadcast_to(data.noise.covariance(), (n, data.dim, data.dim))
            completed = replace(
                completed, noise=gaussian(covariance=np.concatenate([seen, unseen]))
            )
        plain = data.weights is None and len(some) == n
        return replace(completed, weights=None) if plain else completed

    def _rows_to_try(self, truths: Array) -> tuple[IntArray, float]:
        """Choose rows whose unseen companions are not too many; and a rough share of seen ones."""
        rows = np.arange(len(self.data))
        tried = rows[self.rng.choice(len(rows), max(len(rows), FEWEST))]
        v, w, sd = self._measured(truths, tried)
        share = float(self._seen(v, w, tried, sd).mean())
        if share < SMALLEST_SHARE:
            raise ValueError(
                "Expected a selection by which the truths of the rows can be seen; got a chance "
                f"of {share:g}. Check the selection and the noise."
            )
        most = max(FEWEST, MOST_UNSEEN * len(rows)) * share
        return np.sort(self.rng.permutation(rows)[: max(1, int(most))]), share

    def _unseen(self, truths: Array, some: IntArray, share: float) -> tuple[IntArray, Array, Array]:
        found, active, at_once = [], some, int(np.ceil(1 / share))
        for _ in range(LONGEST):
            tried = np.repeat(active, at_once)
            v, w, sd = self._measured(truths, tried)
            seen = self.rng.uniform(size=len(v)) < self._seen(v, w, tried, sd)
            seen = seen.reshape(-1, at_once)
            missed = ~np.logical_or.accumulate(seen, axis=1).ravel()
            found.append((tried[missed], w[missed], sd[missed]))
            active = active[~seen.any(1)]
            if not len(active):
                break
        rows, measured, sds = map(np.concatenate, zip(*found, strict=True))
        return rows, measured, sds

    def _measured(self, truths: Array, rows: IntArray) -> tuple[Array, Array, Array]:
        """Measure a truth for each of some rows, with its law: the truth, the value, its errors."""
        v = truths[self.rng.randint(len(truths), size=len(rows))]
        if self.rule.errors is not None:
            sd = said_errors(self.rule, v)
            return v, v + sd * self.rng.normal(size=v.shape), sd
        noise = self.data.noise[rows]
        with isolated_rng(int(self.rng.randint(2**30))):
            drawn = noise.sample(1)[0]
        sd = np.broadcast_to(np.sqrt(noise.variance()), drawn.shape)
        return v, v + drawn, sd

    def _seen(self, v: Array, w: Array, rows: IntArray, sd: Array) -> Array:
        return self.rule(v) if self.rule.of_truth else self.rule(w, rows, sd)
