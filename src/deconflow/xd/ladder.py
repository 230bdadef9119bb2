r"""An average of mixtures with nothing to set: more and more components, and other floors.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise, and seldom says for certain which number of components or which floor is best. So none is
chosen: all that were tried are averaged, by how often each is the best when the rows are drawn
anew, and from there some way to the average that is best (:mod:`deconflow.xd.cross_fits`).

Where rows are many, a small sample climbs first, and larger ones go on from where it ended with
what it could not rule out; what they settle on is fitted to all rows, in few passes.

Which rows choose a model where there are many: samples that grow, each within the next.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, IntArray
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.xd.cross_fits import (
    Candidate,
    CrossFits,
    Fold,
    PreparedFold,
    Starts,
    Table,
    even_shares,
    held_out_of,
    log_average,
    log_p,
)
from deconflow.xd.em import EMResult
from deconflow.xd.fit import COMPONENTS_TO_TRY, FITTING, FitSettings, n_parameters
from deconflow.xd.many_rows import Job

#: Numbers of components that are tried beyond the usual ones where rows are many.
OF_MANY_ROWS = (128, 192, 256, 384, 512)
#: Fewer than these, and no held-out row need be asked.
ROWS_PER_COMPONENT = 4

FIRST_FLOOR, SMALLEST_FLOOR, LARGEST_FLOOR = 0.1, 0.003, 1.6
#: Where the noise is made of so many, each fold has one start: those of the others will do.
MANY_GAUSSIANS = 1_000_000
#: The ladder ends when so many numbers in a row are behind the best, or one by so many errors.
PATIENCE, CLEAR_ENOUGH = 2, 1.0

#: With more rows per parameter than this covariances need no shrinking.
ENOUGH_ROWS = 3

#: Rows that the prior of a shrunken covariance counts as, for each of its own ``D + 1``.
SHRINKAGES = (0.5, 2.0, 8.0, 32.0)

#: EM stops when a step gains less than this in the log-likelihood of all rows together: what
#: comes after fits chance, and its spikes are further from the truth. Mixtures of few parameters
#: have no such spikes, and go on until a step gains less than so much for each of these.
SMALLEST_GAIN, GAIN_PER_PARAMETER = 0.3, 0.003

#: Passes over rows beyond memory: they start from a fit to a million.
MOST_PASSES = 12

#: Parts of the rows, each left out by some of the fits.
N_FOLDS = 5

#: Standard errors of a paired difference that count as a difference.
CLEARLY = 2.0


@dataclass(frozen=True)
class Everything:
    """Rows beyond memory.

    Attributes
    ----------
    n_rows : int
        Their number.
    fit : callable
        Fits several mixtures to all of them, each without a fold, in the units of the sample.
    """

    n_rows: int
    fit: Callable[[list[Job]], list[EMResult]]


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
        See :meth:`CrossFits.table`; where a sample has chosen, also its number of rows,
        ``choosing_rows``, and that of all rows, ``fitted_rows``.
    converged : bool
        Whether EM converged in ``singles``: of hundreds of fits with small shares some never do.
    n_iter : int
        Number of passes over the rows in the longest fit.
    singles : list of GaussianMixture
        One fit by ``settings`` without each fold.
    n_choosing, n_rows : int
        How many rows have chosen, and how many are fitted.
    """

    mixtures: list[GaussianMixture]
    shares: Array
    held_out: Array
    folds: list[Fold]
    settings: FitSettings
    table: Table
    converged: bool
    n_iter: int
    singles: list[GaussianMixture]
    n_choosing: int
    n_rows: int

    @property
    def all_chose(self) -> bool:
        """Whether all rows have chosen."""
        return self.n_choosing == self.n_rows

    @property
    def mixture(self) -> GaussianMixture:
        """The average as one mixture."""
        return mix(self.mixtures, self.shares.tolist())


def fit_averaged(
    data: Observations,
    settings: FitSettings,
    rng: np.random.RandomState,
    *,
    folds: int | Sequence[Fold] = N_FOLDS,
    starts: int = 2,
    progress: Progress = SILENT,
    everything: Everything | None = None,
) -> AveragedFit:
    """Fit an averaged mixture with nothing to set; ``settings`` say how to start and stop.

    More and more components are fitted without each fold and judged by the rows left out, until
    the next are worse. At the best number the floor is doubled and halved, each time from where the
    last floor ended, and again for as long as that is clearly better: noisy rows are all but blind
    to it, and a floor too large gains in them what it loses in the truth. It is halved, too, at
    the fewest components that are not clearly worse. Where parameters are many for the rows,
    covariances are shrunk towards those of independent columns, for as long as that is better,
    and more components tried so. All these fits are averaged. They also give every row a
    likelihood from rows that exclude it.

    Parameters
    ----------
    data
        The rows.
    settings
        How to start and stop; ``tol`` at least a small part of a nat in all rows together.
    rng
        Makes folds and starts.
    folds
        Their number, or the folds themselves.
    starts
        Fits of each number of components without each fold.
    progress
        Counts the fits that are done.
    everything
        Rows beyond memory, of which ``data`` is a sample: what the sample has settled on is fitted
        to these in the end. None if there are no others.
    """
    whole = CrossFits(data, folds, rng)
    choosing = [whole.among(rows) for rows in growing_samples(data, rng)]
    if len(data) <= MOST_TO_CHOOSE:
        choosing.append(whole)
    progress.begin(FITTING)
    search = _Search(choosing[0], settings.stopping.tol, progress)
    search.climb(replace(settings, floor=FIRST_FLOOR), COMPONENTS_TO_TRY, starts, [])
    search.shrunken(search.floors_about(list(search.tried)), starts)
    for cross in choosing[1:]:
        search = search.on(cross, starts)
    if choosing[-1] is not whole:
        search = search.settled_on(whole)
    return (search if everything is None else search.beyond(everything)).averaged()


class _Search:
    """The search of :func:`fit_averaged` on some rows, with all folds laid out once.

    ``tried`` is all that was fitted to these rows, ``before`` the search on some of them only.
    """

    def __init__(
        self,
        cross: CrossFits,
        tol: float,
        progress: Progress,
        before: "_Search | None" = None,
    ) -> None:
        self.cross, self.tol, self.progress, self.before = cross, tol, progress, before
        self.n_choosing = self.n_rows = len(cross.data)
        self.tried: list[Candidate] = []

    @cached_property
    def folds(self) -> list[PreparedFold]:
        """All folds, laid out."""
        return list(self.cross)

    def on(self, cross: CrossFits, starts: int) -> "_Search":
        """Go on with more rows: with what these could not rule out, and from there upwards."""
        rest = [self.tried[i] for i in self.not_behind(self.tried)]
        best_rung = max(self.rungs(), key=self.cross.mean)
        if best_rung not in rest:
            rest = [best_rung, *rest]
        self.__dict__.pop("folds")  # fits of new numbers of components lay them out again
        more = _Search(cross, self.tol, self.progress, self)
        for each in rest:
            more.fit(each.settings, _ends(each))
        rungs = more.rungs()
        last = rungs[-1].settings
        known = (*COMPONENTS_TO_TRY, *OF_MANY_ROWS)
        higher = [count for count in known if count > last.n_components]
        more.climb(last, higher, starts, rungs)
        more.floors_about(more.rungs())
        return more

    def settled_on(self, cross: CrossFits) -> "_Search":
        """Fit what has a share of the average to more rows, one fold after another."""
        used = self.shared(len(cross.data))
        last = _Search(cross, self.tol, self.progress, self)
        last.n_choosing = self.n_choosing
        last.tried = [last.candidate(each.settings) for each in used]
        self.progress.begin(f"{FITTING} to all rows", steps=len(used) * len(cross.folds))
        self.__dict__.pop("folds")
        for f, rows in enumerate(cross.folds):
            fold = PreparedFold(cross.data, rows)
            for old, new in zip(used, last.tried, strict=True):
                cross.add(new, fold, [result.mixture for result in old.fits[f]])
                self.progress.advance()
            del fold  # before the next is laid out
        return last

    def beyond(self, everything: Everything) -> "_Search":
        """Fit what has a share of the average to rows beyond memory, from the best of each fold.

        The rows in memory that a fit leaves out are left out of all its passes, and judge it.
        """
        used, folds = self.shared(everything.n_rows), range(len(self.cross.folds))
        jobs = []
        for each in used:
            few = replace(each.settings.stopping, max_iter=MOST_PASSES)
            settings = replace(each.settings, stopping=few)
            jobs += [Job(each.fits[f][0].mixture, settings, f) for f in folds]
        results = everything.fit(jobs)
        last = _Search(self.cross, self.tol, self.progress, self)
        last.n_choosing, last.n_rows = self.n_choosing, everything.n_rows
        unknown = np.full(len(self.cross.data), np.nan)
        for i, each in enumerate(used):
            fits = [[result] for result in results[i * len(folds) : (i + 1) * len(folds)]]
            last.tried.append(Candidate(each.settings, unknown.copy(), fits))
        for f, fold in enumerate(self.cross):
            for each in last.tried:
                threads = each.settings.stopping.threads
                each.held_out[fold.held] = log_p(each.density(f), fold.rows, threads)
        return last

    def candidate(self, settings: FitSettings) -> Candidate:
        """Return settings that are not fitted yet."""
        return Candidate(self.stopped(settings), np.full(len(self.cross.data), np.nan))

    def fit(self, settings: FitSettings, starts: Iterable[Starts]) -> Candidate:
        """Fit without each fold."""
        candidate = self.candidate(settings)
        for fold, begin in zip(self.folds, starts, strict=False):
            self.cross.add(candidate, fold, begin)
            self.progress.advance()
        self.tried.append(candidate)
        return candidate

    def shared(self, n_rows: int) -> list[Candidate]:
        r"""Return what could be the best if all were fitted to more rows: of each size one floor.

        Fits of one size that start from each other differ too little to be worth two; an average
        over sizes is better than any of them. With ``p`` parameters that rows determine, each of
        ``n`` rows is too likely by :math:`p / 2n` if it was fitted, and too unlikely by as much if
        it was left out: half the difference of the two is what more rows can gain.
        """
        gain = 0.5 * (1 - len(self.cross.data) / n_rows)
        for each in self.tried:
            each.allowance = 0.0
            if not each.settings.stopping.penalised:
                each.allowance = gain * max(0.0, self.cross.train(each) - self.cross.mean(each))
        ordered = sorted(self.tried, key=self.cross.mean)
        best = list({each.settings.n_components: each for each in ordered}.values())
        return [best[i] for i in self.not_behind(best)]

    def stopped(self, settings: FitSettings) -> FitSettings:
        """Return settings that stop where these rows have no more to say."""
        data = self.cross.data
        parameters = n_parameters(settings.n_components, data.latent_dim)
        least = min(SMALLEST_GAIN, GAIN_PER_PARAMETER * parameters) / len(data)
        return replace(settings, stopping=replace(settings.stopping, tol=max(self.tol, least)))

    def starts(self, settings: FitSettings, count: int) -> Iterable[Starts]:
        """Where fits begin: anew, or where those to fewer of these rows end."""
        if self.before is None:
            return repeat([None] * count)
        return _ends(self.before.fit(settings, self.before.starts(settings, count)))

    def better(self, candidate: Candidate, other: Candidate, errors: float) -> bool:
        """Whether a candidate gains more than so many standard errors."""
        behind, error = self.cross.behind([other, candidate])
        return bool(behind[0] > errors * error[0])

    def rungs(self) -> list[Candidate]:
        """Return what the ladder is made of: the first floor, and more and more components."""
        first = (FIRST_FLOOR, 0.0)
        rungs = [c for c in self.tried if (c.settings.floor, c.settings.shrinkage) == first]
        return sorted(rungs, key=lambda each: each.settings.n_components)

    def not_behind(self, tried: list[Candidate]) -> NDArray[np.intp]:
        """Return the numbers of those that are not clearly behind the best."""
        behind, error = self.cross.behind(tried)
        return np.flatnonzero(behind <= CLEARLY * error)

    def climb(
        self, settings: FitSettings, counts: Sequence[int], starts: int, tried: list[Candidate]
    ) -> None:
        """Fit more and more components, until the next are worse than the best so far.

        Those that are worse count, too: in an average they may well help.
        """
        tried = list(tried)
        if self.folds[0].rest.rows.n_gaussians > MANY_GAUSSIANS:
            starts = 1
        most = max(1, min(len(fold.kept) for fold in self.cross.folds) // ROWS_PER_COMPONENT)
        counts = [count for count in counts if count <= most]
        behind = 0
        for count in counts:
            if tried:
                best = max(tried, key=self.cross.mean)
                behind = len(tried) - 1 - tried.index(best)
                if behind >= PATIENCE or self.better(best, tried[-1], CLEAR_ENOUGH):
                    break
            changed = replace(settings, n_components=count)
            begin = self.starts(changed, 1 if count == 1 or behind else starts)
            tried.append(self.fit(changed, begin))

    def floors_about(self, tried: list[Candidate]) -> Candidate:
        """Try other floors at the best, which is returned, and at the fewest components.

        Too large a floor is made up for by components that are not there: an atom as wide as the
        floor needs others around it. With a smaller floor fewer components, not clearly behind the
        best, may well be better.
        """
        best = tried[int(self.cross.behind(tried)[0].argmin())]
        plain = tried[self.not_behind(tried)[0]]
        self.other_floors(best, 2.0)
        self.other_floors(best, 0.5)
        if plain is not best:
            self.other_floors(plain, 0.5)
        return best

    def other_floors(self, last: Candidate, factor: float) -> None:
        """Change the floor by a factor for as long as that is clearly better."""
        while SMALLEST_FLOOR <= last.settings.floor * factor <= LARGEST_FLOOR:
            changed = replace(last.settings, floor=last.settings.floor * factor)
            known = (each for each in self.tried if each.settings == self.stopped(changed))
            found = next(known, None) or self.fit(changed, _ends(last))
            if not self.better(found, last, CLEARLY):
                break
            last = found

    def shrunken(self, best: Candidate, starts: int) -> None:
        """With few rows, shrink covariances for as long as it helps; then try more components."""
        dim, count = self.cross.data.latent_dim, best.settings.n_components
        if len(self.cross.data) > ENOUGH_ROWS * n_parameters(count, dim):
            return
        stopping = replace(best.settings.stopping, penalised=True)
        tried = [best]
        for rows in SHRINKAGES:
            settings = replace(best.settings, shrinkage=rows * (dim + 1), stopping=stopping)
            tried.append(self.fit(settings, _ends(tried[-1])))
            if not self.better(tried[-1], tried[-2], 0.0):
                break
        winner = max(tried, key=self.cross.mean)
        if winner is not best:
            more = [each for each in COMPONENTS_TO_TRY if each > count]
            self.climb(winner.settings, more, starts, [winner])

    def averaged(self) -> AveragedFit:
        """Average all that were tried on these rows, each by its share."""
        cross, tried = self.cross, self.tried
        if self.n_choosing == self.n_rows:
            shares = cross.shares(tried)
        else:
            shares = even_shares(held_out_of(tried), cross.weights)
        used = [each for each, share in zip(tried, shares, strict=True) if share > 0]
        mixtures = [
            mix([each.density(f) for each in used], shares[shares > 0].tolist())
            for f in range(len(cross.folds))
        ]
        table = cross.table(tried, shares)
        if self.n_choosing < self.n_rows:
            table["choosing_rows"] = np.full(len(tried), self.n_choosing)
            table["fitted_rows"] = np.full(len(tried), self.n_rows)
        largest = tried[int(shares.argmax())]
        return AveragedFit(
            mixtures,
            np.full(len(mixtures), 1.0 / len(mixtures)),
            log_average(held_out_of(used), shares[shares > 0]),
            cross.folds,
            largest.settings,
            table,
            all(best.converged for best, *_ in largest.fits),
            max(result.n_iter for each in used for fold in each.fits for result in fold),
            [best.mixture for best, *_ in largest.fits],
            self.n_choosing,
            self.n_rows,
        )


def _ends(candidate: Candidate) -> Iterable[Starts]:
    """Where the fits of each fold ended."""
    return ([result.mixture for result in fold] for fold in candidate.fits)


def who_chose(table: Table) -> str:
    """Say in a sentence how many rows have chosen; nothing if it was all of them.

    Examples
    --------
    >>> who_chose({"choosing_rows": np.array([100_000]), "fitted_rows": np.array([1_000_000])})
    ' 100,000 of 1,000,000 rows choose the model; all of them fit it.'
    """
    if "choosing_rows" not in table:
        return ""
    some, whole = int(table["choosing_rows"][0]), int(table["fitted_rows"][0])
    return f" {some:,} of {whole:,} rows choose the model; all of them fit it."


#: So many choose all at once.
FEW_ROWS = 50_000
#: Rows of the samples that choose where there are more.
SAMPLES = (20_000, 100_000)
#: More rows than these are fitted by what a sample has chosen.
MOST_TO_CHOOSE = 150_000
#: The next sample, or all rows, has at least so many times as many.
LEAST_GROWTH = 2.0
#: A column that fewer rows of a sample measure gets as many, if there are.
LEAST_MEASURED = 200


def growing_samples(data: Observations, rng: np.random.RandomState) -> list[IntArray]:
    """Return the rows of each sample, in order; none if all rows choose at once."""
    n = len(data)
    sizes = [size for size in SAMPLES if n > FEW_ROWS and n >= size * LEAST_GROWTH]
    if not sizes:
        return []
    order = _with_rare_columns(rng.permutation(n), data, sizes[0])
    return [np.sort(order[:size]) for size in sizes]


def _with_rare_columns(order: IntArray, data: Observations, size: int) -> IntArray:
    """Move rows to the front that measure columns of which a sample would have next to none."""
    if data.observed is None:
        return order
    seen = np.asarray(data.observed)[order]
    rare = np.flatnonzero(seen[:size].sum(0) < LEAST_MEASURED)
    if not len(rare):
        return order
    first = np.unique(np.concatenate([np.flatnonzero(seen[:, d])[:LEAST_MEASURED] for d in rare]))
    return np.concatenate([order[first], np.delete(order, first)])
