"""Posteriors in closed form: a Gaussian mixture per row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.checks import check_integer, check_seed
from deconflow.fits.posterior import USUAL_DRAWS, Posterior
from deconflow.mixtures import GaussianMixture, stack
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import posterior_pieces

ROWS_AT_ONCE = 1000
"""Rows whose mixtures are put together at a time."""


class ExactPosterior(Posterior):
    """A Gaussian mixture per row, made again in pieces for every question: memory stays small."""

    _exact = True

    def __init__(
        self,
        prior: GaussianMixture,
        data: Observations,
        names: list[str],
        threads: int | None = None,
    ) -> None:
        self._prior, self._data, self.names, self._threads = prior, data, names, threads
        self._columns = np.arange(prior.dim)
        self._find_moments()

    def _find_moments(self) -> None:
        self.mean, self.covariance = self._ask(lambda piece, _: (piece.mean, piece.covariance))
        self.effective_sample_size = np.broadcast_to(np.inf, len(self._data))  # nothing drawn

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The mixtures of all rows, as one batch; who needs fewer components has empty ones."""
        rows, pieces = zip(*self._pieces(), strict=True)
        return stack(pieces)[np.argsort(np.concatenate(rows), kind="stable")]

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        rng = check_random_state(random_state)
        beside = n_samples * (len(self._columns) + 2) ** 2  # a root of each draw's covariance
        return self._ask(lambda piece, _: (piece.sample(n_samples, rng),), beside)[0]

    def __len__(self) -> int:
        return len(self._data)

    def _take(self, chosen: NDArray[np.int64]) -> ExactPosterior:
        part = self._copy()
        part._data = self._data[chosen]
        part.mean, part.covariance = self.mean[chosen], self.covariance[chosen]
        part.effective_sample_size = self.effective_sample_size[chosen]
        return part

    def _marginal(self, keep: NDArray[np.int64]) -> ExactPosterior:
        part = self._copy()
        part._columns, part.names = self._columns[keep], [self.names[d] for d in keep]
        part.mean = self.mean[:, keep]
        part.covariance = self.covariance[:, keep[:, None], keep]
        return part

    def _copy(self) -> ExactPosterior:
        """Copy all but what was computed for these rows and columns."""
        part = copy(self)
        for name in ("mixture", "samples"):
            vars(part).pop(name, None)
        return part

    def _quantiles(self, shares: Array) -> Array:
        found = self._ask(lambda piece, _: tuple(piece.quantile(float(share)) for share in shares))
        return np.stack(found)

    def _quantiles_at(self, shares: Array) -> Array:
        return self._ask(lambda piece, rows: (piece.quantiles_at(shares[rows]),))[0]

    def _probability(self, lower: Array, upper: Array) -> Array:
        lower, upper = (np.broadcast_to(end, self.mean.shape) for end in (lower, upper))
        found = self._ask(
            lambda piece, rows: (piece.probability(lower[rows, None], upper[rows, None]),)
        )[0]
        data = self._data
        if data.projection is not None:
            return found
        w = data.w.double().numpy()[:, self._columns]  # to the last bit, where that is the truth
        exact = (data.noise.variance() == 0).numpy()[:, self._columns]
        if data.observed is not None:
            exact = exact & data.observed.numpy()[:, self._columns]
        return np.where(exact, (lower <= w) & (w <= upper), found)

    def _pieces(self, beside: int = 0) -> Iterator[tuple[NDArray[np.int64], GaussianMixture]]:
        """Walk through rows and their mixtures, of which so many numbers are made for each row."""
        dim = len(self._columns)
        if not len(self._data):
            parts = (np.empty((0, 1)), np.empty((0, 1, dim)), np.empty((0, 1, dim, dim)))
            yield np.arange(0), GaussianMixture(*parts)
        whole = np.array_equal(self._columns, np.arange(self._prior.dim))
        for rows, piece in posterior_pieces(self._prior, self._data, self._threads, beside):
            yield rows, piece if whole else piece.marginal(self._columns)

    def _ask(
        self,
        question: Callable[[GaussianMixture, NDArray[np.int64]], tuple[Array, ...]],
        beside: int = 0,
    ) -> list[Array]:
        """Put the answers of all pieces, asked with the numbers of their rows, where these are."""
        whole: list[Array] = []
        for rows, piece in self._pieces(beside):
            parts = question(piece, rows)
            whole = whole or [np.empty((len(self._data), *part.shape[1:])) for part in parts]
            for answer, part in zip(whole, parts, strict=True):
                answer[rows] = part
        return whole


class MixedPosterior(ExactPosterior):
    """An average of posteriors in closed form, by shares of their own for every row.

    Parameters
    ----------
    parts
        Posteriors of the same rows.
    shares
        ``(C, N)``: of each part in each row.
    """

    def __init__(self, parts: Sequence[ExactPosterior], shares: Array) -> None:
        first = parts[0]
        self._parts, self._shares = list(parts), shares
        self._data, self.names, self._columns = first._data, first.names, first._columns
        self._find_moments()

    def _take(self, chosen: NDArray[np.int64]) -> MixedPosterior:
        return MixedPosterior([part[chosen] for part in self._parts], self._shares[:, chosen])

    def _marginal(self, keep: NDArray[np.int64]) -> MixedPosterior:
        return MixedPosterior([part.marginal(keep) for part in self._parts], self._shares)

    def _pieces(self, beside: int = 0) -> Iterator[tuple[NDArray[np.int64], GaussianMixture]]:
        step = min(ROWS_AT_ONCE, rows_at_once(beside))
        for first in range(0, max(1, len(self._data)), step):
            rows = np.arange(first, min(first + step, len(self._data)))
            each = [part[rows].mixture for part in self._parts]
            yield (
                rows,
                GaussianMixture(
                    np.concatenate(
                        [
                            share[:, None] * mixture.weights
                            for share, mixture in zip(self._shares[:, rows], each, strict=True)
                        ],
                        1,
                    ),
                    np.concatenate([mixture.means for mixture in each], 1),
                    np.concatenate([mixture.covariances for mixture in each], 1),
                ),
            )
