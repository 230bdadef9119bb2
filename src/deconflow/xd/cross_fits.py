r"""Fits that leave out a fold of the rows, and what the rows left out say of them.

What each of several densities should get of an average, judged by rows that none has seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.model_selection import KFold

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations, seen_in_groups
from deconflow.xd.em import EMResult
from deconflow.xd.expectation import expectation
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters
from deconflow.xd.layout import KernelRows, lay_out, row_weights

Table = dict[str, AnyArray]
Starts = Sequence[GaussianMixture | None]
#: A start whose mean training log-likelihood is this far below the best is left out, or as far as
#: chance moves it where parameters are many: half their number per row.
FAILED_START = 0.003


class Fold(NamedTuple):
    """The rows that are fitted, and those left out."""

    kept: IntArray
    held: IntArray


def make_folds(data: Observations, n_folds: int, rng: np.random.RandomState) -> list[Fold]:
    """Part rows into folds by chance; each row is held out once, and with it all of its group.

    There are at most as many folds as groups. Where values are missing, rows that have the same
    ones are dealt out evenly: so a column that few rows measure is left to every fit.
    """
    n_rows, codes = len(data), data.group_codes()
    refuse_if(
        n_rows < 2,
        f"Expected at least 2 rows in w to choose by held-out rows; got {n_rows}.",
    )
    seed = rng.randint(2**31 - 1)
    seen = None if data.observed is None else np.asarray(data.observed)
    if codes is not None:
        return _groups_dealt_out(codes, seen, n_folds, seed)
    folds = min(n_folds, n_rows)
    if seen is None:
        by_chance = KFold(folds, shuffle=True, random_state=seed)
        return [Fold(*pair) for pair in by_chance.split(np.empty(n_rows))]
    if n_rows > 2:
        _refuse_rare(seen.sum(0), "rows", "one")
    order = np.random.RandomState(seed).permutation(n_rows)
    order = order[_by_pattern(seen[order])]  # by chance where the pattern is the same
    number = np.empty(n_rows, np.int64)
    number[order] = np.arange(n_rows) % folds
    return numbered_folds(number, folds)


def _refuse_rare(counts: IntArray, what: str, got: str) -> None:
    refuse_if(
        counts.min() == 1,
        f"Expected every column of w to be measured in at least 2 {what}, to choose by held-out "
        f"rows; got column {counts.argmin()} in {got}. Drop it, or fit XDGMM with one number of "
        "components.",
    )


def _groups_dealt_out(
    codes: IntArray, seen: BoolArray | None, n_folds: int, seed: int
) -> list[Fold]:
    """Deal out groups in the order of what is missing, the largest first, else by chance.

    Each goes to the fold of fewest rows, but rather to another one if that had a column of the
    group to itself.
    """
    sizes = np.bincount(codes)
    refuse_if(
        len(sizes) < 2,
        "Expected rows of at least 2 groups to choose by held-out rows; got 1 group. Fit XDGMM "
        "with one number of components, which holds out none.",
    )
    seen = np.ones((len(codes), 1), bool) if seen is None else seen
    measured = seen_in_groups(seen, codes)
    _refuse_rare(measured.sum(0), "groups of rows", "one group")
    order = np.random.RandomState(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    order = order[_by_pattern(measured[order])]
    folds = min(n_folds, len(sizes))
    number, rows = np.empty(len(sizes), np.int64), [0] * folds
    held = np.zeros((folds, measured.shape[1]), bool)
    for group in order:
        alone = (held & (held.sum(0) == 1) & measured[group]).sum(1).tolist()
        fold = min(range(folds), key=lambda f: (alone[f], rows[f]))
        number[group] = fold
        rows[fold] += int(sizes[group])
        held[fold] |= measured[group]
    return numbered_folds(number[codes], folds)


def _by_pattern(seen: BoolArray) -> NDArray[np.intp]:
    """Order rows by what is missing; what is measured in fewest sets them apart first."""
    return np.lexsort([seen[:, d] for d in np.argsort(seen.sum(0))[::-1]])


def numbered_folds(number: NDArray[np.integer], folds: int) -> list[Fold]:
    """Return folds by the number of each row's."""
    return [Fold(np.flatnonzero(number != f), np.flatnonzero(number == f)) for f in range(folds)]


class PreparedFold:
    """The rows but for a fold, ready to be fitted, and the rows left out, ready to be scored."""

    def __init__(self, data: Observations, fold: Fold) -> None:
        self.held, self.rest = fold.held, PreparedData(data[fold.kept])
        self.rows = lay_out(data[fold.held], self.rest.rows.units)


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
    allowance : float
        What is added to each log-likelihood when candidates are compared: what a fit to more rows
        should gain.
    """

    settings: FitSettings
    held_out: Array
    fits: list[list[EMResult]] = field(default_factory=list)
    allowance: float = 0.0

    def density(self, fold: int) -> GaussianMixture:
        """Return the average of the fits without a fold."""
        return mix([result.mixture for result in self.fits[fold]])


class CrossFits:
    """Fits any settings without each fold of the rows, and scores the rows left out.

    Iterating prepares one fold after another; ``rng`` makes folds, unless they are given, and
    starts.
    """

    def __init__(
        self,
        data: Observations,
        folds: int | Sequence[Fold],
        rng: np.random.RandomState,
    ) -> None:
        self.data, self.rng = data, rng
        self.weights = row_weights(data)
        if not isinstance(folds, Sequence):  # an integer, maybe one of numpy's
            folds = make_folds(data, int(folds), rng)
        self.folds = list(folds)

    def among(self, rows: IntArray) -> "CrossFits":
        """Return the same for some of the rows, given by their numbers: with the same folds."""
        number = np.empty(len(self.data), np.int16)
        for f, fold in enumerate(self.folds):
            number[fold.held] = f
        return CrossFits(self.data[rows], numbered_folds(number[rows], len(self.folds)), self.rng)

    def __iter__(self) -> Iterator[PreparedFold]:
        return (PreparedFold(self.data, fold) for fold in self.folds)

    def add(self, candidate: Candidate, fold: PreparedFold, starts: Starts) -> None:
        """Fit without one fold: the average of the fits from some starts."""
        settings = candidate.settings
        results = fold.rest.fit_from(starts, settings, self.rng)
        parameters = n_parameters(settings.n_components, fold.rest.rows.dim)
        failed = max(FAILED_START, 0.5 * parameters / fold.rest.rows.n_rows)
        least = results[0].log_likelihood - failed
        candidate.fits.append([each for each in results if each.log_likelihood >= least])
        candidate.held_out[fold.held] = log_p(
            candidate.density(-1), fold.rows, settings.stopping.threads
        )

    def mean(self, candidate: Candidate) -> float:
        """Mean held-out log-likelihood."""
        return float(np.average(candidate.held_out, weights=self.weights)) + candidate.allowance

    def train(self, candidate: Candidate) -> float:
        """Mean log-likelihood of the rows that were fitted."""
        return float(np.mean([best.log_likelihood for best, *_ in candidate.fits]))

    def behind(self, candidates: Sequence[Candidate]) -> tuple[Array, Array]:
        """How far each is behind the best, and the standard error of that."""
        return paired(held_out_of(candidates), self.weights)

    def shares(self, candidates: Sequence[Candidate]) -> Array:
        """Share out an average among candidates."""
        dim = self.data.latent_dim
        parameters = [n_parameters(each.settings.n_components, dim) for each in candidates]
        return shares_of(held_out_of(candidates), self.weights, np.array(parameters), self.rng)

    def table(self, candidates: Sequence[Candidate], shares: Array) -> Table:
        """Say what a choice was based on.

        Returns
        -------
        dict of arrays
            One entry per candidate: ``n_components``, ``floor``, ``shrinkage`` (rows that a
            prior on covariances counts as), ``train`` and ``held_out`` mean log-likelihood,
            ``behind_best`` (held-out difference to the best), its paired standard
            error ``behind_best_se``, ``share`` of the average and ``chosen``.
        """
        behind, error = self.behind(candidates)
        settings = [each.settings for each in candidates]
        names = ("n_components", "floor", "shrinkage")
        return {
            **{name: np.array([getattr(each, name) for each in settings]) for name in names},
            "train": np.array([self.train(each) for each in candidates]),
            "held_out": np.array([self.mean(each) for each in candidates]),
            "behind_best": behind,
            "behind_best_se": error,
            "share": shares,
            "chosen": shares > 0,
        }


def held_out_of(candidates: Sequence[Candidate]) -> Array:
    """Held-out log-likelihoods ``(C, N)``."""
    return np.stack([each.held_out + each.allowance for each in candidates])


def log_p(mixture: GaussianMixture, rows: KernelRows, threads: int | None = None) -> Array:
    """Log-likelihood of each row, in the user's units."""
    mixture = rows.units.mixture_to_standard(mixture)
    return expectation(mixture, rows, moments=False, threads=threads).log_p


BOOTSTRAPS = 500
EVEN_SHARE = 0.1
#: Nats that a parameter must gain in all rows together.
PRICE = 0.25
ROWS_AT_ONCE = 100_000
#: Rows that are drawn anew one by one; more are drawn in so many blocks of neighbours, whose sums
#: vary as those of their rows do.
MOST_DRAWN = 50_000
#: What has less of an average is left out: it would cost more time than it gains.
SMALLEST_SHARE = 0.03
#: Of the way from how often each is the best to the average that is: where rows can tell they do
#: so in these steps, and where they cannot next to nothing happens in them.
STEPS = 100


def paired(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """How far each of ``(C, N)`` log-likelihoods is behind the best, and the standard error."""
    means = np.average(rows_p, axis=1, weights=weights)
    difference = rows_p[means.argmax()] - rows_p
    behind = means.max() - means
    spread = np.square(weights * (difference - behind[:, None])).sum(axis=1)
    return behind, np.sqrt(spread) / weights.sum()


def wins(rows_p: Array, weights: Array, price: Array, rng: np.random.RandomState) -> Array:
    r"""How often each of ``(C, N)`` log-likelihoods is the best when the rows are drawn anew.

    .. math:: P\Bigl(\sum_i e_i \ell_{ci} - c_c \ge \sum_i e_i \ell_{di} - c_d
              \;\forall d\Bigr), \qquad e_i \sim \mathrm{Exp}(1)

    The Bayesian bootstrap, after the ``price`` ``(C,)`` of each, in nats of all rows together.

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
    distributions", https://arxiv.org/abs/1704.02030
    """
    centred, weights = _in_blocks(rows_p - rows_p.mean(0), weights)
    counts = np.zeros(len(rows_p))
    for _ in range(BOOTSTRAPS):
        drawn = weights * rng.standard_exponential(len(weights))
        drawn *= weights.sum() / drawn.sum()
        counts[np.argmax(centred @ drawn - price)] += 1
    return counts / BOOTSTRAPS


def _in_blocks(rows_p: Array, weights: Array) -> tuple[Array, Array]:
    """Return means of blocks of rows, and their weights; the rows themselves if they are few."""
    size = -(-len(weights) // MOST_DRAWN)
    if size <= 1:
        return rows_p, weights
    first = np.arange(0, len(weights), size)
    total = np.maximum(np.add.reduceat(weights, first), 1e-300)
    return np.add.reduceat(rows_p * weights, first, axis=1) / total, total


def log_average(rows_p: Array, shares: Array) -> Array:
    """Log-likelihoods ``(N,)`` of the average of densities ``(C, N)`` by their shares."""
    used = shares > 0
    answer = np.empty(rows_p.shape[1])
    for first in range(0, len(answer), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        answer[part] = logsumexp(rows_p[used, part], axis=0, b=shares[used, None])
    return answer


def stacked(rows_p: Array, weights: Array, start: Array, steps: int = STEPS) -> Array:
    r"""Take EM steps towards the shares whose average gives ``(C, N)`` rows the most.

    .. math:: a_c' = \frac{1}{N} \sum_i \frac{a_c \, p_{ci}}{\sum_d a_d \, p_{di}}

    Few steps stay near the start where the rows cannot tell: there all the way would be chance.
    """
    p = np.exp(rows_p - rows_p.max(0))
    shares = start / start.sum()
    for _ in range(steps):
        shares = shares * (p @ (weights / (shares @ p))) / weights.sum()
    return shares


def shares_of(
    rows_p: Array,
    weights: Array,
    parameters: Array,
    rng: np.random.RandomState,
) -> Array:
    """Share out an average: from how often each is the best, some way to the best average.

    Where rows cannot tell, those of fewer ``parameters`` ``(C,)`` win more often: what noisy rows
    do not see of the others' details is mostly chance.
    """
    often = wins(rows_p, weights, PRICE * parameters, rng)
    start = (1 - EVEN_SHARE) * often + EVEN_SHARE / len(often)
    return _without_small(stacked(rows_p, weights, start))


def even_shares(rows_p: Array, weights: Array) -> Array:
    """Share out an average of densities of which any may be the best: evenly, unless rows object.

    Where rows are many, sizes that they cannot tell apart err in different places, and an even
    average is nearer to the truth than any of them (moons of 10^6 rows: .006 from .009 to .010).
    """
    return _without_small(stacked(rows_p, weights, np.ones(len(rows_p))))


def _without_small(shares: Array) -> Array:
    shares = np.where(shares >= min(SMALLEST_SHARE, shares.max()), shares, 0.0)
    return shares / shares.sum()
