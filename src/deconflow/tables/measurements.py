"""A chunk of a table becomes measurements with noise, and the rows that cannot are marked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.tables.cells import Cells, Mask, Reasons, Values
from deconflow.tables.columns import Columns, check_available
from deconflow.tables.covariates import GivenColumns, GivenValues
from deconflow.tables.error_bars import ErrorBars, Factors
from deconflow.tables.how import COUNTS, MULTIPLYING
from deconflow.tables.io import Source, need
from deconflow.tables.other_kinds import Counts, Draws, Replicates

if TYPE_CHECKING:
    import pyarrow as pa

    from deconflow.noise import FreeErrors, Noise

ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Rows:
    """Rows that can be used, as estimators take them.

    Attributes
    ----------
    w : array
        ``(n, D)`` measurements, NaN where missing.
    noise : Noise or FreeErrors
        Their noise, or errors of which something is to be learned.
    given : GivenValues or None
        What they say in columns that are known exactly, if there are any.
    limits : array of int or None
        ``(n, D)``: -1 for an upper limit, 1 for a lower one, 0 for what was measured; None if all
        of it was.
    weights : array or None
        ``(n,)``: how much each counts in a fit, if there is a column that says so.
    """

    w: Array
    noise: Noise | FreeErrors
    given: GivenValues | None = None
    limits: NDArray[np.int64] | None = None
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, rows: Any) -> Rows:
        noise: Any = self.noise  # only pooled errors are those of any number of rows
        return Rows(
            self.w[rows],
            (noise if noise.n_rows is not None else noise.bind(len(self.w)))[rows],
            None if self.given is None else self.given.part(rows),
            None if self.limits is None else self.limits[rows],
            None if self.weights is None else self.weights[rows],
        )

    @property
    def said(self) -> Noise:
        """The noise as it was said, whatever of it is to be learned."""
        noise: Any = self.noise
        return getattr(noise, "said", noise)

    @property
    def errors(self) -> Array:
        """``(n, D)`` standard deviations of the noise, as it was said."""
        return np.broadcast_to(self.said.variance().sqrt().double().numpy(), self.w.shape)

    @property
    def arguments(self) -> dict[str, Any]:
        """What estimators are told beside ``w``; of kinds that are not there, nothing."""
        found: dict[str, Any] = {"noise": self.noise}
        if self.given is not None:
            found["given"] = self.given.argument
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
    why : Reasons
        Why rows of the chunk cannot be used.
    without_error : int
        How many values had no error, and were counted as missing.
    groups : array or None
        ``(n,)``: what the usable rows say in the column of groups, if there is one.
    weights : array or None
        ``(n,)``: how much each usable row counts, if there is a column of weights.
    given : GivenValues or None
        What the usable rows say in columns that are known exactly, if there are any.
    limits : array of int or None
        ``(n, D)``: which values of the usable rows are limits; None if none is.
    """

    w: Array
    noise: Noise | FreeErrors | None
    usable: Mask
    why: Reasons
    without_error: int = 0
    groups: NDArray[Any] | None = None
    given: GivenValues | None = None
    limits: NDArray[np.int64] | None = None
    weights: Array | None = None

    @property
    def reasons(self) -> NDArray[Any]:
        """``(N,)``: why a row cannot be used, ``""`` for those that can."""
        return self.why.text

    @property
    def rows(self) -> Rows:
        """The usable rows, if there are any."""
        assert self.noise is not None
        return Rows(self.w, self.noise, self.given, self.limits, self.weights)

    @property
    def to_fit(self) -> dict[str, Any]:
        """What a fit is told of the usable rows beside ``w``."""
        return {"groups": self.groups, "sample_weight": self.weights, **self.rows.arguments}

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
    groups
        Column that says which rows belong together, in text or whole numbers.
    given
        Columns that are known exactly; rows that say nothing in one of them cannot be used.
    weights
        Column that says how much each row counts, in numbers of at least zero.
    """

    def __init__(
        self,
        columns: Columns,
        source: Source,
        groups: str | None = None,
        given: GivenColumns | None = None,
        weights: str | None = None,
    ) -> None:
        self.columns, self.source, self.groups, self.given = columns, source, groups, given
        self.weights = weights
        more = [name for name in (groups, weights) if name is not None]
        more += [] if given is None else given.labels
        self.needed = list(dict.fromkeys([*columns.needed(), *more]))
        check_available(source.names, self.needed, source.name)
        self.factors = _factors(columns, source)
        self.signs: dict[str, int] = {}
        """What sign the lower errors of a column have, once a chunk has shown it."""

    def __call__(self, chunk: pa.Table, first_row: int) -> Measurements:
        """Read a chunk that begins at ``first_row`` of the table."""
        cells, covariates = Cells(chunk, first_row, self.columns.missing), None
        values = self._values(cells)
        missing = np.isnan(values.w)
        if missing.any():
            cells.mark(missing.sum(1) == values.w.shape[1], "no measured value")
        groups = None if self.groups is None else cells.labels(self.groups)
        if self.given is not None:
            labels = self.given.labels.items()
            read = {name: _covariate(cells, name, each) for name, each in labels}
            covariates = GivenValues(read, self.given.errors)
        w, noise = values.law()
        self.columns = values.columns
        usable, weights = cells.usable, self._weights(cells)
        limits = values.limits[usable]
        return Measurements(
            w, noise, usable, cells.reasons, values.without_error,
            groups=None if groups is None else groups[usable],
            given=None if covariates is None else covariates.part(usable),
            limits=limits if limits.any() else None,
            weights=None if weights is None else cells.usable_of(weights),
        )  # fmt: skip

    def _values(self, cells: Cells) -> Values:
        columns = self.columns
        if columns.how.draws:
            return Draws(cells, columns)
        if columns.how.replicates:
            return Replicates(cells, columns, self.factors)
        if columns.noise in COUNTS:
            return Counts(cells, columns)
        return ErrorBars(cells, columns, self.factors, self.signs)

    def _weights(self, cells: Cells) -> Array | None:
        """Read how much each row counts; all of them must say so."""
        if self.weights is None:
            return None
        values = cells.numbers(self.weights)
        cells.refuse(
            ~(values >= 0) | np.isinf(values), values,
            f"weights of at least 0 in column {self.weights!r}",
            "Correct it, or write 0 for rows that do not count.",
        )  # fmt: skip
        return values


def read_rows(reader: RowReader) -> Measurements:
    """Read a complete table, to fit it; an error if there is too little that can be used."""
    chunks = list(reader.source.chunks(ROWS_AT_ONCE, reader.needed))
    if not chunks:
        raise ValueError(f"Expected one or more rows in {reader.source.name}; got none.")
    try:
        rows = reader(need("pyarrow").concat_tables(chunks), 0)
    except ValueError:
        _name_file(reader)
        raise
    refuse_empty_columns(reader.columns.names, (~np.isnan(rows.w)).sum(0), len(rows))
    if len(rows.w) < 2:
        raise ValueError(f"Expected at least 2 rows that can be used; got {len(rows.w)}.")
    if rows.weights is not None and not rows.weights.any():
        raise ValueError(f"Expected a weight above 0 in column {reader.weights!r}; got zeros only.")
    return rows


def refuse_empty_columns(names: Sequence[str], measured: NDArray[Any], n_rows: int) -> None:
    """Raise for a column without any measured value."""
    for name, count in zip(names, measured, strict=True):
        if count == 0:
            raise ValueError(
                f"Expected measured values, with errors, in column {name!r}; got none in "
                f"{n_rows} rows. Leave the column out."
            )


def _name_file(reader: RowReader) -> None:
    """Say which file of a folder an error is about, and which row there."""
    for shard in getattr(reader.source, "shards", ()):
        first = 0
        for chunk in shard.chunks(ROWS_AT_ONCE, reader.needed):
            try:
                reader(chunk, first)
            except ValueError as error:
                raise ValueError(f"{error} This is about {shard.name}.") from error
            first += chunk.num_rows


def _covariate(cells: Cells, name: str, labels: Collection[str] | None) -> NDArray[Any]:
    """Read what is known exactly; a row that does not say it cannot be used."""
    if labels is None:
        values = cells.numbers(name)
        cells.mark(np.isnan(values), f"no value in {name}, which is given")
        cells.mark(np.isinf(values), f"{name} is infinite")
        return values
    words = cells.words(name)
    cells.mark(np.array([word is None for word in words]), f"no value in {name}, which is given")
    for row in np.flatnonzero(cells.usable) if labels else ():
        if words[row] not in labels:
            reason = f"{name} is {words[row]!r}, which no row of the fit had"
            cells.reasons.set(int(row), reason)
    return words


def _factors(columns: Columns, source: Source) -> Factors:
    """By how much to multiply columns of errors, to bring them to the units of their values."""
    units = {name: source.unit(columns.place(name)) for name in columns.names}
    for name, unit in zip(columns.names, columns.units, strict=False):  # units may be unknown
        here = units[name]
        if unit and here and conversion(here, [unit], name) != 1.0:
            raise ValueError(
                f"Expected column {name!r} in {unit}, as in the fit; got {here}. Convert it."
            )
    factors = {}
    for column, names in columns.scales():
        theirs, wanted = source.unit(column), [unit for name in names if (unit := units[name])]
        if columns.noise == MULTIPLYING and theirs:
            raise ValueError(
                f"Expected errors without a unit in column {column!r}, since those of "
                f"noise={MULTIPLYING!r} are relative; got {theirs}. Divide them by the values."
            )
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
        found = [units.Unit(one) for one in (unit, *wanted)]
        # Errors are differences: of magnitudes on any scale they are magnitudes.
        theirs, *parts = (getattr(each, "function_unit", each) for each in found)
        return float(theirs.to(math.prod(parts, start=units.dimensionless_unscaled)))
    except (ValueError, TypeError) as error:
        product = " * ".join(wanted)
        raise ValueError(
            f"Expected column {column!r} in a unit like {product}; got {unit}. Convert it."
        ) from error
