"""What a row's measurement says about its true value, exact or by weighted draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.checks import as_floats, check_integer, check_number, check_seed
from deconflow.mixtures import GaussianMixture, stack
from deconflow.noise import as_index
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import posterior_pieces

USUAL_DRAWS = 100


class Posterior(ABC):
    """The posterior of each row's true value.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    mean, sd : array
        ``(N, D)``.
    covariance, correlation : array
        ``(N, D, D)``; correlations are zero where a value is exact.
    samples : array
        ``(N, S, D)`` draws.
    effective_sample_size : array
        ``(N,)``: how many exact draws the answer for a row is worth; infinite for a closed form.
        Below about 10 the answer is rough: ask for more ``n_proposals``.

    Examples
    --------
    >>> from deconflow import XDGMM
    >>> w = np.random.default_rng(0).normal(size=(500, 2))
    >>> posterior = XDGMM(1).fit(w, noise=[0.5, 0.5]).posterior([[1.0, 2.0]], noise=[0.5, 0.5])
    >>> low, high = posterior.interval(0.9)
    >>> bool((low < posterior.mean).all() and (posterior.mean < high).all())
    True
    """

    names: list[str]
    _exact = False

    @property
    @abstractmethod
    def mean(self) -> Array:
        """Posterior means ``(N, D)``."""

    @property
    @abstractmethod
    def covariance(self) -> Array:
        """Posterior covariances ``(N, D, D)``."""

    @property
    @abstractmethod
    def effective_sample_size(self) -> Array:
        """How many exact draws each row's answer is worth, ``(N,)``."""

    @property
    @abstractmethod
    def samples(self) -> Array:
        """Draws ``(N, S, D)``, the same at every call."""

    @abstractmethod
    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """Take some rows; a single number gives a posterior of one row."""

    @abstractmethod
    def marginal(self, columns: Any) -> Self:
        """Return the posterior of some dimensions, by name or number, in the order given."""

    @abstractmethod
    def _quantiles(self, shares: Array) -> Array:
        """Quantiles of each value, ``(Q, N, D)``."""

    def quantile(self, q: float | Sequence[float] | Array) -> Array:
        """Quantiles of each value: ``(N, D)`` for one share ``q``, ``(Q, N, D)`` for several."""
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.ndim != 1 or not shares.size or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")
        found = self._quantiles(shares)
        return found[0] if np.ndim(q) == 0 else found

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper end, each ``(N, D)``, of the central interval with this probability."""
        check_number("level", level, 0, 1)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    @property
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))

    @property
    def correlation(self) -> Array:
        """Posterior correlations ``(N, D, D)``, zero where a value is exact."""
        size = self.sd[:, :, None] * self.sd[:, None, :]
        return np.divide(self.covariance, size, out=np.zeros_like(size), where=size > 0)

    def to_frame(self, q: float | Sequence[float] = ()) -> Any:
        """Return a pandas data frame: mean, standard deviation and quantiles of each column."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ModuleNotFoundError(
                "Expected pandas to be installed, because data frames need it; got none. "
                "Run: pip install 'deconflow[tables]'",
                name="pandas",
            ) from error
        parts = {"mean": self.mean, "sd": self.sd}
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.size:
            endings = (f"q{100 * share:g}".replace(".", "_") for share in shares)
            parts |= zip(endings, self.quantile(shares), strict=True)
        columns = {
            f"{name}_{ending}": values[:, d]
            for ending, values in parts.items()
            for d, name in enumerate(self.names)
        }
        if not self._exact:
            columns["effective_sample_size"] = self.effective_sample_size
        return pd.DataFrame(columns)

    def _chosen(self, rows: Any) -> NDArray[np.int64]:
        """Numbers of the rows that an index takes."""
        return torch.arange(len(self))[as_index(rows, len(self))].numpy()

    def __len__(self) -> int:
        return len(self.effective_sample_size)

    def __iter__(self) -> Any:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        kind = "exact" if self._exact else "by weighted draws"
        return f"Posterior({len(self)} rows of {', '.join(self.names)}; {kind})"


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
        self._mean, self._covariance = self._ask(lambda piece: (piece.mean, piece.covariance))

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The mixtures of all rows, as one batch; who needs fewer components has empty ones."""
        rows, pieces = zip(*self._pieces(), strict=True)
        return stack(pieces)[np.argsort(np.concatenate(rows), kind="stable")]

    @property
    def mean(self) -> Array:
        """Posterior means ``(N, D)``."""
        return self._mean

    @property
    def covariance(self) -> Array:
        """Posterior covariances ``(N, D, D)``."""
        return self._covariance

    @property
    def effective_sample_size(self) -> Array:
        """Infinite: nothing was drawn."""
        return np.full(len(self._data), np.inf)

    @cached_property
    def samples(self) -> Array:
        """Draws ``(N, 100, D)``, the same at every call."""
        return self.sample(USUAL_DRAWS, random_state=0)

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        rng = check_random_state(random_state)
        return self._ask(lambda piece: (piece.sample(n_samples, rng),))[0]

    def __getitem__(self, rows: Any) -> ExactPosterior:
        chosen = self._chosen(rows)
        part = copy(self)
        part._forget()
        part._data = self._data[chosen]
        part._mean, part._covariance = self._mean[chosen], self._covariance[chosen]
        return part

    def marginal(self, columns: Any) -> ExactPosterior:
        """Return the posterior of some dimensions, by name or number, in the order given."""
        keep = column_numbers(columns, self.names)
        part = copy(self)
        part._forget()
        part._columns, part.names = self._columns[keep], [self.names[d] for d in keep]
        part._mean = self._mean[:, keep]
        part._covariance = self._covariance[:, keep[:, None], keep]
        return part

    def _forget(self) -> None:
        """Drop what was computed for other rows or columns."""
        for name in ("mixture", "samples"):
            vars(self).pop(name, None)

    def _quantiles(self, shares: Array) -> Array:
        found = self._ask(lambda piece: tuple(piece.quantile(float(share)) for share in shares))
        return np.stack(found)

    def _pieces(self) -> Iterator[tuple[NDArray[np.int64], GaussianMixture]]:
        if not len(self._data):
            dim = len(self._columns)
            parts = (np.empty((0, 1)), np.empty((0, 1, dim)), np.empty((0, 1, dim, dim)))
            yield np.arange(0), GaussianMixture(*parts)
        for rows, piece in posterior_pieces(self._prior, self._data, self._threads):
            yield rows, piece.marginal(self._columns)

    def _ask(self, question: Callable[[GaussianMixture], tuple[Array, ...]]) -> list[Array]:
        """Put the answers of all pieces where their rows are."""
        whole: list[Array] = []
        for rows, piece in self._pieces():
            parts = question(piece)
            whole = whole or [np.empty((len(self._data), *part.shape[1:])) for part in parts]
            for answer, part in zip(whole, parts, strict=True):
                answer[rows] = part
        return whole


class WeightedPosterior(Posterior):
    """Draws by weight, with the moments of all that were weighed."""

    def __init__(
        self, samples: Array, mean: Array, covariance: Array, size: Array, names: list[str]
    ) -> None:
        self._samples, self._mean, self._covariance, self._size = samples, mean, covariance, size
        self.names = names

    @property
    def mean(self) -> Array:
        """Posterior means ``(N, D)``."""
        return self._mean

    @property
    def covariance(self) -> Array:
        """Posterior covariances ``(N, D, D)``."""
        return self._covariance

    @property
    def effective_sample_size(self) -> Array:
        """How many exact draws the weighted proposals of each row are worth, ``(N,)``."""
        return self._size

    @property
    def samples(self) -> Array:
        """Draws ``(N, S, D)``."""
        return self._samples

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)`` from the draws that are there; more of them repeat."""
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        rng = check_random_state(random_state)
        count = self._samples.shape[1]
        chosen = rng.permutation(count)[:n_samples]
        if n_samples > count:
            chosen = rng.randint(count, size=n_samples)
        return self._samples[:, chosen]

    def __getitem__(self, rows: Any) -> WeightedPosterior:
        chosen = self._chosen(rows)
        return WeightedPosterior(
            self._samples[chosen],
            self._mean[chosen],
            self._covariance[chosen],
            self._size[chosen],
            self.names,
        )

    def marginal(self, columns: Any) -> WeightedPosterior:
        """Return the posterior of some dimensions, by name or number, in the order given."""
        keep = column_numbers(columns, self.names)
        return WeightedPosterior(
            self._samples[:, :, keep],
            self._mean[:, keep],
            self._covariance[:, keep[:, None], keep],
            self._size,
            [self.names[d] for d in keep],
        )

    def _quantiles(self, shares: Array) -> Array:
        return np.quantile(self._samples, shares, axis=1)


def column_numbers(
    columns: ArrayLike, names: Sequence[str], label: str = "columns"
) -> NDArray[np.int64]:
    """Turn column names or numbers into numbers, each once; errors call them by the label.

    Examples
    --------
    >>> column_numbers(["y", "x"], ["x", "y", "z"]).tolist()
    [1, 0]
    """
    given = np.atleast_1d(np.asarray(columns, dtype=object))
    last = len(names) - 1
    known = {name: d for d, name in enumerate(names)}
    found = []
    for column in given.ravel():
        whole = isinstance(column, int | np.integer) and not isinstance(column, bool | np.bool_)
        if whole and 0 <= column <= last:
            found.append(int(column))
        elif isinstance(column, str) and column in known:
            found.append(known[column])
        else:
            raise ValueError(
                f"Expected {label} among {', '.join(names)}, or numbers between 0 and {last}; "
                f"got {column!r}."
            )
    if given.ndim != 1 or not found:
        raise ValueError(f"Expected one or more {label}; got {columns!r}.")
    if len(set(found)) < len(found):
        raise ValueError(f"Expected each of the {label} once; got {columns!r}.")
    return np.array(found)
