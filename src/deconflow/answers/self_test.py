r"""The self-test: how well an estimator recovers what it has found, as numbers and in words.

The estimator is fitted again to tables whose truth is known. They are simulated from the fitted
model, :math:`w_i = R_i v_i + n_i` with :math:`v_i \sim p(v)` and the noise, the missing values, the
projections and the weights of the real rows. The model is the truth of these, so that one can count
how often the refits' answers hold it.
"""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from deconflow._types import Array, BoolArray, IntArray
from deconflow.fits import FittedDensity
from deconflow.noise import LimitedNoise
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng, own_rng

#: Of ranks; their edges are those of the intervals.
BINS = 20
#: Central intervals: their level, and the bins of ranks inside.
LEVELS = {"50 %": (0.5, slice(5, 15)), "90 %": (0.9, slice(1, 19))}
BAND_LEVEL = 0.9
MANY_ERRORS = 3
#: A coverage is wrong if it is off by more than three errors, and by more than this.
SHORT = {"50 %": 0.04, "90 %": 0.02}
SHORT_BANDS = 0.1
SUSPICIOUS = 0.01
LARGE_EXCESS = 0.1
#: Rows whose posteriors are looked at, draws of the truth, and places of bands in each column.
ROWS, FRESH, PLACES = 1000, 2000, 25
#: Draws of each posterior: ranks from 0 to 399 fill the bins evenly.
DRAWS = 399
#: Seeds of each table, so that no step depends on another.
N_SEEDS = 5
#: A value with less noise than this share of the truth's spread has nothing to be tested.
KNOWN = 0.01


@dataclass(frozen=True)
class Refit:
    """What one simulated table has shown.

    Attributes
    ----------
    n_rows : int
        Rows of the table.
    ranks : tuple of tuple of int
        For each column, how many true values fell into each twentieth of their posteriors.
    excess, excess_error : float or None
        Mean of ``log p_model(v) - log p_refit(v)`` over fresh draws ``v`` of the model, and its
        standard error; None if the refit gives all of them no density.
    missed : float
        Share of the draws to which the refit gives no density at all; these are not in the mean.
    band_held, band_places : int or None
        At how many places the refit's bands held the model's density, and of how many.
    seconds : float
        How long the refit took, without the questions.
    """

    n_rows: int
    ranks: tuple[tuple[int, ...], ...]
    excess: float | None
    excess_error: float | None
    missed: float
    band_held: int | None
    band_places: int | None
    seconds: float


@dataclass(frozen=True)
class SelfTest:
    """How well an estimator recovers what it has found, from tables like the one it was given.

    Attributes
    ----------
    names : tuple of str
        Names of the columns of the truth.
    asked : int
        How many tables were asked for; fewer are done if the test was interrupted.
    refits : tuple of Refit
        What each table has shown.
    """

    names: tuple[str, ...]
    asked: int
    refits: tuple[Refit, ...]

    @property
    def n_tables(self) -> int:
        """Number of tables that are done."""
        return len(self.refits)

    @property
    def seconds(self) -> float:
        """How long a refit took, on average."""
        return float(np.mean([refit.seconds for refit in self.refits]))

    @property
    def ranks(self) -> IntArray:
        """True values in each twentieth of their posteriors, ``(D, 20)``: even if all is right."""
        return np.sum([refit.ranks for refit in self.refits], axis=0)

    def coverage(self, level: str) -> tuple[Array, Array]:
        """Share of true values inside their ``"50 %"`` or ``"90 %"`` intervals, with its error.

        Both are ``(D,)``; NaN for a column of which nothing could be tested. The error is that of
        a count, or that of the differences between tables where it is larger: the rows of a table
        share what its refit gets wrong.
        """
        nominal, inside = LEVELS[level]
        counts = np.array([refit.ranks for refit in self.refits])
        held, total = counts[..., inside].sum(2), counts.sum(2)
        with np.errstate(invalid="ignore", divide="ignore"):
            binomial = np.sqrt(nominal * (1 - nominal) / total.sum(0))
            return held.sum(0) / total.sum(0), np.fmax(binomial, _error_of_mean(held / total))

    @property
    def rank_p_values(self) -> Array:
        """P-value of the ranks of each column, ``(D,)``: by chi squared, if rows were independent.

        The posteriors are those of refits, so that what a refit gets wrong is tested as well: of
        very many rows a small p-value is to be expected, and the coverage says how much it is.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return chisquare(self.ranks, axis=1).pvalue

    @property
    def excess(self) -> tuple[float, float]:
        """Mean of ``log p_model(v) - log p_refit(v)`` over draws of the model, with its error."""
        known = [refit for refit in self.refits if refit.excess is not None]
        if not known:
            return np.nan, np.nan
        means, errors = np.array([(refit.excess, refit.excess_error) for refit in known]).T
        within = np.sqrt(np.square(errors).sum()) / len(means)
        return float(means.mean()), float(np.fmax(_error_of_mean(means), within))

    @property
    def missed(self) -> float:
        """Share of draws of the model to which refits give no density at all."""
        return float(np.mean([refit.missed for refit in self.refits]))

    @property
    def band_coverage(self) -> tuple[float, float] | None:
        """Share of places where 90 % bands held the model's density, with its error.

        The error is that of tables: places of one table are off together. None without bands; the
        error is NaN with a single table.
        """
        shares = [
            refit.band_held / refit.band_places
            for refit in self.refits
            if refit.band_held is not None and refit.band_places
        ]
        if not shares:
            return None
        return float(np.mean(shares)), float(_error_of_mean(np.array(shares)))

    @property
    def warnings(self) -> list[str]:
        """What is not recovered, in words with what to do; empty if all is."""
        found = [*self._about_coverage(), *self._about_ranks()]
        if self.missed > 0:
            found.append(
                f"{self.missed:.1%} of the truth has no density under the refits: widen the range "
                "of the estimator, or use one without a range, such as XDGMM"
            )
        if self.excess[0] > LARGE_EXCESS:
            found.append(
                f"refits are {self.excess[0]:.2f} per row away from the model: the table does not "
                "determine this much detail. Take more rows, or fewer columns or components"
            )
        if self.band_coverage is not None:
            share, error = self.band_coverage
            if BAND_LEVEL - share > max(SHORT_BANDS, 0.0 if np.isnan(error) else 2 * error):
                found.append(
                    f"90 % bands hold the truth at {share:.0%} of the places only: take them for "
                    "the least that is uncertain, or use Deconvolver, whose bands also hold bias"
                )
        return found

    @property
    def passed(self) -> bool:
        """Whether everything was recovered as well as the model says."""
        return not self.warnings

    def figures(self) -> dict[str, str]:
        """Return what was counted, by name."""
        fewer = f" (of {self.asked}, interrupted)" if self.n_tables < self.asked else ""
        each = f"{self.refits[0].n_rows} simulated rows, {self.seconds:.1f} s per refit"
        found = {"tables": f"{self.n_tables}{fewer} of {each}"}
        for d, name in enumerate(self.names):
            if self.ranks[d].sum():
                held = "; ".join(self._held(level, d) for level in LEVELS)
                found[name] = f"{held}; ranks p = {self.rank_p_values[d]:.2g}"
        mean, error = self.excess
        found["excess"] = f"{mean:.4f} +- {error:.4f} per row"
        if self.band_coverage is not None:
            share, error = self.band_coverage
            spread = "" if np.isnan(error) else f" +- {100 * error:.0f}"
            found["90 % bands"] = f"held {100 * share:.0f}{spread} % of densities"
        return found

    def sentences(self) -> list[str]:
        """Return the verdicts, in words."""
        found = [f"CAUTION: {warning}." for warning in self.warnings] or [
            "Recovered: intervals of rows hold the truth as often as they say. Use them."
        ]
        if self.passed and self._uneven():
            found.append(
                f"Ranks of {', '.join(self._uneven())} are not quite even, by less than "
                "matters for intervals: nothing to do."
            )
        return [
            *found,
            "The tables were simulated from the model: whether the model and the errors suit the "
            "real rows is not tested here. See `deconflow plot --kind diagnostics`.",
        ]

    def in_words(self) -> str:
        """Say it in a few lines: figures, then sentences."""
        lines = [f"{name:<24}{value}" for name, value in self.figures().items()]
        return "\n".join(lines + self.sentences())

    def _held(self, level: str, d: int) -> str:
        share, error = (100 * values[d] for values in self.coverage(level))
        return f"{level} intervals held {share:.1f} +- {error:.1f} %"

    def _about_coverage(self) -> Iterator[str]:
        for d, name in enumerate(self.names):
            off = [self._off(level, d) for level in LEVELS]
            if min(off) < 0:
                yield (
                    f"intervals of {name} hold the truth too rarely: the fit follows the chance of "
                    "its rows. Use Deconvolver or BayesianXDGMM, which average, or take fewer "
                    "components"
                )
            elif max(off) > 0:
                yield (
                    f"intervals of {name} hold the truth more often than they say: they are "
                    "safe, but wider than they need be. More components may make them narrower"
                )

    def _off(self, level: str, d: int) -> float:
        """By how much a coverage is off, if that is more than chance and more than a little."""
        share, error = (values[d] for values in self.coverage(level))
        off = share - LEVELS[level][0]
        return float(off) if abs(off) > max(MANY_ERRORS * error, SHORT[level]) else 0.0

    def _about_ranks(self) -> Iterator[str]:
        """Name columns whose posteriors are shifted by more than a little."""
        for name in self._uneven():
            counts = self.ranks[self.names.index(name)]
            below = counts[: BINS // 2].sum() / counts.sum()
            if abs(below - 0.5) > SHORT["50 %"]:
                side = "high" if below > 0.5 else "low"
                yield (
                    f"posteriors of {name} lie too {side}: {below:.0%} of true values are below "
                    "their medians. Compare another method: deconflow compare"
                )

    def _uneven(self) -> list[str]:
        """Columns whose ranks are not even, by more than chance."""
        small = self.rank_p_values < SUSPICIOUS / len(self.names)
        return [name for name, uneven in zip(self.names, small, strict=True) if uneven]


def _error_of_mean(values: Array) -> Array:
    """Standard error of the mean over tables, the first axis; NaN for a single one."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.asarray(values.std(0, ddof=1) / np.sqrt(len(values)))


def run_self_test(
    model: Any,
    data: Observations,
    n_tables: int,
    random_state: RandomState,
    *,
    shown: bool = False,
) -> SelfTest:
    """Fit again to simulated tables; see :meth:`DensityEstimator.self_test`.

    Parameters
    ----------
    model
        A fitted estimator.
    data
        The rows to simulate others like.
    n_tables
        How many tables to simulate. An interrupt ends with those that are done, if any.
    random_state
        Seed of tables and refits; the first tables are the same for any number of them.
    shown
        Whether to show progress.
    """
    drawn = check_random_state(random_state).randint(2**31 - 1, size=(n_tables, N_SEEDS))
    done: list[Refit] = []
    with tqdm(total=n_tables, desc="self-test", unit="refit", disable=not shown) as bar:
        try:
            for seeds in drawn.tolist():
                done.append(_one_table(model, data, *seeds))
                bar.update()
        except KeyboardInterrupt:
            if not done:
                raise
    return SelfTest(tuple(model.density_.names), n_tables, tuple(done))


def _one_table(
    model: Any,
    data: Observations,
    of_truth: int,
    of_noise: int,
    of_fit: int,
    of_posterior: int,
    of_fresh: int,
) -> Refit:
    """Simulate a table, fit it, and compare with the truth; each step has a seed of its own."""
    truth = model.density_.sample(len(data), of_truth)
    with isolated_rng(of_noise):
        table = data.remeasure(truth)
    start = time.perf_counter()
    refit = _fitted_again(model, table, of_fit)
    seconds = time.perf_counter() - start
    fresh = model.density_.sample(FRESH, of_fresh)
    excess, error, missed = _excess(model, refit, fresh)
    held, places = _bands(model, refit, fresh)
    ranks = _ranks(refit, table, truth, fresh.std(0), of_posterior)
    counts = tuple(tuple(np.bincount(each, minlength=BINS).tolist()) for each in ranks)
    return Refit(len(data), counts, excess, error, missed, held, places, round(seconds, 3))


def _fitted_again(model: Any, table: Observations, seed: int) -> Any:
    """Fit an estimator with the same settings; its warnings are about a table nobody has."""
    own, changes = model.parameters_, {"checkpoint": None, "verbose": False, "random_state": seed}
    own = own | {name: value for name, value in changes.items() if name in own}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).set_params(**own).fit(table)


def _ranks(
    refit: Any, table: Observations, truth: Array, spread: Array, seed: int
) -> list[IntArray]:
    """In which twentieth of its posterior each true value lies, for some rows; by column."""
    rng = np.random.RandomState(seed)
    rows = np.sort(rng.permutation(len(table))[:ROWS])
    some = table[rows]
    posterior = refit.posterior(some, n_samples=DRAWS, random_state=seed)
    below = (posterior.sample(DRAWS, rng) < truth[rows][:, None]).sum(1)
    tested = enumerate(_uncertain(some, spread).T)
    return [below[keep, d] * BINS // (DRAWS + 1) for d, keep in tested]


def _uncertain(table: Observations, spread: Array) -> BoolArray:
    """Which true values ``(N, D)`` are not as good as known by their measurement."""
    if table.projection is not None:
        return np.ones((len(table), len(spread)), dtype=bool)
    sd = np.sqrt(table.noise.variance())
    noisy = np.broadcast_to(sd > KNOWN * spread, (len(table), len(spread)))
    return noisy if table.observed is None else noisy | ~table.observed


def _excess(model: Any, refit: Any, fresh: Array) -> tuple[float | None, float | None, float]:
    """Mean of ``log p_model - log p_refit`` where both are finite, its error, and where not."""
    apart = model.density_.log_prob(fresh) - refit.density_.log_prob(fresh)
    known = apart[np.isfinite(apart)]
    missed = 1 - len(known) / len(apart)
    if not len(known):
        return None, None, missed
    return float(known.mean()), float(known.std() / np.sqrt(len(known))), missed


def _bands(model: Any, refit: Any, fresh: Array) -> tuple[int | None, int | None]:
    """At how many places bands hold the density of a column, and of how many; None without."""
    if refit.density_.replicates is None:
        return None, None
    held, shares = 0, (np.arange(PLACES) + 0.5) / PLACES
    for d in range(fresh.shape[1]):
        points = np.quantile(fresh[:, d], shares)  # as many where there is as much of the truth
        band = refit.density_.band(points, column=d, level=BAND_LEVEL)
        density = np.exp(model.density_.marginal(d).log_prob(points[:, None]))
        held += int(((band.lower <= density) & (density <= band.upper)).sum())
    return held, PLACES * fresh.shape[1]


def completed(density: FittedDensity, data: Observations) -> Observations:
    """Put a draw of the measurement, beyond its limit, in the place of each limit.

    How limits come about nobody has said, so that they cannot be simulated. But given a model, what
    a measurement would have been is known as far as its limit and the rest of its row tell: a draw
    of it stands for the limit. If model and noise are right, completed rows are as the model says
    that rows are. If they are not, only what was measured can show it.
    """
    noise = data.noise
    if not isinstance(noise, LimitedNoise):
        return data
    w, limits = data.w.copy(), (noise.flags != 0).any(1)
    some: Any = data[limits]
    seed = int(own_rng().integers(2**31 - 1))
    truths = density.posterior(some, n_samples=1, random_state=seed).sample(1, seed)[:, 0]
    clean = (some.projections() @ np.asarray(truths)[..., None])[..., 0]
    w[limits] = some.noise.complete(some.w, clean)
    return replace(data, w=w, noise=noise.without_limits())
