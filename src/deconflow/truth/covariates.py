"""Covariates: what is known exactly of each row, as numbers of a common scale."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deconflow._types import AnyArray, Array, BoolArray
from deconflow.checks import refuse_extremes, refuse_if, refuse_where
from deconflow.frames import refuse_other_rows
from deconflow.observations import Observations

#: The word for the logarithms of the rows' own errors.
NOISE = "noise"
MOST_CATEGORIES = 100
MISSING = ("None", "nan", "inf", "-inf", "NaT", "<NA>")


@dataclass(frozen=True)
class Given:
    """Covariates of rows: whether the rows' own errors are among them, and columns by name."""

    with_errors: bool
    columns: dict[str, AnyArray]

    @classmethod
    def of(cls, given: Any, w: Any, n_rows: int) -> "Given":
        """Check the word ``"noise"``, a table with the rows of ``w``, or ``("noise", table)``."""
        if isinstance(given, str):
            given = (given, None)
        with_errors = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
        if with_errors:
            word, given = given
            refuse_if(
                word != NOISE,
                f'Expected given as a table of covariates, or "noise"; got {word!r}.',
            )
        if hasattr(given, "iloc"):
            refuse_other_rows(w, given, "given")
        return cls(with_errors, _columns_by_name(given, n_rows))

    def take(self, rows: Any) -> "Given":
        """Return the covariates of some rows."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})


@dataclass(frozen=True)
class Column:
    """One covariate, as it was at the fit.

    Attributes
    ----------
    name : str
        Its name.
    location, scale : float
        What standardises its numbers.
    categories : list of str or None
        Labels in the order of their indicators, the first of which has none; None for numbers.
    """

    name: str
    location: float = 0.0
    scale: float = 1.0
    categories: list[str] | None = None

    @classmethod
    def fit(cls, name: str, cells: AnyArray) -> "Column":
        """Standardise numbers, or order labels by how many rows have them."""
        numbers = _numbers(name, cells)
        if numbers is not None:
            spread = numbers.std()
            refuse_if(
                not (spread > 0 and np.ptp(numbers) > 0),  # rounding makes a spread of equal ones
                f"Expected covariates that differ by row; got one value in {name}. Leave it out.",
            )
            return cls(name, float(numbers.mean()), float(spread))
        labels, counts = np.unique(cells.astype(str), return_counts=True)
        refuse_if(
            not 2 <= len(labels) <= MOST_CATEGORIES,
            f"Expected 2 to {MOST_CATEGORIES} categories in {name}; got {len(labels)}. "
            "Put rare ones together, or leave it out.",
        )
        return cls(name, categories=labels[np.argsort(-counts, kind="stable")].tolist())

    def encode(self, cells: AnyArray) -> Array:
        """Return numbers ``(N, c)``; an error for labels that were not there at the fit."""
        if self.categories is None:
            numbers = _numbers(self.name, cells)
            if numbers is None:
                raise ValueError(f"Expected numbers in {self.name} of given; got labels.")
            return ((numbers - self.location) / self.scale)[:, None]
        labels, known = cells.astype(str), np.array(self.categories)
        refuse_where(
            ~np.isin(labels, known),
            f"{self.name} of given among {', '.join(self.categories)}, as in the fit",
            labels,
            "'{}'",
            advice="Fit again with rows of that kind.",
        )
        return (labels[:, None] == known[None, 1:]).astype(np.float64)


@dataclass(frozen=True)
class Covariates:
    """How covariates become numbers.

    Attributes
    ----------
    columns : list of Column
        The covariates; logarithms of errors first.
    errors : list of int
        Columns of ``w`` the logarithm of whose error is a covariate.
    """

    columns: list[Column]
    errors: list[int] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the covariates, as users know them."""
        return [column.name for column in self.columns]

    @property
    def continuous(self) -> BoolArray:
        """Which of the numbers, ``(C,)``, are not indicators of a category."""
        widths = [1 if c.categories is None else len(c.categories) - 1 for c in self.columns]
        return np.repeat([c.categories is None for c in self.columns], widths)

    @classmethod
    def fit(cls, given: Given, data: Observations, names: list[str]) -> "Covariates":
        """Learn what covariates are, from those of the rows that are fitted."""
        columns: list[Column] = []
        errors: list[int] = []
        if given.with_errors:
            logs = _log_errors(data)
            logs = np.where(np.isnan(logs), np.nanmean(logs, axis=0), logs)
            errors = np.flatnonzero(np.ptp(logs, axis=0) > 1e-9).tolist()
            columns = [Column.fit(f"log error of {names[d]}", logs[:, d]) for d in errors]
            refuse_if(
                not errors,
                f'Expected errors that differ by row with given="{NOISE}"; got the same for '
                "all rows.",
            )
        columns += [Column.fit(*each) for each in given.columns.items()]
        return cls(columns, errors)

    def encode(self, given: Given, data: Observations) -> Array:
        """Return covariates of rows as numbers ``(N, C)``."""
        refuse_if(
            not data.noise.additive,
            "Expected noise that is added to the true values with given; got values with a "
            "likelihood, such as counts. Leave out given.",
        )
        n_errors, parts = len(self.errors), []
        refuse_if(
            given.with_errors != (n_errors > 0),
            self._expected(f'{"" if given.with_errors else "no "}"{NOISE}"'),
        )
        if given.with_errors:
            for column, log in zip(self.columns, _log_errors(data)[:, self.errors].T, strict=False):
                parts.append(column.encode(np.where(np.isnan(log), column.location, log)))
        return np.concatenate(
            [*parts, *self._encoded(self.columns[n_errors:], given.columns)], axis=1
        )

    def encode_one(self, x: Any) -> Array:
        """Return one value of the covariates as numbers ``(1, C)``; logarithms of errors first."""
        if hasattr(x, "keys") and not hasattr(x, "columns"):  # a mapping, or a row of pandas
            x = dict(x)
        return np.concatenate(self._encoded(self.columns, _columns_by_name(x, 1)), axis=1)

    def take(self, rows: Any) -> "Covariates":
        """Return the same for some rows: it does not depend on them."""
        return self

    def missing(self) -> str:
        """Message for rows that have no covariates."""
        return (
            "Expected given, because the model was fitted with covariates "
            f"({', '.join(self.names)}); got none."
        )

    def _encoded(self, own: list[Column], cells: dict[str, AnyArray]) -> list[Array]:
        """Encode columns of a table, found by name, or by order where either has no names."""
        names = [column.name for column in own]
        if set(cells) != set(names):
            numbered = [f"x{j}" for j in range(len(cells))]
            refuse_if(
                len(cells) != len(names) or numbered not in (names, list(cells)),
                self._expected(f"the columns {', '.join(cells) or 'none'}"),
            )
            cells = dict(zip(names, cells.values(), strict=True))
        return [column.encode(cells[column.name]) for column in own]

    def _expected(self, got: str) -> str:
        return f"Expected given with the covariates of the fit, {', '.join(self.names)}; got {got}."


def _log_errors(data: Observations) -> Array:
    """Logarithms ``(N, M)`` of the rows' errors; NaN where a value is missing."""
    seen = ~np.isnan(data.measured())
    sd = np.broadcast_to(np.sqrt(np.asarray(data.noise.variance(), np.float64)), seen.shape)
    expected = f'positive errors with given="{NOISE}", whose logarithm is taken'
    refuse_where((seen & (sd == 0)).any(axis=1), expected, got="0")
    return np.log(np.where(seen, sd, np.nan))


def _columns_by_name(table: Any, n_rows: int) -> dict[str, AnyArray]:
    """Columns of a table of covariates by their names, which are x0, x1, ... if it has none."""
    if table is None:
        return {}
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):
        table = table.to_frame()
    names = table if isinstance(table, dict) else getattr(table, "columns", None)
    if names is None:
        array = _cells(table)
        if array.ndim < 2:
            array = array.reshape((1, -1) if n_rows == 1 else (-1, 1))
        columns = {f"x{j}": column for j, column in enumerate(array.T)}
    else:
        columns = {str(name): np.atleast_1d(_cells(table[name])) for name in names}
    refuse_if(
        not columns,
        "Expected at least one covariate in given; got none.",
    )
    for name, column in columns.items():
        refuse_if(
            column.shape != (n_rows,),
            f"Expected given of shape (N,) or (N, C), with one row for each of {n_rows}; got "
            f"{name} of shape {column.shape}.",
        )
        _refuse_missing(name, column)
    return columns


def _cells(values: Any) -> AnyArray:
    """Return cells of a table as an array, with None for masked ones."""
    if isinstance(values, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(values), np.array(None), values.data)
    return np.asarray(values)


def _refuse_missing(name: str, cells: AnyArray) -> None:
    if cells.dtype.kind in "OSU":  # None, NaN, or what pandas has for these
        missing = np.array([not isinstance(c, str) and str(c) in MISSING for c in cells])
    else:
        missing = ~np.isfinite(cells)
    refuse_where(
        missing,
        "covariates in given that are known in every row",
        got=f"none for {name}",
        advice="Drop such rows, or put the column in w with its error, where values may be "
        "missing.",
    )


def _numbers(name: str, cells: AnyArray) -> Array | None:
    """Cells as numbers, None for labels: text among objects is one even where it has digits."""
    if cells.dtype.kind == "O" and any(isinstance(each, str) for each in cells):
        return None
    try:
        numbers = cells.astype(np.float64)
    except (ValueError, TypeError):
        return None
    refuse_extremes(f"{name} of given", numbers)
    return numbers
