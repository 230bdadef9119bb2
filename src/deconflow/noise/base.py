"""The one abstraction for noise: the law of ``n`` in ``w = v + n``, row by row."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from deconflow._types import Array, Complex
from deconflow.checks import as_array, diagonals, is_torch_array, moved, take
from deconflow.noise.gaussian_parts import NoiseMixture

#: Lower and upper ends of each value's truth, infinite where there is none.
Ends = tuple[Array, Array]
#: A slice, or numbers or flags of rows.
RowIndex = Any


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
class KeptDraws:
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

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(take(self.offsets, rows), take(self.weights, rows))


class Noise(OfRows, ABC):
    """The law of the noise ``n`` of each row.

    A noise either has one law for each of ``n_rows`` rows, or one law for all rows
    (``shared``); the latter fits any number of rows until :meth:`bind` fixes it.

    Attributes
    ----------
    dim : int
        Number of measured values per row.
    n_rows : int or None
        Number of rows; None for a shared law that no observations have bound yet.
    shared : bool
        Whether all rows have the same law.
    observed : array or None
        Boolean ``(N, dim)``, if the law is restricted to values that were observed.
    independent : bool
        Whether the values of a row have independent noise.
    kept : KeptDraws or None
        Some of the draws that the law was made of by ``from_samples``, in the user's units.
    flags : array or None
        ``(N, dim)``, if of some values only a limit is known: -1 for an upper limit, 1 for a lower
        one, else 0. Then :meth:`log_prob` has the probabilities of these, and no densities.
    """

    shared: bool
    observed: Any
    independent: bool
    #: Fields with an axis of rows, or one row in all if shared.
    by_row: ClassVar[tuple[str, ...]] = ()
    kept: KeptDraws | None = None
    #: What rows are called whose law has no characteristic function.
    without_waves = "values"
    flags: Any = None
    #: Whether the law is that of something added to the truth, whatever comes of it; else it
    #: depends on what was measured, as that of a count.
    additive: bool = True

    #: Where the truth of each value ends because of what is measured; None for nowhere.
    truth_ends: Ends | None = None

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

    @abstractmethod
    def features(self) -> Any:
        """What a network should know of each row's law, ``(N, F)``, or ``(1, F)`` if shared."""

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
        return replace(self, observed=observed)  # type: ignore[type-var]

    @abstractmethod
    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale`` for a positive ``scale`` of shape ``(dim,)``."""

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the law as tensors, in some precision and place."""
        tensors = {
            each.name: moved(getattr(self, each.name), dtype, device)
            for each in fields(self)  # type: ignore[arg-type]
            if each.init
        }
        return replace(self, **tensors)  # type: ignore[type-var]

    def in_numpy(self) -> Self:
        """Return the law as arrays of numpy."""
        arrays = {name: as_array(x) for name, x in vars(self).items() if is_torch_array(x)}
        arrays.pop("_product", None)
        return replace(self, **arrays)  # type: ignore[type-var]

    def _take(self, rows: RowIndex, n_rows: int) -> Self:
        """Return the law of some rows."""
        names = ("observed", "kept") if self.shared else ("observed", "kept", *self.by_row)
        new: dict[str, Any] = {
            name: each[rows] if isinstance(each, KeptDraws) else take(each, rows)
            for name in names
            if (each := getattr(self, name)) is not None
        }
        if any(each.name == "n_rows" for each in fields(self)):  # type: ignore[arg-type]
            new["n_rows"] = n_rows
        return replace(self, **new)  # type: ignore[type-var]

    def value_law(self) -> tuple[Any, dict[str, Array]] | None:
        """Return a function that makes the law of single values, and its parameters by name.

        These have shape ``(N or 1, dim)``. None for a law that is not made so.
        """
        return None

    def support_map(self) -> tuple[Any, Any, Any] | None:
        """Return how to reach a support that is not the whole space, else None.

        The answer is a map ``T`` of torch from the real line, a unit ``s`` and a start ``a``:
        ``n = T(z + a) / s`` is of the noise's size for ``z`` near zero.
        """
        return None

    def floor(self, sd: float) -> "Noise":
        """Return the law of the noise plus, if it may be singular, Gaussian noise of ``sd``."""
        return self

    def bind(self, n_rows: int) -> Self:
        """Say how many rows there are; an error if this noise has another number."""
        if self.shared and self.n_rows in (None, n_rows):
            return self._take(slice(None), n_rows)
        if self.n_rows != n_rows:
            raise ValueError(
                f"Expected noise for {n_rows} rows, as many as w has; got {self.n_rows} rows."
            )
        return self

    def __getitem__(self, rows: Any) -> Self:
        rows = as_index(rows, self.n_rows)
        return self._take(rows, count_rows(rows, self.n_rows))

    def __repr__(self) -> str:
        rows = "any number of" if self.n_rows is None else self.n_rows
        return f"{type(self).__name__}(rows={rows}, dim={self.dim}, shared={self.shared})"


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
    """Turn an index of rows into a slice or an array.

    ``n_rows`` is the number of rows; None if there is any number of them.
    """
    if isinstance(rows, tuple) and rows[1:] == (...,):  # the form scikit-learn's splitters use
        rows = rows[0]
    if isinstance(rows, slice) and (rows.step or 1) > 0:
        return rows
    if isinstance(rows, slice):
        rows = list(range(*rows.indices(n_rows or 0)))
    if isinstance(rows, int | np.integer):
        rows = [rows]
    if not is_torch_array(rows):
        asked, rows = rows, np.asarray(() if isinstance(rows, tuple) else rows)
        if (
            isinstance(asked, tuple)
            or rows.ndim != 1
            or (rows.size and rows.dtype.kind not in "biu")
        ):
            raise TypeError(f"Expected rows as numbers, flags or a slice; got {asked!r}.")
        rows = rows if rows.dtype.kind == "b" else rows.astype(np.int64)
    if n_rows is not None:
        _check_bounds(rows, n_rows)
    return rows


def _are_flags(rows: Any) -> bool:
    return str(rows.dtype).endswith("bool")


def _check_bounds(rows: Any, n_rows: int) -> None:
    if _are_flags(rows) and rows.shape != (n_rows,):
        raise IndexError(
            f"Expected a flag for each of {n_rows} rows; got shape {tuple(rows.shape)}."
        )
    if _are_flags(rows) or len(rows) == 0:
        return
    low, high = int(rows.min()), int(rows.max())
    if low < -n_rows or high >= n_rows:
        raise IndexError(
            f"Expected rows between 0 and {n_rows - 1}; got {low if low < -n_rows else high}."
        )


def count_rows(rows: Any, n_rows: int | None) -> int:
    """Count how many rows an index takes."""
    if isinstance(rows, slice):
        if n_rows is None:
            raise TypeError(
                "Expected noise that is bound to rows; got one law for any number of rows."
            )
        return len(range(*rows.indices(n_rows)))
    return int(rows.sum()) if _are_flags(rows) else len(rows)


def flatten_cholesky(factor: Any) -> Any:
    """Flatten lower-triangular ``(N, D, D)`` into ``(N, D (D + 1) / 2)``."""
    i, j = np.tril_indices(factor.shape[-1])
    return factor[..., i, j]
