"""A chunk of a table becomes measurements with noise, and the rows that cannot are marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.tables.columns import Columns, check_available
from deconflow.tables.conventions import one_sign
from deconflow.tables.covariates import (
    Covariate,
    GivenColumns,
    GivenValues,
    as_argument,
    unseen_labels,
)
from deconflow.tables.io import Source, need, row_name
from deconflow.tables.option_syntax import Bar, Pairs

if TYPE_CHECKING:
    import pyarrow as pa

    from deconflow.noise import Noise

Mask = NDArray[np.bool_]
ROWS_AT_ONCE = 100_000
NO_COVARIANCE = "errors and correlations make no covariance"


@dataclass(frozen=True)
class Rows:
    """Rows that can be used, as estimators take them.

    Attributes
    ----------
    w : array
        ``(n, D)`` measurements, NaN where missing.
    noise : Noise
        Their noise.
    given : GivenValues or None
        What they say in columns that are known exactly, if there are any.
    limits : array of int or None
        ``(n, D)``: -1 for an upper limit, 1 for a lower one, 0 for what was measured; None if all
        of it was.
    """

    w: Array
    noise: Noise
    given: GivenValues | None = None
    limits: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(
            self.w[rows],
            self.noise.bind(len(self.w))[rows],
            None if self.given is None else self.given.part(rows),
            None if self.limits is None else self.limits[rows],
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """What estimators are told beside ``w``; of kinds that are not there, nothing."""
        found: dict[str, Any] = {"noise": self.noise}
        if self.given is not None:
            found["given"] = as_argument(self.given)
        if self.limits is not None:
            found["limits"] = self.limits
        return found


@dataclass(frozen=True)
class Measurements:
    """What a chunk says.

    Attributes
    ----------
    w : array
        ``(n, D)`` measurements of the usable rows, NaN where missing.
    noise : Noise or None
        Their noise; None if no row is usable.
    usable : array of bool
        ``(N,)``, for all rows of the chunk.
    reasons : array of str
        ``(N,)``: why a row cannot be used, ``""`` for those that can.
    without_error : int
        How many values had no error, and were counted as missing.
    groups : array or None
        ``(n,)``: what the usable rows say in the column of groups, if there is one.
    given : GivenValues or None
        What the usable rows say in columns that are known exactly, if there are any.
    limits : array of int or None
        ``(n, D)``: which values of the usable rows are limits; None if none is.
    """

    w: Array
    noise: Noise | None
    usable: Mask
    reasons: NDArray[Any]
    without_error: int = 0
    groups: NDArray[Any] | None = None
    given: GivenValues | None = None
    limits: NDArray[np.int64] | None = None

    @property
    def rows(self) -> Rows:
        """The usable rows, if there are any."""
        assert self.noise is not None
        return Rows(self.w, self.noise, self.given, self.limits)

    def __len__(self) -> int:
        return len(self.usable)

    def scatter(self, values: NDArray[Any]) -> Array:
        """Put ``(n, ...)`` values of the usable rows at their places, NaN elsewhere."""
        placed = np.full((len(self), *values.shape[1:]), np.nan)
        placed[self.usable] = values
        return placed


class RowReader:
    """Turns chunks of one table into :class:`Measurements`.

    Parameters
    ----------
    columns
        What is measured, and where its noise is.
    source
        The table.
    only
        Read these measurements only, and take the others as missing.
    groups
        Column that says which rows belong together, in text or whole numbers.
    given
        Columns that are known exactly; rows that say nothing in one of them cannot be used.
    """

    def __init__(
        self,
        columns: Columns,
        source: Source,
        only: Sequence[str] | None = None,
        groups: str | None = None,
        given: GivenColumns | None = None,
    ) -> None:
        self.columns, self.source, self.groups, self.given = columns, source, groups, given
        self.only = columns.names if only is None else tuple(only)
        more = ([] if groups is None else [groups]) + ([] if given is None else given.names)
        self.needed = list(dict.fromkeys([*columns.needed(self.only), *more]))
        check_available(source.names, self.needed, source.name)
        self.factors = _factors(columns, source, self.only)
        self.signs: dict[str, int] = {}
        """What sign the lower errors of a column have, once a chunk has shown it."""

    def __call__(self, chunk: pa.Table, first_row: int) -> Measurements:
        """Read a chunk that begins at ``first_row`` of the table."""
        return _Chunk(self, chunk, first_row).read()


def read_rows(reader: RowReader) -> Measurements:
    """Read a complete table, to fit it; an error if there is too little that can be used."""
    chunks = list(reader.source.chunks(ROWS_AT_ONCE, reader.needed))
    if not chunks:
        raise ValueError(f"Expected one or more rows in {reader.source.name}; got none.")
    rows = reader(need("pyarrow").concat_tables(chunks), 0)
    for d, name in enumerate(reader.columns.names):
        if name in reader.only and np.isnan(rows.w[:, d]).all():
            raise ValueError(
                f"Expected measured values, with errors, in column {name!r}; got none in "
                f"{len(rows)} rows. Leave the column out."
            )
    if len(rows.w) < 2:
        raise ValueError(f"Expected at least 2 rows that can be used; got {len(rows.w)}.")
    return rows


class _Chunk:
    """One chunk while it is read."""

    def __init__(self, reader: RowReader, chunk: pa.Table, first_row: int) -> None:
        self.columns, self.only, self.factors = reader.columns, reader.only, reader.factors
        self.signs, self.group_column, self.given = reader.signs, reader.groups, reader.given
        self.table, self.first_row = chunk, first_row
        self.reasons = np.full(chunk.num_rows, "", dtype=object)
        self.without_error = 0

    def read(self) -> Measurements:
        w = np.full((self.table.num_rows, len(self.columns.names)), np.nan)
        lower, upper = np.ones_like(w), np.ones_like(w)
        for d, name in enumerate(self.columns.names):
            if name in self.only:
                w[:, d], lower[:, d], upper[:, d] = self._measured(d, name)
        self._mark(np.isnan(w).sum(1) == w.shape[1], "no measured value")
        groups = None if self.group_column is None else self._labels(self.group_column)
        given = () if self.given is None else tuple(map(self._covariate, self.given.columns))
        pairs = self._pairs(self.columns.correlations + self.columns.covariances)
        noise = (
            self._correlated_noise(self._covariance(~np.isnan(w), lower))
            if pairs
            else self._independent_noise(lower, upper)
        )
        usable = self.reasons == ""
        return Measurements(
            w[usable], noise, usable, self.reasons, self.without_error,
            groups=None if groups is None else groups[usable],
            given=None if self.given is None else self._given(given, usable),
        )  # fmt: skip

    def _given(self, values: tuple[NDArray[Any], ...], usable: Mask) -> GivenValues:
        assert self.given is not None
        names, errors = tuple(self.given.names), self.given.errors
        return GivenValues(names, tuple(each[usable] for each in values), errors)

    def _measured(self, d: int, name: str) -> tuple[Array, Array, Array]:
        """Values and error bars of a column; NaN and one where it is missing."""
        w = self._numbers(name)
        self._mark(np.isinf(w), f"{name} is infinite")
        bars = self._bars(d, name, ~np.isnan(w))
        unknown = ~np.isnan(w) & ~(np.isfinite(bars[0]) & np.isfinite(bars[1]))
        self.without_error += int(unknown.sum())
        w = np.where(unknown, np.nan, w)
        lower, upper = (np.where(np.isnan(w), 1.0, bar) for bar in bars)
        return w, lower, upper

    def _bars(self, d: int, name: str, measured: Mask) -> list[Array]:
        for first, second, column in self.columns.covariances:
            if first == second == name:
                variance = self._at_least_zero(column, (name, name), measured)
                return [np.sqrt(np.maximum(variance, 0))] * 2
        lower, upper = self.columns.errors[d]
        pair = lower != upper
        return [self._bar(lower, name, measured, signed=pair), self._bar(upper, name, measured)]

    def _bar(self, bar: Bar, name: str, measured: Mask, *, signed: bool = False) -> Array:
        if isinstance(bar, str):
            return self._at_least_zero(bar, (name,), measured, signed=signed)
        if bar == 0 and self.columns.law != "gaussian":
            raise ValueError(
                f"Expected positive errors under {self.columns.law} noise; got errors=['...=0']."
            )
        return np.full(len(measured), bar)

    def _at_least_zero(
        self, column: str, names: tuple[str, ...], measured: Mask, *, signed: bool = False
    ) -> Array:
        """Errors or variances, in the units of what was measured; signed ones by their size."""
        values, law = self._numbers(column), self.columns.law
        if signed:
            known = self.signs.get(column, 0)
            values, self.signs[column] = one_sign(values, measured, column, known, self.first_row)
        positive = law != "gaussian"
        bad = measured & ((values <= 0) if positive else (values < 0))
        if bad.any():
            least = f"above 0, because the noise is {law}," if positive else "of at least 0"
            raise ValueError(
                f"Expected errors {least} in column {column!r}; got {self._first(values, bad)}. "
                "Correct it, or leave the cell empty if the value is missing."
            )
        return values * self.factors[column, names]

    def _pairs(self, pairs: Pairs) -> list[tuple[int, int, str]]:
        """Numbers of two different columns that are read, with the column they share."""
        at = {name: d for d, name in enumerate(self.columns.names) if name in self.only}
        return [(at[a], at[b], column) for a, b, column in pairs if a != b and {a, b} <= {*at}]

    def _covariance(self, seen: Mask, sd: Array) -> Array:
        covariance = np.eye(sd.shape[1]) * sd[:, :, None] ** 2
        names = self.columns.names
        shared = [
            (i, j, self._correlation(column) * sd[:, i] * sd[:, j])
            for i, j, column in self._pairs(self.columns.correlations)
        ] + [
            (i, j, self._numbers(column) * self.factors[column, (names[i], names[j])])
            for i, j, column in self._pairs(self.columns.covariances)
        ]
        for i, j, values in shared:
            both, known = seen[:, i] & seen[:, j], np.isfinite(values)
            self._mark(both & ~known, f"no correlation of {names[i]} and {names[j]}")
            covariance[:, i, j] = covariance[:, j, i] = np.where(both & known, values, 0.0)
        return covariance

    def _correlation(self, column: str) -> Array:
        values = self._numbers(column)
        bad = np.abs(values) > 1
        if bad.any():
            raise ValueError(
                f"Expected correlations between -1 and 1 in column {column!r}; "
                f"got {self._first(values, bad)}."
            )
        return values

    def _correlated_noise(self, covariance: Array) -> Noise | None:
        """Let the noise check covariances; only where it refuses some, find and mark them all."""
        from deconflow.noise import gaussian

        usable = self.reasons == ""
        if not usable.any():
            return None
        try:
            return gaussian(covariance=covariance[usable])
        except ValueError:
            bad = usable & _indefinite(covariance)
            if not bad.any():
                raise
            self._mark(bad, NO_COVARIANCE)
            return self._correlated_noise(covariance)

    def _independent_noise(self, lower: Array, upper: Array) -> Noise | None:
        usable = self.reasons == ""
        if not usable.any():
            return None
        return independent_noise(lower[usable], upper[usable], self.columns.noise, self.columns.df)

    def _numbers(self, name: str) -> Array:
        from deconflow.tables.arrow_io import as_numbers

        values = as_numbers(self.table[name], name, self.first_row)
        for number in self.columns.missing:  # a column in single precision has it rounded
            values[(values == number) | (values == np.float32(number))] = np.nan
        return values

    def _labels(self, name: str) -> NDArray[Any]:
        """Read which rows belong together; a row that does not say so cannot be used."""
        from deconflow.tables.arrow_io import as_labels

        labels = as_labels(self.table[name], name, self.first_row)
        self._mark(np.array([label is None for label in labels]), f"no group in {name}")
        return labels

    def _covariate(self, column: Covariate) -> NDArray[Any]:
        """Read what is known exactly; a row that does not say it cannot be used."""
        from deconflow.tables.arrow_io import as_words

        name = column.name
        if not column.labels:
            values = self._numbers(name)
            self._mark(np.isnan(values), f"no value in {name}, which is given")
            self._mark(np.isinf(values), f"{name} is infinite")
            return values
        words = as_words(self.table[name], name)
        words[[self._stands_for_missing(word) for word in words]] = None
        self._mark(
            np.array([word is None for word in words]), f"no value in {name}, which is given"
        )
        for row in np.flatnonzero(unseen_labels(words, column.known) & (self.reasons == "")):
            self.reasons[row] = f"{name} is {words[row]!r}, which no row of the fit had"
        return words

    def _stands_for_missing(self, word: str | None) -> bool:
        if word is None or not self.columns.missing:
            return word is None
        try:
            return float(word) in self.columns.missing
        except ValueError:
            return False

    def _mark(self, bad: Mask, reason: str) -> None:
        self.reasons[bad & (self.reasons == "")] = reason

    def _first(self, values: Array, bad: Mask) -> str:
        row = int(bad.argmax())
        return f"{values[row]:g} in {row_name(self.first_row + row)}"


def independent_noise(lower: Array, upper: Array, kind: str = "gaussian", df: float = 3.0) -> Noise:
    """Make noise of a law by its name, from the error bars of values that are independent."""
    from deconflow import noise as laws

    if kind == "split-normal" or not np.array_equal(lower, upper, equal_nan=True):
        return laws.split_normal(lower=lower, upper=upper)
    if kind == "student-t":
        return laws.student_t(scale=lower, df=np.full_like(lower, df))
    if kind == "laplace":
        return laws.laplace(scale=lower / np.sqrt(2))
    if kind == "uniform":
        return laws.uniform(half_width=lower)
    return laws.gaussian(sd=lower)


def _indefinite(covariance: Array) -> Mask:
    """Whether matrices have a negative eigenvalue, by a hair more strictly than the noise does."""
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    units = np.where(sd > 0, sd, 1.0)
    values = np.linalg.eigvalsh(covariance / (units[:, :, None] * units[:, None, :]))
    return values[:, 0] < -0.9e-7 * np.abs(values).max(1)


def _factors(
    columns: Columns, source: Source, only: Sequence[str]
) -> dict[tuple[str, tuple[str, ...]], float]:
    """By how much to multiply columns of errors, to bring them to the units of their values."""
    units = {name: source.unit(name) for name in only}
    for name, unit in zip(columns.names, columns.units, strict=False):  # units may be unknown
        here = units.get(name)
        if unit and here and conversion(here, [unit], name) != 1.0:
            raise ValueError(
                f"Expected column {name!r} in {unit}, as in the fit; got {here}. Convert it."
            )
    factors = {}
    for column, names in columns.scales(only):
        theirs, wanted = source.unit(column), [unit for name in names if (unit := units[name])]
        known = len(wanted) == len(names)
        factors[column, names] = conversion(theirs, wanted, column) if theirs and known else 1.0
    return factors


def conversion(unit: str, wanted: Sequence[str], column: str) -> float:
    """Return the factor from a unit to the product of the wanted ones.

    Examples
    --------
    >>> conversion("km", ["m"], "distance_err")
    1000.0
    >>> conversion("km2", ["m", "m"], "distance_variance")
    1000000.0
    >>> conversion("mag", ["mag(AB)"], "g_err")
    1.0
    """
    if [unit] == [*wanted]:
        return 1.0
    units = need("astropy.units")
    try:
        theirs, *parts = (_of_differences(units.Unit(one)) for one in (unit, *wanted))
        return float(theirs.to(math.prod(parts, start=units.dimensionless_unscaled)))
    except (ValueError, TypeError) as error:
        product = " * ".join(wanted)
        raise ValueError(
            f"Expected column {column!r} in a unit like {product}; got {unit}. Convert it."
        ) from error


def _of_differences(unit: Any) -> Any:
    """Unit of differences, as errors are: of magnitudes on any scale they are magnitudes."""
    return getattr(unit, "function_unit", unit)
