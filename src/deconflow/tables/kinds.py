"""Kinds of measurement: how each reads its cells, and makes noise of them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deconflow import noise as laws
from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.tables.columns import (
    COUNTS,
    MULTIPLYING,
    Bar,
    Columns,
    finite_number,
    independent_noise,
    one_sign,
)
from deconflow.tables.formats import is_list, row_name
from deconflow.tables.sources import can_be, plain

if TYPE_CHECKING:
    from deconflow.tables.rows import RowReader

NO_COVARIANCE = "errors and correlations make no covariance"
Law = laws.Noise | laws.FreeErrors
#: What is written before a number that is a limit.
SIGNS = {"<": -1, ">": 1}
#: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
FLAGS = {"-1": -1, "<": -1, "0": 0, "1": 1, "+1": 1, ">": 1}


class Cells:
    """The cells of a chunk.

    Parameters
    ----------
    chunk
        The chunk.
    first_row
        Number of its first row in the table.
    missing
        Numbers that stand for a missing value.

    Attributes
    ----------
    usable : array of bool
        Rows that nothing speaks against, so far.
    status : array of str
        Why the others cannot be used; ``"ok"`` for those that can.
    """

    def __init__(self, chunk: pa.Table, first_row: int, missing: Sequence[float]) -> None:
        self.table, self.first_row, self.missing = chunk, first_row, missing
        self.usable = np.ones(chunk.num_rows, dtype=bool)
        self.status = np.broadcast_to(np.array("ok", dtype=object), len(self.usable))

    def mark(self, bad: BoolArray, reason: str) -> None:
        """Record why rows cannot be used; the first reason stays."""
        new = bad & self.usable
        if new.any():
            self.status = np.where(new, np.array(reason, dtype=object), self.status)
            self.usable[new] = False

    def usable_of(self, values: Any) -> Any:
        """Return the usable rows of an array, if there is one: itself, where all are usable."""
        return values if values is None or self.usable.all() else values[self.usable]

    def refuse(self, bad: Any, values: AnyArray, wanted: str, advice: str) -> None:
        """Raise for the first value that is wrong, with its row."""
        wrong = np.flatnonzero(bad)
        if len(wrong):
            row, value = int(wrong[0]), values[wrong[0]]
            got = f"{value:g}" if isinstance(value, float) else repr(value)
            got = "none" if got == "nan" else got
            raise ValueError(f"Expected {wanted}; got {got} in {self.row(row)}. {advice}")

    def row(self, row: int) -> str:
        """Name a row of the chunk by its number in the table."""
        return row_name(self.first_row + row)

    def numbers(self, name: str, column: Any = None) -> Array:
        """Read a column, NaN where a number is missing."""
        cells = plain(self.table[name]) if column is None else column
        is_text = cells.type == pa.string()
        refuse_if(
            not is_text and not _is_number(cells.type),
            f"Expected numbers in column {name!r}; got {cells.type}. Choose another column.",
        )
        try:
            numbers = cells.cast(pa.float64(), safe=is_text)
        except pa.ArrowInvalid as error:
            raise self._no_number(cells, name) from error
        values = np.array(pc.fill_null(numbers, np.nan).to_numpy(), dtype=np.float64)
        for number in self.missing:  # a column in single precision has it rounded
            values[(values == number) | (values == np.float32(number))] = np.nan
        return values

    def _no_number(self, cells: pa.ChunkedArray, name: str) -> ValueError:
        """Say which cell of text is no number, and what to do."""
        row, cell = next(
            (row, cell) for row, cell in enumerate(cells.to_pylist())
            if not can_be(pa.array([cell], pa.string()), pa.float64())
        )  # fmt: skip
        comma = re.fullmatch(r"[+-]?\d+,\d+(e[+-]?\d+)?", cell, re.IGNORECASE)
        advice = "Correct it, or leave the cell empty for a missing value."
        return ValueError(
            f"Expected numbers in column {name!r}; got {cell!r} in {self.row(row)}. "
            f"{'Write a point for the comma.' if comma else advice}"
        )

    def numbers_and_limits(self, name: str, flags: str | None) -> tuple[Array, IntArray]:
        """Read a column in which cells such as ``<1.5`` are limits, and its column of flags."""
        column, marks = plain(self.table[name]), np.zeros(len(self.usable), dtype=np.int64)
        if column.type == pa.string():
            for sign, flag in SIGNS.items():
                marks[pc.fill_null(pc.starts_with(column, sign), False).to_numpy()] = flag
            column = plain(pc.utf8_ltrim(column, "<> ")) if marks.any() else column
        values = self.numbers(name, column)
        if flags is not None:
            flagged = self._flags(flags)
            wrong = (flagged * marks) == -1
            if wrong.any():
                raise ValueError(
                    f"Expected one limit of {name!r}; got an upper and a lower one, in it and in "
                    f"{flags!r}, in {self.row(int(wrong.argmax()))}. Correct one of them."
                )
            marks = np.where(marks == 0, flagged, marks)
        marks[np.isnan(values)] = 0
        return values, marks

    def _flags(self, name: str) -> IntArray:
        """Read which values are limits: -1, 0 or 1."""
        words = _words(self.table[name], name)
        flags = np.array([FLAGS.get(str(w).removesuffix(".0"), 2) if w else 0 for w in words], int)
        self.refuse(
            flags == 2, words, "-1 or < (upper limit), 1 or > (lower limit), 0 or nothing "
            f"(measured) in column {name!r}",
            "If it has another meaning, give limits=['none']",
        )  # fmt: skip
        return flags

    def draws(self, name: str) -> list[Array]:
        """Read a column of lists of numbers, empty where a list is missing."""
        column = self.table[name]
        refuse_if(
            not (is_list(column.type) and _is_number(column.type.value_type)),
            f"Expected lists of numbers in column {name!r}, as in the others; got "
            f"{column.type}. Choose another column.",
        )
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        numbers = pc.fill_null(pc.list_flatten(column).cast(pa.float64(), safe=False), np.nan)
        return np.split(numbers.to_numpy(), np.cumsum(lengths)[:-1]) if len(lengths) else []

    def labels(self, name: str) -> AnyArray:
        """Read which rows belong together; a row without a label cannot be used."""
        labels = _objects(plain(self.table[name]))
        missing = np.array([label is None for label in labels], dtype=bool)
        bad = [
            not (isinstance(label, str | int) or (isinstance(label, float) and label.is_integer()))
            for label in labels  # whole numbers have a point where some are missing
        ]
        self.refuse(
            bad & ~missing, labels, f"text or whole numbers in column {name!r}, whose rows belong "
            "together where they are equal", "Choose another column.",
        )  # fmt: skip
        self.mark(missing, f"no group in {name}")
        return labels

    def words(self, name: str) -> AnyArray:
        """Read text, None where it is missing."""
        words = _words(self.table[name], name)
        if self.missing:
            numbers = np.array([np.nan if word is None else finite_number(word) for word in words])
            words[np.isin(numbers, self.missing)] = None
        return words


def holds_numbers(column: pa.ChunkedArray) -> bool:
    """Whether all cells that are not missing are numbers."""
    column = plain(column)
    if column.type == pa.string():
        return can_be(column, pa.float64())
    return _is_number(column.type) and not pa.types.is_boolean(column.type)


def _words(column: pa.ChunkedArray, name: str) -> AnyArray:
    """Return cells as text, None where missing."""
    column = plain(column)
    refuse_if(
        column.type != pa.string() and not _is_number(column.type),
        f"Expected numbers or text in column {name!r}; got {column.type}. Choose another column.",
    )
    words = _objects(column)
    words[:] = [None if word is None else str(word) for word in words]
    return words


def _objects(column: pa.ChunkedArray) -> AnyArray:
    """Return plain cells as objects of Python, None where missing."""
    cells = column.to_pylist()
    objects = np.empty(len(cells), dtype=object)
    objects[:] = [None if cell is None or cell != cell else cell for cell in cells]
    return objects


def _is_number(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number or pa.types.is_boolean(kind) or pa.types.is_null(kind)


class Kind(ABC):
    """Measured columns of a chunk, of one kind of measurement.

    Attributes
    ----------
    w : array
        ``(N, D)``, NaN where missing.
    limits : array of int
        ``(N, D)``; -1 for upper limits, 1 for lower ones, 0 for others.
    without_error : int
        Number of values that have no error, and count as missing.
    """

    without_error = 0

    def __init__(self, cells: Cells, reader: "RowReader") -> None:
        self.cells, self.reader, self.columns = cells, reader, reader.columns
        self.w = np.full((len(cells.usable), len(self.columns.names)), np.nan)
        self.limits = np.zeros(self.w.shape, dtype=np.int64)
        self.read()

    @abstractmethod
    def read(self) -> None:
        """Read the columns, and mark rows that cannot be used."""

    @abstractmethod
    def law(self) -> tuple[Array, Law | None]:
        """Return usable values and their noise; rows whose errors make none are marked first."""


def kind_of(columns: Columns) -> type[Kind]:
    """Return the kind of measurement that columns are."""
    if columns.draws:
        return Draws
    if columns.replicate_columns:
        return Replicates
    return Counts if columns.noise in COUNTS else ErrorBars


class ErrorBars(Kind):
    """Values and their errors, some of them limits."""

    def read(self) -> None:
        """Read the columns, and mark rows that cannot be used."""
        self.lower, self.upper = np.ones_like(self.w), np.ones_like(self.w)
        variances = self.columns.variances
        for d, name in enumerate(self.columns.names):
            flags = self.columns.limits[d] if self.columns.limits else None
            w, limits = self.cells.numbers_and_limits(name, flags)
            self.cells.mark(np.isinf(w), f"{name} is infinite")
            measured = ~np.isnan(w)
            if name in variances:
                values = self._errors(variances[name], (name, name), measured)
                lower = upper = np.sqrt(np.maximum(values, 0))
            else:
                low, high = self.columns.errors[d]
                lower = upper = self._errors(high, (name,), measured)
                if low != high:
                    lower = self._errors(low, (name,), measured, signed=True)
            known = np.isfinite(lower) & np.isfinite(upper)
            self.without_error += int((measured & ~known).sum())
            w[~known], limits[~known] = np.nan, 0
            self.w[:, d], self.limits[:, d] = w, limits
            self.lower[:, d] = np.where(measured & known, lower, 1.0)
            self.upper[:, d] = np.where(measured & known, upper, 1.0)
        if self.columns.replicates is not None:
            self.same = self.cells.labels(self.columns.replicates)

    def _errors(
        self, bar: Bar, names: tuple[str, ...], measured: BoolArray, *, signed: bool = False
    ) -> Array:
        """Errors or variances, in the units of the values; signed ones by their size."""
        law, signs = self.columns.law, self.reader.signs
        if not isinstance(bar, str):
            refuse_if(
                bar == 0 and law != "gaussian",
                f"Expected positive errors under {law} noise; got errors=['...=0'].",
            )
            return np.full(len(measured), bar)
        values = self.cells.numbers(bar)
        if signed:
            values, signs[bar] = one_sign(
                values, measured, bar, signs.get(bar, 0), self.cells.first_row
            )
        least, bad = "of at least 0", values < 0
        if law != "gaussian":
            least, bad = f"above 0, because the noise is {law},", values <= 0
        self.cells.refuse(
            measured & bad, values, f"errors {least} in column {bar!r}",
            "Correct it, or leave the cell empty if the value is missing.",
        )  # fmt: skip
        return values * self.reader.factors[bar, names]

    def law(self) -> tuple[Array, Law | None]:
        """Return usable values and their noise."""
        columns = self.columns
        self.shared = [p for p in columns.correlations + columns.covariances if p[0] != p[1]]
        if self.shared:
            noise = self._correlated_noise(self._covariance())
        else:
            lower, upper = map(self.cells.usable_of, (self.lower, self.upper))
            noise = independent_noise(lower, upper, columns.noise, columns.df)
        w = self.cells.usable_of(self.w)
        if columns.noise == MULTIPLYING:
            for name, values in zip(columns.names, w.T, strict=True):
                self.cells.refuse(
                    values <= 0, values, f"values above 0 in column {name!r}, because errors "
                    "multiply them", "Correct it, or choose another noise=.",
                )  # fmt: skip
            return laws.multiplicative(cast("laws.Noise", noise)).read(w)
        if noise is None or not columns.fit_errors:
            return w, noise
        known = cast("laws.GaussianNoise", noise)
        errors = {"sd": known.factor} if known.diagonal else {"covariance": known.covariance()}
        estimated: dict[str, Any] = dict.fromkeys(columns.fit_errors, "fit")
        if columns.replicates is not None:  # these parts of the errors are left open
            estimated["replicates"] = self.cells.usable_of(self.same)
        return w, laws.gaussian(**errors, **estimated)

    def _covariance(self) -> Array:
        seen, sd, columns = ~np.isnan(self.w), self.lower, self.columns
        covariance = np.eye(sd.shape[1]) * sd[:, :, None] ** 2
        at = {name: d for d, name in enumerate(columns.names)}
        for a, b, column in self.shared:
            i, j, values = at[a], at[b], self.cells.numbers(column)
            if (a, b, column) in columns.correlations:
                self.cells.refuse(
                    np.abs(values) > 1, values,
                    f"correlations between -1 and 1 in column {column!r}", "Correct it.",
                )  # fmt: skip
                values = values * sd[:, i] * sd[:, j]
            else:
                values = values * self.reader.factors[column, (a, b)]
            both, known = seen[:, i] & seen[:, j], np.isfinite(values)
            self.cells.mark(both & ~known, f"no correlation of {a} and {b}")
            covariance[:, i, j] = covariance[:, j, i] = np.where(both & known, values, 0.0)
        return covariance

    def _correlated_noise(self, covariance: Array) -> laws.Noise | None:
        """Let the noise check covariances; only where it refuses some, find and mark them all."""
        usable = self.cells.usable
        if not usable.any():
            return None
        try:
            return laws.gaussian(covariance=covariance[usable])
        except ValueError:
            bad = usable & _indefinite(covariance)
            if not bad.any():
                raise
            self.cells.mark(bad, NO_COVARIANCE)
            return self._correlated_noise(covariance)


class Counts(Kind):
    """Counts, whose distribution follows from what is counted: of a rate, or of a probability."""

    def read(self) -> None:
        """Read the columns, and mark rows that cannot be used."""
        cells, binomial = self.cells, self.columns.noise == "binomial"
        for d, name in enumerate(self.columns.names):
            values = cells.numbers(name)
            cells.refuse(
                ~_whole(values), values, f"counts in column {name!r}, whole numbers of at least 0",
                "Correct it, or choose another noise=.",
            )  # fmt: skip
            cells.mark(np.isinf(values), f"{name} is infinite")
            self.w[:, d] = values
        self.counted_with, column = None, self.columns.counted_with
        if column is not None:
            self.counted_with = numbers = cells.numbers(column)
            cells.refuse(
                (numbers <= 0) | (binomial & ~_whole(numbers)), numbers,
                f"{'whole ' if binomial else ''}numbers above 0 in column {column!r}",
                "Correct it, or leave the cell empty.",
            )  # fmt: skip
            cells.mark(~np.isfinite(numbers), f"no value in {column}")
            if binomial:
                most = np.fmax.reduce(self.w, axis=1)
                cells.refuse(
                    most > numbers, most,
                    f"no more counts than trials, which are in column {column!r}",
                    "Correct the count or the trials.",
                )  # fmt: skip

    def law(self) -> tuple[Array, Law | None]:
        """Return usable values and their noise."""
        usable, numbers = self.cells.usable, self.counted_with
        counted_with = 1.0 if numbers is None else numbers[usable][:, None]
        make = laws.poisson if self.columns.noise == "poisson" else laws.binomial
        return make(counted_with).read(self.w[usable])


class Draws(Kind):
    """Posterior samples: cells with lists, as many draws in each column of a row."""

    def read(self) -> None:
        """Read the columns, and mark rows that cannot be used."""
        cells, names, prior = self.cells, self.columns.names, self.columns.log_prior
        read = [*names, *([prior] if prior else [])]
        lists = [cells.draws(name) for name in read]
        for name, each in zip(read, lists, strict=True):
            for row, (draws, wanted) in enumerate(zip(each, lists[0], strict=True)):
                if len(draws) != len(wanted):
                    raise ValueError(
                        f"Expected as many draws in column {name!r} as in {read[0]!r}; got "
                        f"{len(draws)} and {len(wanted)} in {cells.row(row)}. Correct it."
                    )
        rows = list(zip(*lists, strict=True))
        self.draws = [np.stack(row[: len(names)], -1) for row in rows]
        self.log_prior = [row[-1] for row in rows] if prior else None
        why = np.array([self._why_not(draws) for draws in self.draws], dtype=object)
        for reason in filter(None, dict.fromkeys(why)):
            cells.mark(why == reason, reason)
        self.w[cells.usable] = 0.0
        for row, values in enumerate(self.log_prior or ()):
            if cells.usable[row] and not np.isfinite(values).all():
                raise ValueError(
                    f"Expected a finite log prior of every draw in column {prior!r}; got another "
                    f"in {cells.row(row)}. Correct it, or leave that draw out."
                )

    def law(self) -> tuple[Array, Law | None]:
        """Return usable values and their noise."""
        usable = np.flatnonzero(self.cells.usable)
        prior = None if self.log_prior is None else [self.log_prior[row] for row in usable]
        return laws.from_samples([self.draws[row] for row in usable], log_prior=prior)

    def _why_not(self, draws: Array) -> str:
        """Say why draws cannot be used; nothing if they can."""
        fewest = len(self.columns.names) + 2  # as a covariance needs
        if not np.isfinite(draws).all():
            return "a draw is missing or infinite"
        if len(draws) < fewest:
            return f"fewer than {fewest} draws"
        same = (draws == draws[0]).all(axis=0)
        return f"all draws of {self.columns.names[same.argmax()]} are equal" if same.any() else ""


class Replicates(Kind):
    """Repeated measurements of each row, whose errors follow from their scatter."""

    def read(self) -> None:
        """Read the columns, and mark rows that cannot be used."""
        columns = self.columns
        most = max(map(len, columns.replicate_columns))
        self.values = np.full((len(self.cells.usable), most, len(columns.names)), np.nan)
        pairs = zip(columns.names, columns.replicate_columns, strict=True)
        for d, (name, repeated) in enumerate(pairs):
            for r, column in enumerate(repeated):
                values = self.cells.numbers(column) * self.reader.factors[column, (name,)]
                self.cells.mark(np.isinf(values), f"{column} is infinite")
                self.values[:, r, d] = values
        self.w[(~np.isnan(self.values)).any(1)] = 0.0

    def law(self) -> tuple[Array, Law | None]:
        """Return usable values and their noise."""
        values, covariance = self.values[self.cells.usable], self.columns.replicate_covariance
        if not covariance:
            covariance = tuple(map(tuple, laws.replicate_covariance(values).tolist()))
            self.reader.columns = replace(self.columns, replicate_covariance=covariance)
        return laws.from_replicates(values, covariance=covariance)


def _indefinite(covariance: Array) -> BoolArray:
    """Whether matrices have a negative eigenvalue, by a hair more strictly than the noise does."""
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    units = np.where(sd > 0, sd, 1.0)
    values = np.linalg.eigvalsh(covariance / (units[:, :, None] * units[:, None, :]))
    return values[:, 0] < -0.9e-7 * np.abs(values).max(1)


def _whole(values: Array) -> BoolArray:
    """Whether numbers are counts; missing and infinite ones may be."""
    return ~((values < 0) | np.isfinite(values) & (np.floor(values) != values))
