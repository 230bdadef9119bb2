"""What a row's measurement says about its true value, exact or by weighted draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.checks import as_floats, check_integer, check_number, check_seed
from deconflow.fits import to_other_tools as tools
from deconflow.noise import as_index
from deconflow.randomness import RandomState

USUAL_DRAWS = 100
ARRAYS = 4
"""Arrays of the size of the draws that a question about them may make."""


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
    sign_error, sign_q_values : array
        ``(N, D)``: how likely the sign of a value is wrong, for each row, and on average over all
        rows at least as certain.
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
    mean: Array
    covariance: Array
    effective_sample_size: Array
    _origin = tools.Origin()
    _exact = False
    _seed = 0
    """Of the draws in ``samples``, if these are made when they are asked for."""

    @abstractmethod
    def sample(self, n_samples: int, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""

    @cached_property
    def samples(self) -> Array:
        """Draws ``(N, S, D)``, the same at every call."""
        return self.sample(USUAL_DRAWS, random_state=self._seed)

    def __getitem__(self, rows: Any) -> Self:
        """Take some rows; a single number gives a posterior of one row."""
        chosen = torch.arange(len(self))[as_index(rows, len(self))].numpy()
        part = self._take(chosen)
        part._origin, part._seed = self._origin.rows(chosen), self._seed
        return part

    def marginal(self, columns: Any) -> Self:
        """Return the posterior of some dimensions, by name or number, in the order given."""
        keep = column_numbers(columns, self.names)
        part = self._marginal(keep)
        part._origin, part._seed = self._origin.columns(keep), self._seed
        return part

    def _draw_by(self, seed: int) -> None:
        """Set the seed of draws that are still to be made."""
        self._seed = seed

    @abstractmethod
    def _take(self, chosen: NDArray[np.int64]) -> Self:
        """Take some rows, by their numbers."""

    @abstractmethod
    def _marginal(self, keep: NDArray[np.int64]) -> Self:
        """Return the posterior of some dimensions, by their numbers."""

    @abstractmethod
    def _quantiles(self, shares: Array) -> Array:
        """Quantiles of each value, ``(Q, N, D)``."""

    @abstractmethod
    def _quantiles_at(self, shares: Array) -> Array:
        """Quantiles ``(N, D)`` of each value, at shares of the same shape."""

    @abstractmethod
    def _probability(self, lower: Array, upper: Array) -> Array:
        """Probability ``(N, D)`` of values between bounds ``(D,)`` or ``(N, D)``, ends included."""

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

    def probability(self, lower: ArrayLike | None = None, upper: ArrayLike | None = None) -> Array:
        """Probability ``(N, D)`` that each value is between these bounds, ends included.

        Exact for a closed form; otherwise the share of the draws, in steps of one by their number.

        Parameters
        ----------
        lower, upper
            A number, or one for each dimension ``(D,)``, which may be infinite; None for no bound.

        Examples
        --------
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 1))
        >>> posterior = XDGMM(1).fit(w, noise=[0.5]).posterior([[0.0], [1.0]], noise=[0.5])
        >>> posterior.probability(lower=0).round(2).ravel()
        array([0.49, 0.96])
        """
        low = self._bounds("lower", lower, -np.inf)
        high = self._bounds("upper", upper, np.inf)
        if not (low <= high).all():
            raise ValueError(
                f"Expected lower bounds of at most the upper ones; got {lower!r} and {upper!r}."
            )
        return self._probability(low, high)

    @property
    def sign_error(self) -> Array:
        r"""Probability ``(N, D)`` that the sign one would give a value is wrong.

        .. math:: \min(P(v \leq 0 \mid w), \; P(v \geq 0 \mid w))

        the local false sign rate. Zero counts in both, so that a truth of exactly zero is an error
        whichever sign it is given: by itself it would have a sign error of one.

        References
        ----------
        Stephens (2017), "False discovery rates: a new deal", Biostatistics 18, 275-294.
        """
        return np.minimum(self.probability(upper=0.0), self.probability(lower=0.0))

    @property
    def sign_q_values(self) -> Array:
        """Expected share of wrong signs ``(N, D)`` among all rows at least as certain as each.

        The mean :attr:`sign_error` of the rows whose own is at most that of the row, by column: who
        declares the signs of all rows with a q-value of at most 0.05 expects 5 % of them, or fewer,
        to be wrong. It depends on all rows of this posterior; a sign error does not.

        References
        ----------
        Stephens (2017), "False discovery rates: a new deal", Biostatistics 18, 275-294.
        """
        errors = self.sign_error
        found = np.empty_like(errors)
        for d, each in enumerate(errors.T):
            ranked = np.sort(each)
            count = ranked.searchsorted(each, side="right")
            found[:, d] = np.cumsum(ranked)[count - 1] / count
        return found

    def to_frame(self, q: float | Sequence[float] = ()) -> Any:
        """Return a table of the library that the rows came from.

        A data frame of pandas, with their index; of polars; a table of astropy, with their units;
        of pandas where the rows were an array.

        Parameters
        ----------
        q
            Shares of quantiles, as ``[0.05, 0.95]``.

        Returns
        -------
        table
            ``x_mean``, ``x_sd`` and quantiles as ``x_q5`` of each column ``x``; the effective
            sample size, where the answer is made of draws.
        """
        return tools.to_frame(self, q)

    def to_xarray(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return draws as a dataset of xarray: a variable for each column, over its rows.

        All draws have equal weight: posteriors in closed form are drawn from, and weighted draws
        were resampled by weight, so that some may occur twice.

        Parameters
        ----------
        n_samples
            Number of draws of each row; None for the draws in ``samples``. Where the answer is made
            of draws, more than these repeat them: ask :meth:`DensityEstimator.posterior` for more.
        random_state
            Seed of the draws.

        Returns
        -------
        xarray.Dataset
            With dimensions ``chain`` (of one), ``draw`` and ``row``. Rows are named by the index
            of a pandas data frame, if they came in one, and numbered otherwise. Units are in the
            attribute ``units`` of a variable.
        """
        return tools.to_xarray(self, n_samples, random_state)

    def to_arviz(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return draws for ArviZ 1.0 or later: a ``DataTree`` with the group ``posterior``.

        All else is as in :meth:`to_xarray`. The draws are independent, so there is no convergence
        to check.

        Parameters
        ----------
        n_samples, random_state
            As for :meth:`to_xarray`.
        """
        return tools.to_arviz(self, n_samples, random_state)

    def _bounds(self, name: str, given: ArrayLike | None, otherwise: float) -> Array:
        """Check bounds, and return one for each dimension."""
        bounds = np.asarray(otherwise) if given is None else as_floats(given, name)
        dim = len(self.names)
        if bounds.shape not in ((), (dim,)) or np.isnan(bounds).any():
            raise ValueError(
                f"Expected {name} as a number, or as one for each of {dim} columns; got {given!r}."
            )
        return np.broadcast_to(bounds, (dim,))

    @property
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""
        variance = np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0)
        found: Array = np.sqrt(variance, out=variance)
        return found

    @property
    def correlation(self) -> Array:
        """Posterior correlations ``(N, D, D)``, zero where a value is exact."""
        sd = self.sd
        size = sd[:, :, None] * sd[:, None, :]
        return np.divide(self.covariance, size, out=size, where=size > 0)

    def __len__(self) -> int:
        return len(self.effective_sample_size)

    def __iter__(self) -> Any:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        kind = "exact" if self._exact else "by weighted draws"
        return f"Posterior({len(self)} rows of {', '.join(self.names)}; {kind})"


class WeightedPosterior(Posterior):
    """Draws by weight, with the moments of all that were weighed."""

    def __init__(
        self, samples: Array, mean: Array, covariance: Array, size: Array, names: list[str]
    ) -> None:
        self._samples, self.mean, self.covariance = samples, mean, covariance
        self.effective_sample_size, self.names = size, names

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

    def _take(self, chosen: NDArray[np.int64]) -> WeightedPosterior:
        return WeightedPosterior(
            self._samples[chosen],
            self.mean[chosen],
            self.covariance[chosen],
            self.effective_sample_size[chosen],
            self.names,
        )

    def _marginal(self, keep: NDArray[np.int64]) -> WeightedPosterior:
        return WeightedPosterior(
            self._samples[:, :, keep],
            self.mean[:, keep],
            self.covariance[:, keep[:, None], keep],
            self.effective_sample_size,
            [self.names[d] for d in keep],
        )

    def _quantiles(self, shares: Array) -> Array:
        found = np.empty((len(shares), *self.mean.shape))
        for some in self._slices():
            found[:, some] = np.quantile(self._samples[some], shares, axis=1)
        return found

    def _quantiles_at(self, shares: Array) -> Array:
        found = np.empty_like(self.mean)
        for some in self._slices():
            found[some] = _interpolated(np.sort(self._samples[some], axis=1), shares[some])
        return found

    def _probability(self, lower: Array, upper: Array) -> Array:
        lower, upper = (np.broadcast_to(end, self.mean.shape) for end in (lower, upper))
        found = np.empty_like(self.mean)
        for some in self._slices():
            drawn, low, high = self._samples[some], lower[some, None], upper[some, None]
            found[some] = ((drawn >= low) & (drawn <= high)).mean(1)
        return found

    def _slices(self) -> Iterator[slice]:
        """Walk through the rows in pieces of which a few copies do no harm."""
        return row_slices(len(self._samples), ARRAYS * self._samples.shape[1] * len(self.names))


def _interpolated(ranked: Array, shares: Array) -> Array:
    """Quantiles ``(N, D)`` of draws ``(N, S, D)`` in order, at shares of the same shape."""
    place = shares * (ranked.shape[1] - 1)
    first = np.floor(place).astype(np.int64)
    last = np.minimum(first + 1, ranked.shape[1] - 1)
    low, high = (np.take_along_axis(ranked, at[:, None], 1)[:, 0] for at in (first, last))
    return low + (place - first) * (high - low)


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
