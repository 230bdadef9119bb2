"""A chunk of a table becomes measurements with noise, and the rows that cannot are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deconflow.noise import Noise, gaussian
from deconflow.tables.columns import Bar, Columns, check_available
from deconflow.tables.noise_kinds import independent_noise, needs_positive
from deconflow.tables.source import Source
from deconflow.tables.units import conversion

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
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
    """

    w: Array
    noise: Noise | None
    usable: NDArray[np.bool_]
    reasons: NDArray[Any]
    without_error: int = 0

    def __len__(self) -> int:
        return len(self.usable)

    def spread(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Put ``(n, ...)`` values of the usable rows at their places, NaN elsewhere."""
        whole = np.full((len(self), *values.shape[1:]), np.nan)
        whole[self.usable] = values
        return whole


class RowReader:
    """Turns chunks of one table into :class:`Rows`.

    Parameters
    ----------
    columns
        What is measured, and where its noise is.
    source
        The table.
    only
        Read these measurements only, and take the others as missing.
    """

    def __init__(self, columns: Columns, source: Source, only: Sequence[str] | None = None) -> None:
        self.columns, self.source = columns, source
        self.only = columns.names if only is None else tuple(only)
        self.needed = columns.needed(self.only)
        check_available(source.names, self.needed, source.name)
        self._factors = _factors(columns, source, self.only)

    def __call__(self, chunk: pa.Table, first_row: int) -> Rows:
        """Read a chunk that begins at ``first_row`` of the table."""
        return _Chunk(self, chunk, first_row).rows()

    def chunks(self, size: int) -> Iterator[Rows]:
        """Walk through the table."""
        first_row = 0
        for chunk in self.source.chunks(size, self.needed):
            yield self(chunk, first_row)
            first_row += chunk.num_rows


def read_rows(reader: RowReader) -> Rows:
    """Read a whole table, to fit it; an error if there is too little that can be used."""
    import pyarrow as pa

    chunks = list(reader.source.chunks(100_000, reader.needed))
    if not chunks:
        raise ValueError(f"Expected one or more rows in {reader.source.name}; got none.")
    rows = reader(pa.concat_tables(chunks), 0)
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
        self.reader, self.columns, self.table, self.first_row = (
            reader, reader.columns, chunk, first_row,
        )  # fmt: skip
        self.reasons = np.full(chunk.num_rows, "", dtype=object)
        self.without_error = 0

    def rows(self) -> Rows:
        w = np.full((self.table.num_rows, len(self.columns.names)), np.nan)
        lower, upper = np.ones_like(w), np.ones_like(w)
        for d, name in enumerate(self.columns.names):
            if name in self.reader.only:
                w[:, d], lower[:, d], upper[:, d] = self._measured(d, name)
        self._mark(np.isnan(w).sum(1) == w.shape[1], "no measured value")
        covariance = self._covariance(w, lower) if self._correlated() else None
        usable = self.reasons == ""
        noise: Noise | None = None
        if usable.any() and covariance is not None:
            noise = gaussian(covariance=covariance[usable])
        elif usable.any():
            kind, df = self.columns.noise, self.columns.df
            noise = independent_noise(kind, lower[usable], upper[usable], df)
        return Rows(w[usable], noise, usable, self.reasons, self.without_error)

    def _measured(self, d: int, name: str) -> tuple[Array, Array, Array]:
        """Values and error bars of a column; NaN and one where it is missing."""
        w = self._numbers(name)
        self._mark(np.isinf(w), f"{name} is infinite")
        bars = [self._bar(bar, ~np.isnan(w), w) for bar in self.columns.errors[d]]
        own = [c for a, b, c in self.columns.covariances if a == b == name]
        if own:
            variance = self._at_least_zero(own[0], ~np.isnan(w), positive=False)
            bars = [np.sqrt(variance)] * 2
        unknown = ~np.isnan(w) & ~(np.isfinite(bars[0]) & np.isfinite(bars[1]))
        self.without_error += int(unknown.sum())
        w = np.where(unknown, np.nan, w)
        lower, upper = (np.where(np.isnan(w), 1.0, bar) for bar in bars)
        return w, lower, upper

    def _bar(self, bar: Bar, measured: NDArray[np.bool_], w: Array) -> Array:
        positive = needs_positive(self.columns.noise, self.columns.uneven)
        if not isinstance(bar, str):
            if positive and bar == 0:
                raise ValueError(
                    f"Expected positive errors under {self.columns.law} noise; got --errors ...=0."
                )
            return np.full_like(w, bar)
        return self._at_least_zero(bar, measured, positive=positive) * self.reader._factors[bar]

    def _at_least_zero(self, column: str, measured: NDArray[np.bool_], positive: bool) -> Array:
        values = self._numbers(column)
        bad = measured & ((values <= 0) if positive else (values < 0))
        if bad.any():
            law = self.columns.law
            least = f"above 0, because the noise is {law}," if positive else "of at least 0"
            raise ValueError(
                f"Expected errors {least} in column {column!r}; got {self._first(values, bad)}. "
                "Correct it, or leave the cell empty if the value is missing."
            )
        return values

    def _correlated(self) -> bool:
        pairs = self.columns.correlations + self.columns.covariances
        return any(a != b and {a, b} <= {*self.reader.only} for a, b, _ in pairs)

    def _covariance(self, w: Array, sd: Array) -> Array:
        seen = ~np.isnan(w)
        correlation = np.tile(np.eye(w.shape[1]), (len(w), 1, 1))
        for first, second, column in self.columns.correlations:
            self._put(correlation, seen, first, second, self._correlation(column, seen))
        for first, second, column in self.columns.covariances:
            if first != second and {first, second} <= {*self.reader.only}:
                i, j = (self.columns.names.index(name) for name in (first, second))
                size = sd[:, i] * sd[:, j]
                value = self._numbers(column) / np.where(size > 0, size, 1.0)
                self._put(correlation, seen, first, second, value)
        usable = self.reasons == ""
        low = np.zeros(len(w))
        low[usable] = np.linalg.eigvalsh(correlation[usable])[:, 0]
        self._mark(low < -1e-7, "errors and correlations make no covariance")
        return correlation * sd[:, :, None] * sd[:, None, :]

    def _correlation(self, column: str, seen: NDArray[np.bool_]) -> Array:
        if column not in self.reader.needed:
            return np.zeros(len(seen))
        values = self._numbers(column)
        bad = np.abs(values) > 1
        if bad.any():
            raise ValueError(
                f"Expected correlations between -1 and 1 in column {column!r}; "
                f"got {self._first(values, bad)}."
            )
        return values

    def _put(
        self, matrix: Array, seen: NDArray[np.bool_], first: str, second: str, values: Array
    ) -> None:
        i, j = (self.columns.names.index(name) for name in (first, second))
        both = seen[:, i] & seen[:, j]
        self._mark(both & ~np.isfinite(values), f"no correlation of {first} and {second}")
        matrix[:, i, j] = matrix[:, j, i] = np.where(both & np.isfinite(values), values, 0.0)

    def _numbers(self, name: str) -> Array:
        from deconflow.tables.cells import as_numbers

        return as_numbers(self.table[name], name, self.first_row)

    def _mark(self, bad: NDArray[np.bool_], reason: str) -> None:
        self.reasons[bad & (self.reasons == "")] = reason

    def _first(self, values: Array, bad: NDArray[np.bool_]) -> str:
        from deconflow.tables.cells import row_name

        row = int(bad.argmax())
        return f"{values[row]:g} in {row_name(self.first_row + row)}"


def _factors(columns: Columns, source: Source, only: Sequence[str]) -> dict[str, float]:
    """By how much to multiply each column of errors, to bring it to the unit of its values."""
    factors = {}
    known = columns.units or (None,) * len(columns.names)
    for name, unit, bars in zip(columns.names, known, columns.errors, strict=True):
        if name not in only:
            continue
        here = source.unit(name)
        if unit and here and conversion(here, unit, name) != 1.0:
            raise ValueError(
                f"Expected column {name!r} in {unit}, as in the fit; got {here}. Convert it."
            )
        for bar in bars:
            if isinstance(bar, str):
                theirs = source.unit(bar) if bar in source.names else None
                factors[bar] = conversion(theirs, here, bar) if theirs and here else 1.0
    return factors
