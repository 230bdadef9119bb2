r"""Fits that leave out a fold of the rows, and what the rows left out say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import KFold

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.xd.em import EMResult
from deconflow.xd.expectation import expectation
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters
from deconflow.xd.layout import KernelRows, lay_out
from deconflow.xd.shares import paired, shares_of

Table = dict[str, NDArray[Any]]
Starts = Sequence[GaussianMixture | None]
FAILED_START = 0.003
"""A start whose mean training log-likelihood is this far below the best is left out, or as far as
chance moves it where parameters are many: half their number per row."""


class Fold(NamedTuple):
    """The rows that are fitted, and those left out."""

    kept: NDArray[np.int64]
    held: NDArray[np.int64]


def make_folds(data: Observations, n_folds: int, rng: np.random.RandomState) -> list[Fold]:
    """Part rows into folds by chance; each row is held out once.

    Where values are missing, rows that have the same ones are dealt out evenly: so a column that
    few rows measure is left to every fit.
    """
    n_rows = len(data)
    if n_rows < 2:
        raise ValueError(f"Expected at least 2 rows in w to choose by held-out rows; got {n_rows}.")
    settings: dict[str, Any] = {"shuffle": True, "random_state": rng.randint(2**31 - 1)}
    folds = min(n_folds, n_rows)
    if data.observed is None:
        return [Fold(*pair) for pair in KFold(folds, **settings).split(np.empty(n_rows))]
    seen = data.observed.numpy()
    if n_rows > 2 and seen.sum(0).min() == 1:
        raise ValueError(
            "Expected every column of w to be measured in at least 2 rows, to choose by held-out "
            f"rows; got column {int(seen.sum(0).argmin())} in one. Drop it, or fit XDGMM with one "
            "number of components."
        )
    return _dealt_out(seen, folds, settings["random_state"])


def _dealt_out(seen: NDArray[np.bool_], folds: int, seed: int) -> list[Fold]:
    """Deal out rows in the order of what is missing, by chance where that is the same."""
    order = np.random.RandomState(seed).permutation(len(seen))
    rarest = np.argsort(seen.sum(0))  # what sets rows apart first
    order = order[np.lexsort([seen[order, d] for d in rarest[::-1]])]
    number = np.empty(len(seen), np.int64)
    number[order] = np.arange(len(seen)) % folds
    return [Fold(np.flatnonzero(number != f), np.flatnonzero(number == f)) for f in range(folds)]


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

    Iterating prepares one fold after another; ``rng`` makes folds, unless they are given, and
    starts.
    """

    def __init__(
        self, data: Observations, folds: int | Sequence[Fold], rng: np.random.RandomState
    ) -> None:
        self.data, self.rng = data, rng
        self.weights = row_weights(data)
        self.folds = make_folds(data, folds, rng) if isinstance(folds, int) else list(folds)

    def __iter__(self) -> Iterator[PreparedFold]:
        return (PreparedFold(self.data, fold) for fold in self.folds)

    def candidate(self, settings: FitSettings) -> Candidate:
        """Return settings that are not fitted yet."""
        return Candidate(settings, np.full(len(self.data), np.nan))

    def add(
        self, candidate: Candidate, fold: PreparedFold, starts: Starts, *, averaged: bool = True
    ) -> None:
        """Fit without one fold: the average of the starts, or else the best of them."""
        settings = candidate.settings
        results = fold.rest.fit_from(starts, settings, self.rng)
        good = successful(results, failure(settings.n_components, fold.rest.rows))
        candidate.fits.append(good if averaged else good[:1])
        candidate.held_out[fold.held] = log_p(
            candidate.density(-1), fold.rows, settings.stopping.threads
        )

    def mean(self, candidate: Candidate) -> float:
        """Mean held-out log-likelihood."""
        return float(np.average(candidate.held_out, weights=self.weights))

    def behind(self, candidates: Sequence[Candidate]) -> tuple[Array, Array]:
        """How far each is behind the best, and the standard error of that."""
        return paired(held_out_of(candidates), self.weights)

    def shares(self, candidates: Sequence[Candidate], smallest: float) -> Array:
        """Share out an average among candidates; none gets less than the ``smallest`` but zero."""
        dim = self.data.latent_dim
        parameters = [n_parameters(each.settings.n_components, dim) for each in candidates]
        return shares_of(
            held_out_of(candidates), self.weights, np.array(parameters), self.rng, smallest
        )

    def table(self, candidates: Sequence[Candidate], shares: Array, entropy: ArrayLike) -> Table:
        """Say what a choice was based on.

        Returns
        -------
        dict of arrays
            One entry per candidate: ``n_components``, ``floor``, ``shrinkage`` (rows that a
            prior on covariances counts as), ``train`` and ``held_out`` mean log-likelihood,
            ``behind_best`` (held-out difference to the best), its paired standard
            error ``behind_best_se``, ``entropy``, ``share`` of the average and ``chosen``.
        """
        behind, error = self.behind(candidates)
        train = [[best.log_likelihood for best, *_ in each.fits] for each in candidates]
        return {
            "n_components": np.array([each.settings.n_components for each in candidates]),
            "floor": np.array([each.settings.floor for each in candidates]),
            "shrinkage": np.array([each.settings.shrinkage for each in candidates]),
            "train": np.mean(train, axis=1),
            "held_out": np.array([self.mean(each) for each in candidates]),
            "behind_best": behind,
            "behind_best_se": error,
            "entropy": np.asarray(entropy),
            "share": shares,
            "chosen": shares > 0,
        }


def held_out_of(candidates: Sequence[Candidate]) -> Array:
    """Held-out log-likelihoods ``(C, N)``."""
    return np.stack([each.held_out for each in candidates])


def failure(n_components: int, rows: KernelRows) -> float:
    """How far below the best start, in mean log-likelihood, one counts as stuck."""
    return max(FAILED_START, 0.5 * n_parameters(n_components, rows.dim) / rows.n_rows)


def successful(results: list[EMResult], failed: float) -> list[EMResult]:
    """Best first, without those that got stuck."""
    ordered = sorted(results, key=lambda result: -result.log_likelihood)
    least = ordered[0].log_likelihood - failed
    return [result for result in ordered if result.log_likelihood >= least]


def log_p(mixture: GaussianMixture, rows: KernelRows, threads: int | None = None) -> Array:
    """Log-likelihood of each row, in the user's units."""
    mixture = rows.units.mixture_to_standard(mixture)
    return expectation(mixture, rows, moments=False, threads=threads).log_p


def row_weights(data: Observations) -> Array:
    """Weights of the rows, ones if there are none."""
    return np.ones(len(data)) if data.weights is None else data.weights.numpy()
