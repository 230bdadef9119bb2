"""Kinds of measurement: how each reads its columns, and makes noise of them."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deconflow import noise as laws
from deconflow._types import Array, BoolArray
from deconflow.tables.cells import Cells
from deconflow.tables.columns import COUNTS, MULTIPLYING, Bar, Columns, independent_noise, one_sign

if TYPE_CHECKING:
    from deconflow.tables.rows import RowReader

NO_COVARIANCE = "errors and correlations make no covariance"
Law = laws.Noise | laws.FreeErrors


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
        self.w = np.full((len(cells), len(self.columns.names)), np.nan)
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
        for d, name in enumerate(self.columns.names):
            flags = self.columns.limits[d] if self.columns.limits else None
            w, limits = self.cells.numbers_and_limits(name, flags)
            self.cells.mark(np.isinf(w), f"{name} is infinite")
            measured = ~np.isnan(w)
            lower, upper = self._bars(d, name, measured)
            known = np.isfinite(lower) & np.isfinite(upper)
            self.without_error += int((measured & ~known).sum())
            w[~known], limits[~known] = np.nan, 0
            self.w[:, d], self.limits[:, d] = w, limits
            self.lower[:, d] = np.where(measured & known, lower, 1.0)
            self.upper[:, d] = np.where(measured & known, upper, 1.0)
        if self.columns.replicates is not None:
            self.same = self.cells.labels(self.columns.replicates)

    def _bars(self, d: int, name: str, measured: BoolArray) -> tuple[Array, Array]:
        """Lower and upper errors of a column: the same array where they are the same."""
        variance = self.columns.variances.get(name)
        if variance is not None:
            values = self._errors(variance, (name, name), measured)
            return (np.sqrt(np.maximum(values, 0)),) * 2
        lower, upper = self.columns.errors[d]
        bar = self._errors(upper, (name,), measured)
        if lower == upper:
            return bar, bar
        return self._errors(lower, (name,), measured, signed=True), bar

    def _errors(
        self, bar: Bar, names: tuple[str, ...], measured: BoolArray, *, signed: bool = False
    ) -> Array:
        """Errors or variances, in the units of the values; signed ones by their size."""
        law, signs = self.columns.law, self.reader.signs
        if not isinstance(bar, str):
            if bar == 0 and law != "gaussian":
                raise ValueError(
                    f"Expected positive errors under {law} noise; got errors=['...=0']."
                )
            return np.full(len(measured), bar)
        values = self.cells.numbers(bar)
        if signed:
            sign = signs.get(bar, 0)
            values, signs[bar] = one_sign(values, measured, bar, sign, self.cells.first_row)
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
        if columns.noise != MULTIPLYING:
            return w, self._opened(noise)
        for name, values in zip(columns.names, w.T, strict=True):
            wanted = f"values above 0 in column {name!r}, because errors multiply them"
            self.cells.refuse(values <= 0, values, wanted, "Correct it, or choose another noise=.")
        return laws.multiplicative(cast("laws.Noise", noise)).read(w)

    def _opened(self, noise: laws.Noise | None) -> Law | None:
        """Leave open the parts of the errors that the fit is to estimate."""
        parts = self.columns.fit_errors
        if noise is None or not parts:
            return noise
        known = cast("laws.GaussianNoise", noise)
        errors = {"sd": known.factor} if known.diagonal else {"covariance": known.covariance()}
        estimated: dict[str, Any] = dict.fromkeys(parts, "fit")
        if self.columns.replicates is not None:
            estimated["replicates"] = self.cells.usable_of(self.same)
        return laws.gaussian(**errors, **estimated)

    def _covariance(self) -> Array:
        seen, sd, columns = ~np.isnan(self.w), self.lower, self.columns
        covariance = np.eye(sd.shape[1]) * sd[:, :, None] ** 2
        at = {name: d for d, name in enumerate(columns.names)}
        for a, b, column in self.shared:
            i, j, values = at[a], at[b], self.cells.numbers(column)
            if (a, b, column) in columns.correlations:
                wanted = f"correlations between -1 and 1 in column {column!r}"
                self.cells.refuse(np.abs(values) > 1, values, wanted, "Correct it.")
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
            wanted = f"counts in column {name!r}, whole numbers of at least 0"
            advice = "Correct it, or choose another noise=."
            cells.refuse(~_whole(values), values, wanted, advice)
            cells.mark(np.isinf(values), f"{name} is infinite")
            self.w[:, d] = values
        self.counted_with, column = None, self.columns.counted_with
        if column is not None:
            self.counted_with = numbers = cells.numbers(column)
            bad = (numbers <= 0) | (~_whole(numbers) if binomial else False)
            wanted = f"{'whole ' if binomial else ''}numbers above 0 in column {column!r}"
            cells.refuse(bad, numbers, wanted, "Correct it, or leave the cell empty.")
            cells.mark(~np.isfinite(numbers), f"no value in {column}")
            if binomial:
                most = np.fmax.reduce(self.w, axis=1)
                wanted = f"no more counts than trials, which are in column {column!r}"
                cells.refuse(most > numbers, most, wanted, "Correct the count or the trials.")

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
        self.values = np.full((len(self.cells), most, len(columns.names)), np.nan)
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
