"""The one abstraction for noise: the law of ``n`` in ``w = v + n``, row by row."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from deconflow._types import AnyArray, Array, Complex, IntArray
from deconflow.checks import (
    array_namespace,
    as_array,
    diagonals,
    is_torch_array,
    like,
    moved,
    refuse_if,
    refuse_where,
    take,
)

#: Lower and upper ends of each value's truth, infinite where there is none.
Ends = tuple[Array, Array]
#: Weights, means and variances of mixtures.
Table = tuple[Array, Array, Array]
#: Widths whose inverse squares single precision can add up.
NARROWEST = 1e-15
#: A slice, or numbers or flags of rows.
RowIndex = Any


class NoiseMixture(ABC):
    """The noise of each row as a mixture of Gaussians; see :meth:`Noise.as_mixture`."""

    #: Bytes ``(N, P)``, others for rows of another number of Gaussians; None if all have it.
    patterns: AnyArray | None = None

    @property
    @abstractmethod
    def n_parts(self) -> int:
        """Number of Gaussians in each row's mixture, over all its values."""

    @abstractmethod
    def take(
        self, rows: IntArray | slice | None = None, columns: IntArray | None = None
    ) -> "JointMixture":
        """Write out the mixtures of some rows and some measured values; None for all of them.

        Memory is that of these rows alone.
        """

    def harmonic_covariance(self) -> Array | None:
        """Inverse of the mean precision of each row, ``(N or 1, M, M)``.

        None where some Gaussians have other means than zero.
        """
        return None


@dataclass(frozen=True)
class JointMixture(NoiseMixture):
    """``sum_j c_j N(b_j, S_j)`` over whole rows; a leading axis of 1 holds for all rows.

    Attributes
    ----------
    weights, means : array
        ``(N or 1, J)``, and ``(N or 1, J, M)`` or None for zero.
    covariances : array
        ``(N or 1, J, M)`` if diagonal, else ``(N or 1, J, M, M)``.
    """

    weights: Array
    means: Array | None
    covariances: Array

    @property
    def n_parts(self) -> int:
        """Number of Gaussians in each row's mixture."""
        return self.weights.shape[1]

    def divide(self, unit: Array) -> "JointMixture":
        """Return the mixture of the noise divided by ``unit``, ``(M,)``."""
        means = None if self.means is None else self.means / unit
        by = unit**2 if self.covariances.ndim == 3 else np.outer(unit, unit)
        return JointMixture(self.weights, means, self.covariances / by)

    def harmonic_covariance(self) -> Array | None:
        """Inverse of the mean precision of each row, ``(N or 1, M, M)``; None if not centred."""
        if self.means is not None and self.means.any():
            return None
        if self.covariances.ndim == 3:
            return diagonals(1 / (self.weights[..., None] / self.covariances).sum(1))
        precisions = self.weights[..., None, None] * np.linalg.inv(self.covariances)
        return np.linalg.inv(precisions.sum(1))

    def take(
        self, rows: IntArray | slice | None = None, columns: IntArray | None = None
    ) -> "JointMixture":
        """Mixtures of some rows and some measured values."""
        arrays: list[Any] = [self.weights, self.means, self.covariances]
        if columns is not None:
            means = None if self.means is None else self.means[..., columns]
            covariances = self.covariances[..., columns]
            if covariances.ndim == 4:
                covariances = covariances[..., columns, :]
            arrays = [self.weights, means, covariances]
        if rows is not None:
            arrays = [x if x is None or len(x) == 1 else x[rows] for x in arrays]
        return JointMixture(*arrays)


class OfRows:
    """What has rows by index, as an array of standard deviations, and is no sequence."""

    dim: int
    n_rows: int | None

    def __len__(self) -> int:
        if self.n_rows is None:
            raise TypeError("This noise has one law for any number of rows, and no length.")
        return self.n_rows

    __iter__ = None  # numpy and `for` would walk through it

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"Expected an array; got {self!r}. A noise law: pass it as noise=...")

    @property
    def shape(self) -> tuple[int, int]:
        """Shape ``(N, dim)``; one row if there may be any number of them."""
        return self.n_rows or 1, self.dim


@dataclass(frozen=True)
class ByRow:
    """Arrays, tensors and the like with an axis of rows each, taken and moved together."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self, rows: RowIndex) -> Self:
        return replace(self, **{name: each[rows] for name, each in vars(self).items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # never changed, so no copy of what holds it needs its own

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Move tensors to another precision or device."""
        options = {"dtype": dtype, "device": device}
        return replace(self, **{name: each.to(**options) for name, each in vars(self).items()})


@dataclass(frozen=True)
class KeptDraws(ByRow):
    """Some of the draws that a law was made of, which tell where it is known.

    Attributes
    ----------
    offsets : array
        ``(N, K, D)`` draws of each row, as ``v - w``.
    weights : array
        ``(N, K)``; rows with fewer draws have weights of zero.
    """

    offsets: Array
    weights: Array


@dataclass(frozen=True, repr=False, kw_only=True)
class Noise(OfRows, ABC):
    """The law of the noise ``n`` of each row.

    A noise either has one law for each of ``n_rows`` rows, or one law for all rows
    (``shared``); the latter fits any number of rows until :meth:`bind` fixes it.

    Attributes
    ----------
    shared : bool
        Whether all rows have the same law.
    n_rows : int or None
        Number of rows; None for a shared law that no observations have bound yet.
    observed : array or None
        Boolean ``(N, dim)``: the values that :meth:`log_prob` looks at; None for all.
    kept : KeptDraws or None
        Some of the draws that the law was made of by ``from_samples``, in the user's units.
    dim : int
        Number of measured values per row.
    independent : bool
        Whether the values of a row have independent noise.
    flags : array or None
        ``(N, dim)``, if of some values only a limit is known: -1 for an upper limit, 1 for a lower
        one, else 0. Then :meth:`log_prob` has the probabilities of these, and no densities.
    """

    shared: bool = False
    n_rows: int | None = None
    observed: Any = None
    kept: KeptDraws | None = None

    #: Fields with an axis of rows, or one row in all if shared.
    by_row: ClassVar[tuple[str, ...]] = ()
    independent: ClassVar[bool] = True
    #: What rows are called whose law has no characteristic function.
    without_waves: ClassVar[str] = "values"
    flags: ClassVar[Any] = None
    #: Whether the law is that of something added to the truth, whatever comes of it; else it
    #: depends on what was measured, as that of a count.
    additive: ClassVar[bool] = True
    #: Where the truth of each value ends because of what is measured; None for nowhere.
    truth_ends: ClassVar[Ends | None] = None

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return getattr(self, self.by_row[0]).shape[1]

    def within(self, low: Array, high: Array) -> "Noise":
        """Return the law with ends ``(dim,)`` of the truth that are known beside those it has.

        Noise that is added to the truth does not depend on them.
        """
        return self

    def mirrored(self, signs: Array) -> "Noise | None":
        """Return the law of rows mirrored where ``signs``, ``(N, dim)``, are negative.

        None for a law that does not say.
        """
        return None

    @abstractmethod
    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, dim)``, as ``(..., N)``."""

    @abstractmethod
    def sample(self, k: int) -> Any:
        """Draw ``(k, N, dim)``."""

    def measure(self, clean: Any, w: Any) -> "tuple[Any, Noise]":
        """Measure clean values ``(N, dim)`` anew, each as its row was: new values, and their noise.

        Additive noise is the same whatever is measured. A law that depends on what was measured,
        as that of a count, is another one for the new values; ``w`` are those that it now has.
        """
        return clean + self.sample(1)[0], self

    def from_uniform(self, share: Array) -> Array | None:
        """Make noise ``(K, N, dim)`` of as many uniform numbers between 0 and 1.

        So a row's draws depend on its own numbers alone, whatever rows are beside it. None for a
        law that can only be drawn from by :meth:`sample`.
        """
        return None

    @abstractmethod
    def mean(self) -> Any:
        """Mean of each row's noise, ``(N, dim)``, or ``(1, dim)`` if shared."""

    def covariance(self) -> Any:
        """Finite covariance of each row, ``(N, dim, dim)``, or ``(1, dim, dim)`` if shared.

        That of independent values, unless a law says another. A law without a finite variance
        answers with the squared half width of its central 68 %, so that what is built on it
        (scales, proposals, features) stays finite.
        """
        return diagonals(self.variance())

    @abstractmethod
    def variance(self) -> Any:
        """Diagonal of :meth:`covariance`, ``(N, dim)``, or ``(1, dim)`` if shared."""

    def cholesky(self) -> Any:
        """Cholesky factors of :meth:`covariance`, ``(N, dim, dim)``, or ``(1, dim, dim)``."""
        return diagonals(self.variance() ** 0.5)

    def features(self) -> Any:
        """What a network should know of each row's law, ``(N, F)``, or ``(1, F)`` if shared.

        Flattened Cholesky factors of the covariances, then the means, unless a law says others.
        """
        mean, factor = as_array(self.mean()), as_array(self.cholesky())
        return like(np.concatenate([flatten_cholesky(factor), mean], -1), self.mean())

    @abstractmethod
    def as_mixture(self) -> NoiseMixture:
        """Write the law as a mixture of Gaussians, whatever has been observed of it.

        Exact for Gaussian noise and mixtures of Gaussians, close for all other laws. The answer
        is small; ``.take(rows, columns)`` writes it out for some rows at a time.
        """

    def core_covariance(self) -> Array:
        """Return how wide the noise is where rows learn most from it, ``(N or 1, dim, dim)``.

        A Gaussian's covariance. Of a scale mixture the inverse of the mean precision: a few far
        outliers make a large covariance, yet most rows are as sharp as the law's core.
        """
        mixture = self.as_mixture()
        found = None if mixture.n_parts == 1 else mixture.harmonic_covariance()
        return as_array(self.covariance()) if found is None else found

    def characteristic(self, t: Array) -> Complex:
        r"""Characteristic function :math:`E \exp(i t \cdot n)` of each row's noise.

        Parameters
        ----------
        t
            ``(T, dim)`` frequencies.

        Returns
        -------
        array
            ``(N, T)``, or ``(1, T)`` for a law that all rows share.

        Examples
        --------
        >>> from deconflow.noise import laplace
        >>> laplace([0.5]).characteristic(np.array([[0.0], [2.0]])).real  # 1 / (1 + scale^2 t^2)
        array([[1. , 0.5]])
        """
        return self.value_characteristics(t).prod(-1)

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic function of each value of a row by itself, for independent values.

        ``t`` is ``(T, dim)``, frequencies for each value; the answer is ``(N or 1, T, dim)``.
        """
        raise ValueError(
            f"Expected noise with a characteristic function; got {self.without_waves}, which have "
            "none. Use XDGMM, BayesianXDGMM, FlowDeconvolver or Deconvolver."
        )

    def restrict(self, observed: Any) -> "Noise":
        """Return the law of the observed values only; others are ignored by :meth:`log_prob`.

        ``observed`` is a boolean ``(N, dim)``.
        """
        refuse_if(
            not self.independent,
            "Expected noise whose values are independent, because w has missing values; "
            f"got a law over whole rows ({type(self).__name__}).",
        )
        return replace(self, observed=observed)

    @abstractmethod
    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale`` for a positive ``scale`` of shape ``(dim,)``."""

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the law as tensors; an error if single precision does not hold its units."""
        if "32" in str(dtype) and hasattr(self, "unit"):
            size = as_array(self.unit)
            refuse_where(
                (size < 1e-30) | (size > 1e30),
                "a spread of w between 1e-30 and 1e+30, for single precision",
                size,
                advice="Change the units of w and noise.",
                shared=True,
            )
        return self._changed(lambda x: moved(x, dtype, device))

    def in_numpy(self) -> Self:
        """Return the law as arrays of numpy."""
        return self._changed(lambda x: as_array(x) if is_torch_array(x) else x)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        return replace(
            self, **{each.name: change(getattr(self, each.name)) for each in fields(self)}
        )

    def values(self) -> Self:
        """Return the law of all single values as rows, for independent values."""
        own = ((name, getattr(self, name)) for name in self.by_row)
        flat: dict[str, Any] = {
            name: x if x is None else x.reshape(-1, 1, *x.shape[2:]) for name, x in own
        }
        return replace(self, shared=False, **flat, n_rows=len(flat[self.by_row[0]]))

    def support_map(self) -> tuple[Any, Any, Any] | None:
        """Return how to reach a support that is not the whole space, else None.

        The answer is a map ``T`` of torch from the real line, a unit ``s`` and a start ``a``:
        ``n = T(z + a) / s`` is of the noise's size for ``z`` near zero.
        """
        return None

    def floor(self, sd: float) -> "Noise":
        """Return the law of the noise plus, if it may be singular, Gaussian noise of ``sd``."""
        return self

    def bind(self, n_rows: int, observed: Any = None) -> "Noise":
        """Say how many rows there are, and which of their values were observed, None for all.

        An error if this noise has another number of rows.
        """
        refuse_if(
            self.n_rows not in (None, n_rows),
            f"Expected noise for {n_rows} rows, as many as w has; got {self.n_rows} rows.",
        )
        law = self if self.n_rows == n_rows else replace(self, n_rows=n_rows)
        return law if observed is None else law.restrict(observed)

    def __getitem__(self, rows: Any) -> Self:
        rows = as_index(rows, self.n_rows)
        count = len(range(self.n_rows or 0)[rows]) if isinstance(rows, slice) else len(rows)
        names = ("observed", "kept", *(() if self.shared else self.by_row))
        return replace(self, n_rows=count, **{x: take(getattr(self, x), rows) for x in names})

    def __repr__(self) -> str:
        rows = "any number of" if self.n_rows is None else self.n_rows
        return f"{type(self).__name__}(rows={rows}, dim={self.dim}, shared={self.shared})"


class OtherNoise(Noise):
    """Noise that is not Gaussian, and has no density without a width."""

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the law as tensors; an error if single precision does not hold it."""
        if "32" in str(dtype):
            refuse_where(
                as_array(self.variance()) < NARROWEST**2,
                f"noise wider than {NARROWEST:g} times the spread of w, for single precision",
                got="less",
                advice="Use noise.gaussian, or 0.0.",
            )
        return super().to(dtype=dtype, device=device)


class Reading(ABC):
    """What users say of a measurement, if it is a law of noise only once the values are known.

    The likelihood of a count, for example, is that of a rate near the count.
    """

    #: Where the truth of every column ends, because of what is measured: a rate at zero.
    truth_ends: tuple[float | None, float | None] = (None, None)
    #: Number of rows that it says something of; None if the same of any.
    n_rows: int | None = None

    @property
    def shape(self) -> tuple[int]:
        """Shape ``(N,)``, by which scikit-learn's splitters know what has rows."""
        return (self.n_rows or 1,)

    def __getitem__(self, rows: Any) -> Self:
        return self if self.n_rows is None else self._take(as_index(rows, self.n_rows))

    __iter__ = None  # rows by index, but no sequence, as for a Noise

    @abstractmethod
    def _take(self, rows: RowIndex) -> Self:
        """Return what is said of some rows; asked only where it is not the same for all."""

    @abstractmethod
    def read(self, w: Array) -> tuple[Array, Noise]:
        """Return locations ``(N, M)`` in the units of the truth, and the law of their noise.

        With these, ``log p(row given v)`` is ``noise.log_prob(location - v)``, but for a number
        that does not depend on ``v``. NaN marks a missing value, before and after.
        """


def as_index(rows: Any, n_rows: int | None) -> Any:
    """Turn an index of rows into a slice, or an array of their numbers.

    ``n_rows`` is the number of rows; None if there is any number of them, of which none can be
    taken as a slice.
    """
    if isinstance(rows, tuple) and rows[1:] == (...,):  # the form scikit-learn's splitters use
        rows = rows[0]
    if isinstance(rows, slice):
        if n_rows is None:
            raise TypeError(
                "Expected noise that is bound to rows; got one law for any number of rows."
            )
        if (rows.step or 1) > 0:
            return rows
        rows = range(n_rows)[rows]
    index = (
        as_array(rows)
        if is_torch_array(rows)
        else np.array(() if isinstance(rows, tuple) else rows, ndmin=1)
    )
    if isinstance(rows, tuple) or index.ndim != 1 or (index.size and index.dtype.kind not in "biu"):
        raise TypeError(f"Expected rows as numbers, flags or a slice; got {rows!r}.")
    if index.dtype.kind == "b":
        refuse_if(
            n_rows is not None and len(index) != n_rows,
            f"Expected a flag for each of {n_rows} rows; got {len(index)} flags.",
            IndexError,
        )
        return np.flatnonzero(index)
    if n_rows is not None:
        beyond = index[(index < -n_rows) | (index >= n_rows)]
        if len(beyond):
            raise IndexError(f"Expected rows between 0 and {n_rows - 1}; got {beyond[0]}.")
    return index.astype(np.int64, copy=False)


def flatten_cholesky(factor: Any) -> Any:
    """Flatten lower-triangular ``(N, D, D)`` into ``(N, D (D + 1) / 2)``."""
    i, j = np.tril_indices(factor.shape[-1])
    return factor[..., i, j]


def total(per_value: Any, observed: Any) -> Any:
    """Sum over the values of a row that were observed."""
    xp = array_namespace(per_value)
    if observed is not None:
        per_value = xp.where(like(observed, per_value), per_value, 0.0)
    return xp.sum(per_value, axis=-1)
