r"""Rows that were not seen, simulated, so that any estimator can be fitted to all there are.

First comes a density of all truths. Where the truth decides what is seen, the seen truths have the
density :math:`p(v) f(v)` but for a factor: the estimator finds it, and it is divided by ``f``.
Where the measured values decide, a mixture is fitted by EM, with unseen rows as missing data.
Then as many rows are simulated as were not seen, each with the noise of a row that was.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.core import EVERYTHING, Run
from deconflow.fits import FittedDensity
from deconflow.measuring import Chances, Rule, said_errors, seen_rows
from deconflow.mixtures import mix
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.reductions.changed_rows import Known, Learned, PlainFit
from deconflow.saving import refuse
from deconflow.xd import (
    FitSettings,
    PreparedData,
    Stopping,
    fit_averaged,
    fit_exact,
    fit_selected,
    row_weights,
)

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
