"""Posteriors of Gaussian mixtures, in closed form."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deconflow._types import Array
from deconflow.fits.posterior import Posterior, Rows
from deconflow.mixtures import GaussianMixture, stack
from deconflow.observations import Observations
from deconflow.xd import posterior_pieces

Pieces = Iterator[tuple[Rows, GaussianMixture]]


@dataclass(frozen=True, eq=False, repr=False)
class ExactPosterior(Posterior):
    """A Gaussian mixture per row, made again in pieces by every method: memory stays small.

    Attributes
    ----------
    prior : GaussianMixture
        The density of the true values.
    data : Observations
        The rows.
    columns : array
        Numbers of the dimensions among those of the prior.
    threads : int or None
        How many to use at most.
    """

    prior: GaussianMixture
    data: Observations
    columns: Rows
    threads: int | None = None

    BY_ROW = (*Posterior.BY_ROW, "data")
    BY_COLUMN = (*Posterior.BY_COLUMN, "columns")

    @classmethod
    def of(
        cls, prior: GaussianMixture, data: Observations, names: list[str],
        threads: int | None = None, n_samples: int = 100, seed: int = 0,
    ) -> "ExactPosterior":  # fmt: skip
        """Find the moments of all rows."""
        pieces, columns = _pieces(prior, data, threads), np.arange(prior.dim)
        mean, covariance = _each_row(
            len(data), pieces, lambda each, _: (each.mean, each.covariance)
        )
        return cls(
            names, mean, covariance, np.broadcast_to(np.inf, len(data)),
            prior, data, columns, threads, n_samples=n_samples, seed=seed,
        )  # fmt: skip

    @property
    def exact(self) -> bool:
        """Whether the answer is a closed form, and no draws were weighed for it."""
        return True

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The mixtures of all rows, as one batch; who needs fewer components has empty ones."""
        rows, pieces = zip(*self._pieces(), strict=True)
        return stack(pieces)[np.argsort(np.concatenate(rows), kind="stable")]

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        numbers = n_samples * (len(self.columns) + 2) ** 2  # a root of each draw's covariance
        return self._ask(lambda mixture, _: (mixture.sample(n_samples, rng),), numbers)[0]

    def _quantiles(self, shares: Array) -> Array:
        each = self._ask(lambda mixture, rows: [mixture.quantiles_at(q[rows]) for q in shares])
        return np.stack(each)

    def _probability(self, lower: Array, upper: Array) -> Array:
        lower, upper = (np.broadcast_to(end, self.mean.shape) for end in (lower, upper))
        found = self._ask(
            lambda mixture, rows: (mixture.probability(lower[rows, None], upper[rows, None]),)
        )[0]
        data = self.data
        if data.projection is not None:
            return found
        w = np.asarray(data.w, np.float64)[:, self.columns]  # to the last bit, where that is exact
        exact = np.asarray(data.noise.variance() == 0)[:, self.columns]
        if data.observed is not None:
            exact = exact & np.asarray(data.observed)[:, self.columns]
        return np.where(exact, (lower <= w) & (w <= upper), found)

    def _ask(
        self, question: Callable[[GaussianMixture, Rows], Sequence[Array]], numbers: int = 0
    ) -> list[Array]:
        return _each_row(len(self), self._pieces(numbers), question)

    def _pieces(self, numbers: int = 0) -> Pieces:
        """Walk through rows and their mixtures, of which so many numbers are made for each row."""
        whole = np.array_equal(self.columns, np.arange(self.prior.dim))
        for rows, mixture in _pieces(self.prior, self.data, self.threads, numbers):
            yield rows, mixture if whole else mixture.marginal(self.columns)


def _pieces(
    prior: GaussianMixture, data: Observations, threads: int | None, numbers: int = 0
) -> Pieces:
    if not len(data):
        dim = prior.dim
        parts = (np.empty((0, 1)), np.empty((0, 1, dim)), np.empty((0, 1, dim, dim)))
        yield np.arange(0), GaussianMixture(*parts)
    yield from posterior_pieces(prior, data, threads, numbers)


def _each_row(
    n_rows: int, pieces: Pieces, question: Callable[[GaussianMixture, Rows], Sequence[Array]]
) -> list[Array]:
    """Put answers for the rows of each piece, asked with their numbers, where these rows are."""
    whole: list[Array] = []
    for rows, mixture in pieces:
        parts = question(mixture, rows)
        whole = whole or [np.empty((n_rows, *part.shape[1:])) for part in parts]
        for answer, part in zip(whole, parts, strict=True):
            answer[rows] = part
    return whole
