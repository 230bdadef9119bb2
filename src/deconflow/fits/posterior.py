"""Posterior distributions of rows' true values, and those made of weighted draws."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.checks import as_floats, check_integer, check_number, check_seed
from deconflow.extras import need
from deconflow.noise import as_index
from deconflow.observations import Labels
from deconflow.randomness import RandomState

USUAL_DRAWS = 100
#: Arrays of the size of the draws that a method may make of them.
ARRAYS = 4
#: Dimensions of datasets of xarray.
DIMENSIONS = ("chain", "draw", "row")


@dataclass(frozen=True, eq=False, repr=False)
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
    effective_sample_size : array
        ``(N,)``: how many exact draws the answer for a row is worth; infinite for a closed form.
        Below about 10 the answer is rough: ask for more ``n_proposals``.
    samples : array
        ``(N, n_samples, D)`` draws.
    sign_error, sign_q_values : array
        ``(N, D)``: how likely the sign of a value is wrong, for each row, and on average over all
        rows at least as certain.
    n_samples, seed : int
        Number of the draws in ``samples``, and their seed.
    origin : Labels
        The kind and the index of the table that the rows came in, and the units of the truth.
    exact : bool
        Whether the answer is a closed form, and no draws were weighed for it.

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
    n_samples: int = field(default=USUAL_DRAWS, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    origin: Labels = field(default=Labels(), kw_only=True)
    exact: bool = field(default=False, kw_only=True)

    #: Fields with an entry for each row, as their first axis.
    BY_ROW: ClassVar[tuple[str, ...]] = ("mean", "covariance", "effective_sample_size")
    #: Fields with an entry for each column, as their last axis.
    BY_COLUMN: ClassVar[tuple[str, ...]] = ("mean",)

    @abstractmethod
    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        """Draw ``(N, n_samples, D)``."""

    @abstractmethod
    def _quantiles(self, shares: Array) -> Array:
        """Quantiles of each value, at shares ``(Q, N, D)``, of the same shape."""

    @abstractmethod
    def _probability(self, lower: Array, upper: Array) -> Array:
        """Probability ``(N, D)`` of values between bounds ``(N, D)``, ends included."""

    def sample(self, n_samples: int = USUAL_DRAWS, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``; from draws by weight, of which more than there are repeat."""
        check_integer("n_samples", n_samples, 1)
        check_seed(random_state)
        return self._draw(n_samples, check_random_state(random_state))

    @cached_property
    def samples(self) -> Array:
        """Draws ``(N, n_samples, D)``, the same at every call."""
        return self.sample(self.n_samples, self.seed)

    def __getitem__(self, rows: Any) -> Self:
        """Take some rows; a single number gives a posterior of one row."""
        index = as_index(rows, len(self))
        chosen = index if isinstance(index, slice) else np.arange(len(self))[np.asarray(index)]
        parts = {name: getattr(self, name)[chosen] for name in self.BY_ROW}
        return replace(self, **parts, origin=self.origin[chosen])

    def marginal(self, columns: Any) -> Self:
        """Return the posterior of some dimensions, by name or number, in the order given."""
        keep = column_numbers(columns, self.names)
        own = {name: getattr(self, name) for name in self.BY_COLUMN}
        parts: dict[str, Any] = {
            name: x.marginal(keep) if isinstance(x, Posterior) else x[..., keep]
            for name, x in own.items()
        }
        parts["covariance"] = self.covariance[:, keep[:, None], keep]
        units = self.origin.units and [self.origin.units[d] for d in keep]
        origin, names = replace(self.origin, units=units), [self.names[d] for d in keep]
        return replace(self, **parts, names=names, origin=origin)

    def quantile(self, q: float | Sequence[float] | Array) -> Array:
        """Quantiles of each value: ``(N, D)`` for one share ``q``, ``(Q, N, D)`` for several."""
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.ndim != 1 or not shares.size or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")
        found = self._quantiles(
            np.broadcast_to(shares[:, None, None], (len(shares), *self.mean.shape))
        )
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
        count = rankdata(errors, "max", axis=0).astype(np.int64)
        sums = np.cumsum(np.sort(errors, axis=0), axis=0)
        return np.take_along_axis(sums, count - 1, axis=0) / count

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
        parts = {"mean": self.mean, "sd": self.sd}
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.size:
            endings = [f"q{100 * share:g}".replace(".", "_") for share in shares]
            if len(set(endings)) < len(endings):
                raise ValueError(f"Expected shares in q that differ to six digits; got {q!r}.")
            parts |= zip(endings, self.quantile(shares), strict=True)
        columns = {
            f"{name}_{ending}": values[:, d]
            for ending, values in parts.items()
            for d, name in enumerate(self.names)
        }
        if not self.exact:
            columns["effective_sample_size"] = self.effective_sample_size
        library = self.origin.kind.__module__.split(".")[0]
        if library == "polars":
            return need("polars").DataFrame(columns)
        if library != "astropy":
            return need("pandas").DataFrame(columns, index=self.origin.index)
        tables = need("astropy.table")
        kind = tables.Table if self.origin.kind is tables.Table else tables.QTable
        own = self._units().items()
        return kind(columns, units={f"{name}_{end}": unit for end in parts for name, unit in own})

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
        xarray = need("xarray", "its datasets were asked for")
        for name in self.names:
            if name in DIMENSIONS:
                raise ValueError(
                    "Expected columns with other names than the dimensions "
                    f"{', '.join(DIMENSIONS)}; got {name!r}. Rename it before the fit."
                )
        drawn = self.samples if n_samples is None else self.sample(n_samples, random_state)
        index, units = self.origin.index, self._units()
        data = {
            name: (DIMENSIONS, values.T[None], {"units": units[name]} if name in units else {})
            for name, values in zip(self.names, np.moveaxis(drawn, 2, 0), strict=True)
        }
        rows: Any = {"row": np.arange(len(drawn)) if index is None else index.to_numpy()}
        if index is not None and index.nlevels > 1:
            rows = xarray.Coordinates.from_pandas_multiindex(index, "row")
        numbers = {"chain": [0], "draw": np.arange(drawn.shape[1])}
        return xarray.Dataset(data, numbers).assign_coords(rows)

    def to_arviz(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return draws for ArviZ 1.0 or later: a ``DataTree`` with the group ``posterior``.

        All else is as in :meth:`to_xarray`. The draws are independent, so there is no convergence
        to check.

        Parameters
        ----------
        n_samples, random_state
            As for :meth:`to_xarray`.
        """
        return need("arviz_base", "its objects were asked for").convert_to_datatree(
            self.to_xarray(n_samples, random_state)
        )

    def _units(self) -> dict[str, str]:
        """Return the units of the columns that have one."""
        pairs = zip(self.names, self.origin.units or [None] * len(self.names), strict=True)
        return {name: unit for name, unit in pairs if unit}

    def _bounds(self, name: str, given: ArrayLike | None, otherwise: float) -> Array:
        """Check bounds, and return one for each value, ``(N, D)``."""
        bounds = np.asarray(otherwise) if given is None else as_floats(given, name)
        dim = len(self.names)
        if bounds.shape not in ((), (dim,)) or np.isnan(bounds).any():
            raise ValueError(
                f"Expected {name} as a number, or as one for each of {dim} columns; got {given!r}."
            )
        return np.broadcast_to(bounds, self.mean.shape)

    @property
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))

    @property
    def correlation(self) -> Array:
        """Posterior correlations ``(N, D, D)``, zero where a value is exact."""
        sd = self.sd
        size = sd[:, :, None] * sd[:, None, :]
        return np.divide(self.covariance, size, out=size, where=size > 0)

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "by weighted draws"
        return f"Posterior({len(self)} rows of {', '.join(self.names)}; {kind})"


@dataclass(frozen=True, eq=False, repr=False)
class WeightedPosterior(Posterior):
    """Draws by weight ``drawn``, ``(N, S, D)``, with the moments of all that were weighed."""

    drawn: Array

    BY_ROW = (*Posterior.BY_ROW, "drawn")
    BY_COLUMN = (*Posterior.BY_COLUMN, "drawn")

    @classmethod
    def of_pieces(
        cls, n_rows: int, n_samples: int, names: list[str], pieces: Iterable[tuple[Any, Any]]
    ) -> "WeightedPosterior":
        """Put pieces together: rows, and their draws, means, covariances and effective sizes."""
        dim = len(names)
        arrays = [
            np.empty((n_rows, *shape)) for shape in ((n_samples, dim), (dim,), (dim, dim), ())
        ]
        for rows, parts in pieces:
            for array, part in zip(arrays, parts, strict=True):
                array[rows] = part
        drawn, mean, covariance, size = arrays
        return cls(names, mean, covariance, size, drawn, n_samples=n_samples)

    @property
    def samples(self) -> Array:  # type: ignore[override]
        """Draws ``(N, S, D)``."""
        return self.drawn

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        count = self.drawn.shape[1]
        chosen = rng.permutation(count)[:n_samples]
        if n_samples > count:
            chosen = rng.randint(count, size=n_samples)
        return self.drawn[:, chosen]

    def _quantiles(self, shares: Array) -> Array:
        found, last = np.empty(shares.shape), self.drawn.shape[1] - 1
        for some in self._slices():
            ranked = np.sort(self.drawn[some], axis=1)
            place = shares[:, some].swapaxes(0, 1) * last
            first = np.floor(place).astype(np.int64)
            low = np.take_along_axis(ranked, first, 1)
            high = np.take_along_axis(ranked, np.minimum(first + 1, last), 1)
            found[:, some] = (low + (place - first) * (high - low)).swapaxes(0, 1)
        return found

    def _probability(self, lower: Array, upper: Array) -> Array:
        found = np.empty_like(self.mean)
        for some in self._slices():
            drawn, low, high = self.drawn[some], lower[some, None], upper[some, None]
            found[some] = ((drawn >= low) & (drawn <= high)).mean(1)
        return found

    def _slices(self) -> Iterator[slice]:
        """Walk through the rows in pieces of which a few copies do no harm."""
        return row_slices(len(self), ARRAYS * self.drawn.shape[1] * len(self.names))


def mixed_moments(
    shares: Sequence[Array], means: Sequence[Array], covariances: Sequence[Array]
) -> tuple[Array, Array]:
    """Mean and covariance of each row's average of parts, from the shares ``(N,)`` of each part."""
    parts = list(zip(shares, means, covariances, strict=True))
    mean = np.sum([share[:, None] * own for share, own, _ in parts], axis=0)
    covariance = np.zeros(covariances[0].shape)
    for some in row_slices(len(mean), ARRAYS * mean.shape[1] ** 2):
        for share, own, spread in parts:
            apart = own[some] - mean[some]
            around = spread[some] + apart[:, :, None] * apart[:, None]
            covariance[some] += share[some, None, None] * around
    return mean, covariance


def column_numbers(columns: ArrayLike, names: Sequence[str], label: str = "columns") -> IntArray:
    """Turn column names or numbers into numbers, each once; errors call them by the label.

    Examples
    --------
    >>> column_numbers(["y", "x"], ["x", "y", "z"]).tolist()
    [1, 0]
    """
    given = np.atleast_1d(np.asarray(columns, dtype=object))
    known: dict[Any, int] = {d: d for d in range(len(names))} | {n: d for d, n in enumerate(names)}
    found = []
    for column in given.ravel():
        kind_is_right = isinstance(column, str | int | np.integer) and not isinstance(column, bool)
        if not kind_is_right or column not in known:
            raise ValueError(
                f"Expected {label} among {', '.join(names)}, or numbers between 0 and "
                f"{len(names) - 1}; got {column!r}."
            )
        found.append(known[column])
    if given.ndim != 1 or not found:
        raise ValueError(f"Expected one or more {label}; got {columns!r}.")
    if len(set(found)) < len(found):
        raise ValueError(f"Expected each of the {label} once; got {columns!r}.")
    return np.array(found)
