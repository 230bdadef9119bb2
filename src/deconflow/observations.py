r"""Observations: what was measured, with its noise, checked once."""

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import (
    array_namespace,
    as_array,
    as_floats,
    check_integer,
    diagonals,
    first_bad,
    is_torch_array,
    like,
    moved,
    refuse_extremes,
    refuse_where,
    take,
)
from deconflow.frames import (
    Units,
    limit_flags,
    plain_tables,
    refuse_other_rows,
)
from deconflow.noise import (
    ByRow,
    FreeErrors,
    GaussianNoise,
    Noise,
    Reading,
    RowIndex,
    as_index,
    as_noise,
    limited,
)
from deconflow.randomness import permutation

ARRAYS = ("w", "observed", "projection", "weights", "groups", "given")


class OutOfReachError(ValueError):
    """A measurement to which the model gives no density at all."""


@dataclass(frozen=True)
class Labels:
    """Labels that go with measurements, so that results can carry them.

    Attributes
    ----------
    names : tuple of str or None
        Names of the measured columns.
    units : list or None
        Their units, None for those without.
    kind : type
        The type of the table.
    index
        The index of a pandas table.
    header
        The table without its rows, for scikit-learn.
    noise_given : bool
        Whether noise was given, or the values were taken as exact for want of it.
    of_table : bool
        Whether the names are those of a table, and not given with an array.
    limits_given : bool
        Whether it was said which values are limits, though it may be none of these.
    """

    names: tuple[str, ...] | None = None
    units: Units | None = None
    kind: type = object
    index: Any = None
    header: Any = None
    noise_given: bool = True
    of_table: bool = False
    limits_given: bool = False

    def __getitem__(self, rows: Any) -> "Labels":
        return replace(self, index=take(self.index, rows))

    def measured(self, count: int) -> list[str]:
        """Return names of the measured columns, ``w0, w1, ...`` where they have none."""
        return list(self.names or (f"w{d}" for d in range(count)))


@dataclass(frozen=True)
class Observations:
    r"""Rows :math:`w_i = R_i v_i + n_i`; make them with :meth:`from_arrays`.

    Attributes
    ----------
    w : array
        ``(N, M)`` measured values, zero where missing.
    noise : Noise
        The law of each row's noise, restricted to what was observed.
    observed : array or None
        Boolean ``(N, M)``; None if nothing is missing.
    projection : array or None
        ``(N, M, D)``, zero rows where missing; None for the identity.
    weights : array or None
        ``(N,)`` non-negative, with mean one; None for equal weights.
    groups : array or None
        ``(N,)`` whole numbers, the same for rows that belong together: these are never split
        between a fit and the rows it is judged by. None for rows on their own.
    given : array or None
        ``(N, C)`` covariates as numbers that are known exactly: the density in question is that
        of the true values given these. None for none.
    covariates
        The same as they were given, to be turned into ``given``; then how they were.
    selection
        The rule by which rows were seen at all; None if all were.
    uncertain : FreeErrors or None
        What of the errors is to be learned.
    labels : Labels
        Names and units of columns, and the kind of table.
    images : int
        Number of mirror images of each row that there are, with the row itself.
    """

    w: Any
    noise: Noise
    observed: Any = None
    projection: Any = None
    weights: Any = None
    groups: Any = None
    given: Any = None
    covariates: Any = None
    selection: Any = None
    uncertain: FreeErrors | None = None
    labels: Labels = field(default_factory=Labels)
    images: int = 1

    @classmethod
    def from_arrays(
        cls,
        w: ArrayLike,
        noise: Any,
        *,
        projection: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        groups: Any = None,
        limits: Any = None,
    ) -> Self:
        """Check arrays and make observations of them.

        Parameters
        ----------
        w
            ``(N, M)`` measured values; NaN or a masked cell marks a missing one.
        noise
            See :func:`deconflow.noise.as_noise`; the columns of a table of errors find those of a
            table of values by their names.
        projection
            ``(N, M, D)``, or ``(M, D)`` for all rows: what the measurement sees of the truth.
        weights
            ``(N,)`` non-negative row weights.
        groups
            ``(N,)`` labels, the same for rows that belong together.
        limits
            ``(N, M)``: -1 for an upper limit in ``w``, 1 for a lower one, 0 for a measured value;
            see :func:`deconflow.noise.limited`. A table's columns ``x`` or ``x_limit`` find those
            of a table of values.

        Examples
        --------
        >>> data = Observations.from_arrays([[1.0, 2.0], [3.0, float("nan")]], [0.1, 0.2])
        >>> len(data), data.latent_dim
        (2, 2)
        """
        table, noise = plain_tables(w, noise)
        w = _checked_measured(table)
        if weights is not None:
            weights = check_weights(table, weights)
            if weights.sum() == 0:
                raise ValueError(
                    "Expected at least one positive weight in sample_weight; got zeros only."
                )
            weights = weights / weights.mean()
        groups = None if groups is None else check_groups(table, groups)
        if limits is not None:
            noise = limited(noise, limit_flags(table, limits))
        if isinstance(noise, Reading):
            if projection is not None and noise.truth_ends != (None, None):
                raise ValueError(
                    "Expected no projection with noise whose truth has ends, as that of counts; "
                    "got one. Fit the measured values themselves."
                )
            w, noise = noise.read(w)
        observed = ~np.isnan(w) if np.isnan(w).any() else None
        law = as_noise(noise, w.shape[0], w.shape[1], observed)
        checked = None if projection is None else _checked_projection(projection, w.shape)
        for name, values in (("w", w), ("noise", noise_sizes(law)), ("projection", checked)):
            if values is not None:
                refuse_extremes(name, values)
        if observed is not None:
            w = np.where(observed, w, 0.0)
            checked = None if checked is None else np.where(observed[..., None], checked, 0.0)
        return cls(w, law, observed, checked, weights, groups)

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, rows: RowIndex) -> Self:
        """Take rows: a slice is a view, indices copy just the rows they name."""
        rows = as_index(rows, len(self))
        taken = {name: take(getattr(self, name), rows) for name in ARRAYS}
        return replace(
            self,
            noise=self.noise[rows],
            covariates=None if self.covariates is None else self.covariates.take(rows),
            selection=None if self.selection is None else self.selection.take(rows),
            uncertain=None if self.uncertain is None else self.uncertain[rows],
            labels=self.labels[rows],
            **taken,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape ``(N, M)`` of the measured values, for scikit-learn's splitters."""
        return len(self), self.dim

    @property
    def traits(self) -> frozenset[str]:
        """Facts that these rows have: what engines and methods say that they take."""
        has = {
            "limits": self.noise.flags is not None,
            "missing": self.observed is not None,
            "projected": self.projection is not None,
            "counts": not self.noise.additive,
            "covariates": self.covariates is not None,
            "selected": self.selection is not None,
            "errors to learn": self.uncertain is not None,
        }
        return frozenset(name for name, there in has.items() if there)

    @property
    def described(self) -> frozenset[str]:
        """The traits, and limits if it was said of every value that it is none."""
        return self.traits | ({"limits"} if self.labels.limits_given else set())

    @property
    def measured_names(self) -> list[str]:
        """Names of the measured columns."""
        return self.labels.measured(self.dim)

    @property
    def names(self) -> list[str]:
        """Names of the true columns."""
        own = self.labels.names if self.projection is None else None
        return list(own or (f"v{d}" for d in range(self.latent_dim)))

    @property
    def dim(self) -> int:
        """Number of measured values per row."""
        return self.w.shape[1]

    @property
    def latent_dim(self) -> int:
        """Number of dimensions of the truth ``v``."""
        return self.dim if self.projection is None else self.projection.shape[-1]

    def projections(self) -> Any:
        """Return what each row sees of the truth, ``(N or 1, M, D)``, zero rows where missing."""
        if self.projection is not None:
            return self.projection
        seen = 1.0 + 0 * self.w[:1] if self.observed is None else like(1.0 * self.observed, self.w)
        return diagonals(seen)

    def residual(self, v: Any) -> Any:
        """Return ``w - R v`` for ``v`` of shape ``(K, N, D)``, zero where missing."""
        w, R, observed = (
            x if x is None else like(x, v) for x in (self.w, self.projection, self.observed)
        )
        if R is not None:
            return w - (R @ v[..., None])[..., 0]
        r = w - v
        return r if observed is None else array_namespace(r).where(observed, r, 0.0)

    def measured(self) -> Array:
        """Return ``w`` as an array, with NaN where a value is missing."""
        w = as_array(self.w)
        return w if self.observed is None else np.where(as_array(self.observed), w, np.nan)

    def log_likelihood(self, v: Any) -> Any:
        """Log density ``log p(w | v)`` for ``v`` of shape ``(K, N, D)``, as ``(K, N)``."""
        return self.noise.log_prob(self.residual(v))

    def remeasure(self, v: Any) -> Self:
        """Measure other true values ``(N, D)`` as these rows were: each with its own noise."""
        clean = v if self.projection is None else (self.projection @ v[..., None])[..., 0]
        w, noise = self.noise.measure(clean, self.w)
        if self.observed is not None:
            w = array_namespace(w).where(self.observed, w, 0.0)
        return replace(self, w=w, noise=noise)

    def features(self) -> Any:
        """What a network may look at: ``w``, its noise, what is missing, projection.

        Last which values are limits, if any are.
        """
        xp, noise = array_namespace(self.w), self.noise.features()
        noise = xp.broadcast_to(noise, (len(self), noise.shape[-1]))
        seen = 1.0 + 0 * self.w if self.observed is None else like(1.0 * self.observed, self.w)
        R = None if self.projection is None else self.projection.reshape(len(self), -1)
        parts = (self.w, noise, seen, R, self.noise.flags)
        return xp.concat([part for part in parts if part is not None], axis=-1)

    def weighed(self, weights: Array) -> Self:
        """Return the same rows with other weights, divided by their mean."""
        return replace(self, weights=weights / weights.mean())

    def with_weight(self) -> Self:
        """Leave the rows of weight zero out."""
        if self.weights is None:
            return self
        some = self[self.weights > 0]
        return some.weighed(some.weights)

    def group_codes(self) -> IntArray | None:
        """Return a code for each row, from zero; None if all rows are on their own."""
        if self.groups is None:
            return None
        codes = np.unique(as_array(self.groups), return_inverse=True)[1].astype(np.int64)
        return codes if codes.max(initial=0) + 1 < len(codes) else None

    def fewest_groups(self) -> int:
        """Count the groups that measure a column, for the column that fewest do; or the rows."""
        codes = self.group_codes()
        seen = np.ones((len(self), 1), bool) if self.observed is None else self.observed
        return int((seen if codes is None else seen_in_groups(seen, codes)).sum(0).min())

    def split(self, fraction: float) -> tuple[Self, Self]:
        """Shuffle and split off a ``fraction`` (at least one row) as the second part.

        A group stays together, so that the second part may be somewhat smaller; it is larger where
        every group is.
        """
        order: Any = permutation(len(self), self.w)
        n_second = max(1, round(fraction * len(self)))
        if n_second >= len(self):
            raise ValueError(
                f"Expected enough rows in w to hold out {fraction:g} of them; got {len(self)} rows."
            )
        held = hold_out(self.group_codes(), np.asarray(order), n_second)
        return self[order[~held]], self[order[held]]

    def chunks(self, size: int) -> Iterator[Self]:
        """Walk through the rows in order, as views of at most ``size`` rows."""
        check_integer("size", size, 1)
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the same rows as tensors of torch, in some precision and place."""
        tensors = {name: moved(getattr(self, name), dtype, device) for name in ARRAYS[:-1]}
        return replace(self, noise=self.noise.to(dtype=dtype, device=device), **tensors)

    def in_numpy(self) -> Self:
        """Return the same rows as arrays of numpy."""
        if not is_torch_array(self.w):
            return self
        arrays: Any = {name: like(getattr(self, name), np.zeros(0)) for name in ARRAYS}
        return replace(self, noise=self.noise.in_numpy(), **arrays)


@dataclass(frozen=True)
class Pairs(ByRow):
    """Observations, each with a true value ``v`` of shape ``(N, D)``."""

    observations: Observations
    v: Any

    @property
    def weights(self) -> Any:
        """Row weights of the observations."""
        return self.observations.weights

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the same as tensors of torch, in some precision and place."""
        tensors = self.observations.to(dtype=dtype, device=device)
        return type(self)(tensors, moved(self.v, dtype, device))


def refuse_unreached(
    unreached: BoolArray,
    first_row: int = 0,
    advice: str = " in double precision. Look at that row",
    name: str = "w",
) -> None:
    """Raise where no point has a density for a row, counted from ``first_row``."""
    position = first_bad(unreached)
    if position is not None:
        raise OutOfReachError(
            f"Expected {'measurements' if name == 'w' else 'values'} that the model can reach; "
            f"got row {first_row + position[0]} of {name}, whose density is zero{advice}."
        )


@contextmanager
def rows_counted_from(first: int) -> Iterator[None]:
    """Let an error about a row out of reach name it by its number in the whole, not in a part."""
    try:
        yield
    except OutOfReachError as error:
        said = re.sub(r"\brow (\d+)", lambda row: f"row {first + int(row[1])}", str(error))
        raise OutOfReachError(said) from error


def noise_sizes(noise: Noise) -> Any:
    """Return standard deviations, or factors of covariances: numbers as large as the noise."""
    return noise.factor if isinstance(noise, GaussianNoise) else noise.variance() ** 0.5


def _checked_measured(values: ArrayLike) -> Array:
    """Raise unless these are rows of finite values, or NaN, with something in every row."""
    w = as_floats(values, "w")
    if w.ndim != 2:
        raise ValueError(
            f"Expected w of shape (N, D); got {w.shape}. Reshape your data: w.reshape(-1, 1) for "
            "one dimension, w.reshape(1, -1) for one row."
        )
    if w.size == 0:
        what = "sample" if len(w) == 0 else "feature"  # by these words scikit-learn knows it
        raise ValueError(
            f"Expected at least one row and one column in w; got 0 {what}(s) (shape={w.shape}) "
            "while a minimum of 1 is required."
        )
    refuse_where(np.isinf(w), "finite values in w, or NaN for missing ones", got="inf")
    refuse_where(
        np.isnan(w).all(1),
        "at least one measured value in every row of w",
        got="only NaN or masked cells",
        advice="Drop such rows.",
    )
    return w


def check_weights(w: Any, weights: ArrayLike, name: str = "sample_weight") -> Array:
    """Check a weight for each row of ``w``, all of which may be zero."""
    if hasattr(weights, "iloc"):
        refuse_other_rows(w, weights, name)
    values = as_floats(weights, name)
    if values.shape != (len(w),):
        raise ValueError(f"Expected {name} of shape ({len(w)},); got {tuple(values.shape)}.")
    refuse_where(~((values >= 0) & (values < np.inf)), f"finite {name} of at least zero", values)
    return values


def check_groups(w: Any, groups: Any, name: str = "groups") -> IntArray:
    """Check a label for each row of ``w``, of any kind, and number the different ones."""
    if isinstance(groups, str | bytes | dict | set | frozenset) or not hasattr(groups, "__len__"):
        raise TypeError(f"Expected {name} as a label for each row; got {groups!r}.")
    if hasattr(groups, "iloc"):
        refuse_other_rows(w, groups, name)
    shape = tuple(groups.shape) if hasattr(groups, "shape") else (len(groups),)
    if shape != (len(w),):
        raise ValueError(f"Expected {name} of shape ({len(w)},); got {shape}.")
    as_list = getattr(groups, "tolist", None) or getattr(groups, "to_list", None)
    codes: dict[Any, int] = {}
    found = np.empty(len(w), np.int64)
    for row, label in enumerate(as_list() if as_list else groups):
        if not isinstance(label, Hashable):
            raise TypeError(
                f"Expected {name} as one label for each row, a number or text; "
                f"got {type(label).__name__} in row {row}."
            )
        found[row] = codes.setdefault(label, len(codes))
        if label is None or type(label).__name__ == "NAType" or label != label:
            raise ValueError(
                f"Expected a label for every row in {name}; got {label} in row {row}. "
                "Give a row that belongs to no other a label of its own."
            )
    return found


def seen_in_groups(seen: BoolArray, codes: IntArray) -> BoolArray:
    """Say of each group which columns some of its rows measure, from ``(N, M)`` of the rows."""
    return np.stack([np.bincount(codes, weights=column) > 0 for column in seen.T], axis=1)


def hold_out(codes: IntArray | None, order: IntArray, wanted: int) -> BoolArray:
    """Choose about so many rows to hold out, in whole groups, those of the first rows first.

    ``order`` are the numbers of the rows, by chance, and the result is in this order. Where no
    group is small enough, the smallest is held out. Without codes each row is a group.
    """
    codes = np.arange(len(order)) if codes is None else codes
    first_rows = order[np.sort(np.unique(codes[order], return_index=True)[1])]
    groups, sizes = codes[first_rows], np.bincount(codes)
    if len(groups) < 2:
        raise ValueError("Expected rows of at least 2 groups, to hold one out; got 1 group.")
    chosen, room = np.zeros(len(sizes), bool), wanted
    for group in groups:
        if sizes[group] <= room:
            chosen[group] = True
            room -= sizes[group]
        if room == 0:
            break
    if not chosen.any():
        chosen[groups[sizes[groups].argmin()]] = True
    return chosen[codes[order]]


def _checked_projection(projection: ArrayLike, shape: tuple[int, ...]) -> Array:
    R = as_floats(projection, "projection")
    n_rows, dim = shape
    if R.ndim == 2 and len(R) == dim:
        R = np.broadcast_to(R, (n_rows, *R.shape))
    if R.ndim != 3 or R.shape[:2] != shape or R.shape[-1] == 0:
        raise ValueError(
            f"Expected projection of shape ({n_rows}, {dim}, D) or ({dim}, D); "
            f"got {tuple(R.shape)}."
        )
    refuse_where(~np.isfinite(R).all(-1), "finite values in projection", got="others")
    return R
