r"""Which number of components and which floor: rules over fits that leave out a fold of the rows.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise. Averages of several fits do not collapse together, so these are compared, and among those
that the held-out rows cannot tell apart those with fewest components are taken. Which floor is
best among these the rows can seldom say either: so the average takes each floor as often as it
wins when the rows are drawn anew (bootstrap). Of single fits, the one with the largest entropy is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.xd.em import EMResult, mean_log_likelihood
from deconflow.xd.expectation import expectation
from deconflow.xd.fit import FitSettings, PreparedData
from deconflow.xd.layout import KernelRows, lay_out

Table = dict[str, NDArray[Any]]
Starts = Sequence[GaussianMixture | None]
STARTS_TO_COMPARE = 4
FAILED_START = 0.003
"""A start whose mean training log-likelihood is this far below the best is left out."""

BOOTSTRAPS = 500
COMPONENTS_TO_TRY = (1, 3, 6, 12, 24, 48, 96)
ROWS_PER_PARAMETER = 2
FIRST_FLOOR, SMALLEST_FLOOR, LARGEST_FLOOR = 0.1, 0.003, 1.6
SMALLEST_SHARE = 0.05
CLEARLY = 2.0
"""Standard errors of a paired difference that count as a difference."""


class Fold(NamedTuple):
    """The rows that are fitted, and those left out."""

    kept: NDArray[np.int64]
    held: NDArray[np.int64]


class PreparedFold:
    """The rows but for a fold, ready to be fitted, and the rows left out, ready to be scored."""

    def __init__(self, data: Observations, fold: Fold) -> None:
        self.held = fold.held
        self.rest = PreparedData(data[torch.from_numpy(fold.kept)])
        self.rows = lay_out(data[torch.from_numpy(fold.held)], self.rest.rows.units)


@dataclass
class Candidate:
    """Settings, and what they come to without each fold so far.

    Attributes
    ----------
    settings : FitSettings
        The settings.
    held_out : array
        ``(N,)`` log-likelihood of each row by the fit that left it out; NaN until there is one.
    fits : list of lists of EMResult
        For each fold, where its starts ended, best first; what got stuck is left out.
    """

    settings: FitSettings
    held_out: Array
    fits: list[list[EMResult]] = field(default_factory=list)

    def density(self, fold: int) -> GaussianMixture:
        """Return the average of the fits without a fold."""
        return mix([result.mixture for result in self.fits[fold]])

    def entropy(self, draws: int) -> float:
        """Return the mean entropy of the fits, each from some draws."""
        return float(np.mean([self.density(f).entropy(draws) for f in range(len(self.fits))]))


class CrossFits:
    """Fits any settings without each fold of the rows, and scores the rows left out.

    Iterating prepares one fold after another; ``rng`` makes folds and starts.
    """

    def __init__(self, data: Observations, n_folds: int, rng: np.random.RandomState) -> None:
        self.data, self.rng = data, rng
        self.weights = row_weights(data)
        if len(data) < 2:
            raise ValueError(
                f"Expected at least 2 rows in w to choose by held-out rows; got {len(data)}."
            )
        splitter = KFold(min(n_folds, len(data)), shuffle=True, random_state=rng.randint(2**31 - 1))
        self.folds = [Fold(*pair) for pair in splitter.split(self.weights)]

    def __iter__(self) -> Iterator[PreparedFold]:
        return (PreparedFold(self.data, fold) for fold in self.folds)

    def candidate(self, settings: FitSettings) -> Candidate:
        """Return settings that are not fitted yet."""
        return Candidate(settings, np.full(len(self.data), np.nan))

    def add(
        self, candidate: Candidate, fold: PreparedFold, starts: Starts, *, averaged: bool = True
    ) -> None:
        """Fit without one fold: the average of the starts, or else the best of them."""
        results = successful(fold.rest.fit_from(starts, candidate.settings, self.rng))
        candidate.fits.append(results if averaged else results[:1])
        threads = candidate.settings.stopping.threads
        candidate.held_out[fold.held] = log_p(candidate.density(-1), fold.rows, threads)

    def mean(self, candidate: Candidate) -> float:
        """Mean held-out log-likelihood."""
        return float(np.average(candidate.held_out, weights=self.weights))

    def behind(self, candidates: Sequence[Candidate]) -> tuple[Array, Array]:
        """How far each is behind the best, and the standard error of that."""
        return paired(np.stack([each.held_out for each in candidates]), self.weights)

    def wins(self, candidates: Sequence[Candidate], among: NDArray[np.bool_]) -> Array:
        """How often each is the best of some when the rows are drawn anew (Bayesian bootstrap).

        References
        ----------
        Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
        distributions", https://arxiv.org/abs/1704.02030
        """
        some = np.stack([each.held_out for each in candidates])[among]
        some -= some.mean(0)
        wins = np.zeros(len(some))
        for _ in range(BOOTSTRAPS):
            drawn = self.weights * self.rng.standard_exponential(len(self.weights))
            wins[np.argmax(some @ drawn)] += 1
        shares = np.zeros(len(candidates))
        shares[among] = wins / BOOTSTRAPS
        return shares

    def table(self, candidates: Sequence[Candidate], shares: Array, entropy: ArrayLike) -> Table:
        """Say what a choice was based on.

        Returns
        -------
        dict of arrays
            One entry per candidate: ``n_components``, ``floor``, ``train`` and ``held_out`` mean
            log-likelihood, ``behind_best`` (held-out difference to the best), its paired standard
            error ``behind_best_se``, ``entropy``, ``share`` of the average and ``chosen``.
        """
        behind, error = self.behind(candidates)
        train = [[best.log_likelihood for best, *_ in each.fits] for each in candidates]
        return {
            "n_components": np.array([each.settings.n_components for each in candidates]),
            "floor": np.array([each.settings.floor for each in candidates]),
            "train": np.mean(train, axis=1),
            "held_out": np.array([self.mean(each) for each in candidates]),
            "behind_best": behind,
            "behind_best_se": error,
            "entropy": np.asarray(entropy),
            "share": shares,
            "chosen": shares > 0,
        }


def choose(
    data: Observations,
    settings: FitSettings,
    n_components: Sequence[int],
    floors: Sequence[float],
    *,
    n_average: int,
    folds: int,
    rng: np.random.RandomState,
    progress: bool = False,
) -> tuple[list[FitSettings], Table]:
    """Choose settings for each of ``n_average`` fits by cross-validation on noisy rows.

    Every row is held out once. The differences that matter are a few thousandths of a nat per row,
    as large as the error of one held-out fifth of 20,000 rows. The table is that of
    :meth:`CrossFits.table`.
    """
    cross = CrossFits(data, folds, rng)
    candidates = [
        cross.candidate(replace(settings, n_components=count, floor=floor))
        for count, floor in product(sorted(n_components), sorted(floors))
    ]
    total = len(cross.folds) * len(candidates)
    what = {"desc": "choosing components", "unit": "fit", "smoothing": 0}
    with tqdm(total=total, disable=not progress, **what) as bar:
        for fold in cross:
            for candidate in candidates:
                cross.add(candidate, fold, [None] * STARTS_TO_COMPARE, averaged=n_average > 1)
                bar.update()
    behind, error = cross.behind(candidates)
    entropy = [each.entropy(20_000) for each in candidates]
    if n_average > 1:
        counts = np.array([each.settings.n_components for each in candidates])
        shares = cross.wins(candidates, counts == counts[behind <= error].min())
    else:
        shares = np.eye(len(candidates))[np.argmax(np.where(behind <= error, entropy, -np.inf))]
    edges = np.cumsum(shares)
    places = (np.arange(n_average) + 0.5) / n_average * edges[-1]
    chosen = [candidates[i].settings for i in np.searchsorted(edges, places)]
    return chosen, cross.table(candidates, shares, entropy)


def fit_average(
    data: Observations,
    settings: Sequence[FitSettings],
    over: str,
    n_init: int,
    rng: np.random.RandomState,
    progress: bool = False,
) -> EMResult:
    """Average the densities of several fits, one for each of the settings.

    They differ by their random ``"starts"``, or by the one of ``"folds"`` that each leaves out. The
    fit of largest likelihood reports.
    """
    parts: Iterable[PreparedData]
    if over == "folds":
        folds = CrossFits(data, len(settings), rng).folds
        parts = (PreparedData(data[torch.from_numpy(fold.kept)]) for fold in folds)
    else:
        parts = repeat(PreparedData(data), len(settings))
    each_part = tqdm(
        zip(parts, settings, strict=True), "mixtures to average", len(settings),
        unit="fit", disable=not progress,
    )  # fmt: skip
    results = [part.fit_best(each, n_init, rng) for part, each in each_part]
    best = max(results, key=lambda result: result.log_likelihood)
    good = results if over == "folds" else _not_stuck(results, settings)
    mixtures = [result.mixture for result in good]
    return replace(best, mixture=mix(mixtures), averaged=mixtures)


@dataclass(frozen=True)
class AveragedFit:
    """An average of mixtures, each fitted without one fold.

    Attributes
    ----------
    mixtures : list of GaussianMixture
        One for each fold that was left out.
    shares : array
        The share of each in the average.
    held_out : array
        ``(N,)`` log-likelihood of each row under the mixture that left it out.
    folds : list of Fold
        The folds.
    settings : FitSettings
        Those of the largest share.
    table : dict of arrays
        See :meth:`CrossFits.table`.
    """

    mixtures: list[GaussianMixture]
    shares: Array
    held_out: Array
    folds: list[Fold]
    settings: FitSettings
    table: Table

    @property
    def mixture(self) -> GaussianMixture:
        """The average as one mixture."""
        return mix(self.mixtures, self.shares.tolist())


def fit_averaged(
    data: Observations,
    settings: FitSettings,
    rng: np.random.RandomState,
    *,
    folds: int = 5,
    starts: int = 2,
    progress: bool = False,
) -> AveragedFit:
    """Fit an averaged mixture with nothing to set; ``settings`` say how to start and stop.

    More and more components are fitted without each fold and judged by the rows left out, until
    the next number is not clearly better than the best so far; one that is worse on the first
    folds is not fitted on the others. Then the floor is doubled for as long as that is better, and
    halved, each time from where the last floor ended; as noisy rows are all but blind to a floor
    too small, it is halved again only if that was clearly better. The fits of the chosen number of
    components are averaged, over folds, starts and floors. The same fits give every row a
    likelihood from rows that exclude it.
    """
    search = _Search(CrossFits(data, folds, rng), progress)
    tried = search.numbers_of_components(settings, starts)
    behind, error = search.cross.behind(tried)
    chosen = tried[int(np.argmax(behind <= CLEARLY * error))]  # in the order of their components
    tried += search.other_floors(chosen, 2.0, 0.0) + search.other_floors(chosen, 0.5, CLEARLY)
    return search.averaged(tried, chosen.settings.n_components)


class _Search:
    """The search of :func:`fit_averaged`, with all folds laid out once."""

    def __init__(self, cross: CrossFits, progress: bool) -> None:
        self.cross, self.folds, self.progress = cross, list(cross), progress

    def fit(
        self, settings: FitSettings, starts: Iterable[Starts], best: Candidate | None = None
    ) -> Candidate | None:
        """Fit without each fold; give up where that is worse than ``best`` on the folds so far."""
        candidate, gain = self.cross.candidate(settings), 0.0
        what = f"mixtures of {settings.n_components}, floor {settings.floor:g}"
        bar = tqdm(
            zip(self.folds, starts, strict=False), what, len(self.folds),
            unit="fold", leave=False, disable=not self.progress,
        )  # fmt: skip
        for fold, begin in bar:
            self.cross.add(candidate, fold, begin)
            if best is not None:
                ahead = candidate.held_out[fold.held] - best.held_out[fold.held]
                gain += float(self.cross.weights[fold.held] @ ahead)
            if gain < 0:
                return None
        return candidate

    def better(self, candidate: Candidate, other: Candidate, errors: float) -> bool:
        """Whether a candidate gains more than so many standard errors."""
        behind, error = self.cross.behind([other, candidate])
        return bool(behind[0] > errors * error[0])

    def numbers_of_components(self, settings: FitSettings, starts: int) -> list[Candidate]:
        """Fit more and more components, for as long as each number is clearly better."""
        data = self.cross.data
        best: Candidate | None = None
        tried: list[Candidate] = []
        for count in COMPONENTS_TO_TRY:
            few_rows = ROWS_PER_PARAMETER * n_parameters(count, data.latent_dim) > len(data)
            if count > 1 and few_rows:
                break
            these = replace(settings, n_components=count, floor=FIRST_FLOOR)
            candidate = self.fit(these, repeat([None] * (1 if count == 1 else starts)), best)
            if candidate is None:
                break
            tried.append(candidate)
            if best is not None and not self.better(candidate, best, CLEARLY):
                break
            best = max(tried, key=self.cross.mean)
        return tried

    def other_floors(self, last: Candidate, factor: float, errors: float) -> list[Candidate]:
        """Change the floor by a factor for as long as that gains more than so many errors."""
        tried: list[Candidate] = []
        while SMALLEST_FLOOR <= last.settings.floor * factor <= LARGEST_FLOOR:
            changed = replace(last.settings, floor=last.settings.floor * factor)
            ends = ([result.mixture for result in fold] for fold in last.fits)
            candidate = self.fit(changed, ends)
            assert candidate is not None
            tried.append(candidate)
            if not self.better(candidate, last, errors):
                break
            last = candidate
        return tried

    def averaged(self, tried: list[Candidate], n_components: int) -> AveragedFit:
        """Average those of one number of components by how often each would be the best."""
        cross = self.cross
        among = np.array([each.settings.n_components == n_components for each in tried])
        shares = cross.wins(tried, among)
        shares = np.where(shares >= SMALLEST_SHARE, shares, 0.0)
        shares /= shares.sum()
        settings = tried[int(shares.argmax())].settings
        used = [tried[i] for i in np.flatnonzero(shares)]
        mixtures = []
        held_out = np.empty(len(cross.data))
        for f, fold in enumerate(self.folds):
            densities = [each.density(f) for each in used]
            mixtures.append(mix(densities, shares[shares > 0]))
            held_out[fold.held] = log_p(mixtures[f], fold.rows, settings.stopping.threads)
        equal = np.full(len(mixtures), 1.0 / len(mixtures))
        table = cross.table(tried, shares, [each.entropy(1000) for each in tried])
        return AveragedFit(mixtures, equal, held_out, cross.folds, settings, table)


def compare(
    data: Observations,
    settings: FitSettings,
    n_components: Sequence[int],
    *,
    n_init: int = 1,
    folds: int | None = 5,
    random_state: int | np.random.RandomState | None = None,
) -> Table:
    """Compare numbers of components by BIC, AIC and cross-validation: a plot-ready table.

    Returns
    -------
    dict of arrays
        One entry per number of components: ``n_components``, ``log_likelihood`` (mean), ``bic``,
        ``aic``, and, unless ``folds`` is None, ``cv`` (mean held-out log-likelihood) with its
        standard error ``cv_se``.
    """
    rng = check_random_state(random_state)
    prepared = PreparedData(data)
    table: dict[str, list[float]] = {"n_components": list(n_components)}
    for count in n_components:
        these = replace(settings, n_components=count)
        best = prepared.fit_best(these, n_init, rng)
        each = log_p(best.mixture, prepared.rows, settings.stopping.threads)
        value = mean_log_likelihood(each, prepared.rows)
        total, free = value * len(data), n_parameters(count, data.latent_dim)
        row = {
            "log_likelihood": value,
            "bic": free * np.log(len(data)) - 2 * total,
            "aic": 2 * free - 2 * total,
        }
        if folds is not None:
            row["cv"], row["cv_se"] = _cross_validated(data, these, n_init, folds, rng)
        for name, value in row.items():
            table.setdefault(name, []).append(float(value))
    return {name: np.array(values) for name, values in table.items()}


def _cross_validated(
    data: Observations, settings: FitSettings, n_init: int, folds: int, rng: np.random.RandomState
) -> tuple[float, float]:
    """Mean held-out log-likelihood of the best of some starts, and its standard error."""
    cross = CrossFits(data, folds, rng)
    candidate = cross.candidate(settings)
    for fold in cross:
        cross.add(candidate, fold, [None] * n_init, averaged=False)
    mean = cross.mean(candidate)
    squares = cross.weights * (candidate.held_out - mean) ** 2
    return mean, float(np.sqrt(squares.mean() / len(data)))


def n_parameters(n_components: int, dim: int) -> int:
    """Count the free parameters of a mixture with full covariances."""
    return n_components * (1 + dim + dim * (dim + 1) // 2) - 1


def successful(results: list[EMResult]) -> list[EMResult]:
    """Best first, without those that got stuck."""
    ordered = sorted(results, key=lambda result: -result.log_likelihood)
    least = ordered[0].log_likelihood - FAILED_START
    return [result for result in ordered if result.log_likelihood >= least]


def _not_stuck(results: list[EMResult], settings: Sequence[FitSettings]) -> list[EMResult]:
    """Leave out the fits that got stuck, judged by others of the same floor."""
    pairs = list(zip(results, settings, strict=True))
    floors = sorted({each.floor for each in settings})
    groups = [[result for result, each in pairs if each.floor == floor] for floor in floors]
    return [result for group in groups for result in successful(group)]


def log_p(mixture: GaussianMixture, rows: KernelRows, threads: int | None = None) -> Array:
    """Log-likelihood of each row, in the user's units."""
    mixture = rows.units.mixture_to_standard(mixture)
    return expectation(mixture, rows, moments=False, threads=threads).log_p


def row_weights(data: Observations) -> Array:
    """Weights of the rows, ones if there are none."""
    return np.ones(len(data)) if data.weights is None else data.weights.numpy()


def paired(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """How far each of ``(C, N)`` log-likelihoods is behind the best, and the standard error."""
    means = np.average(rows_p, axis=1, weights=weights)
    difference = rows_p[means.argmax()] - rows_p
    behind = means.max() - means
    spread = np.square(weights * (difference - behind[:, None])).sum(axis=1)
    return behind, np.sqrt(spread) / weights.sum()
