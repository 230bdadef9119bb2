"""Covariates: what is known exactly of each row, as numbers of a common scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.checks import refuse_extremes
from deconflow.frames import refuse_other_rows
from deconflow.observations import Observations

NOISE = "noise"
"""The word for the logarithms of the rows' own errors."""
MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """One covariate, as it was at the fit.

    Attributes
    ----------
    name : str
        Its name.
    location, scale : float
        What standardises its numbers.
    categories : tuple of str or None
        Labels in the order of their indicators, the first of which has none; None for numbers.
    """

    name: str
    location: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] | None = None

    def encode(self, values: NDArray[Any]) -> Array:
        """Return numbers ``(N, c)``; an error for labels that were not there at the fit."""
        if self.categories is None:
            numbers = _numbers(values, self.name)
            return ((numbers - self.location) / self.scale)[:, None]
        missing = np.array([_is_missing(each) for each in values], dtype=bool)
        if missing.any():
            _refuse_missing(self.name, int(missing.argmax()))
        labels = values.astype(str)
        known = np.array(self.categories)
        unseen = ~np.isin(labels, known)
        if unseen.any():
            row = int(unseen.argmax())
            raise ValueError(
                f"Expected {self.name} among {', '.join(self.categories)}, as in the fit; got "
                f"{str(labels[row])!r} in row {row} of given. Fit again with rows of that kind."
            )
        return (labels[:, None] == known[None, 1:]).astype(np.float64)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return 1 if self.categories is None else len(self.categories) - 1


@dataclass(frozen=True)
class Covariates:
    """How covariates become numbers.

    Attributes
    ----------
    columns : tuple of Column
        The covariates.
    errors : tuple of int
        Columns of ``w`` the logarithm of whose error is a covariate; these come first.
    named : bool
        Whether the table of the fit named its columns: those of others are then found by name.
    """

    columns: tuple[Column, ...]
    errors: tuple[int, ...] = ()
    named: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the covariates, as users know them."""
        return [column.name for column in self.columns]

    @property
    def size(self) -> int:
        """Number of numbers."""
        return sum(column.size for column in self.columns)

    @property
    def continuous(self) -> NDArray[np.bool_]:
        """Which of the numbers, ``(C,)``, are not indicators of a category."""
        return np.concatenate(
            [np.full(column.size, column.categories is None) for column in self.columns]
        )

    @classmethod
    def fit(cls, given: Any, data: Observations, names: list[str]) -> Covariates:
        """Learn what covariates are, from those of the rows that are fitted."""
        with_errors, table = _parts(given)
        errors, columns = _varying_errors(data) if with_errors else (), []
        for d in errors:
            logs = _log_errors(data)[:, d]
            mean, name = np.nanmean(logs), f"log error of {names[d]}"
            columns.append(Column(name, float(mean), float(np.nanstd(logs))))
        if table is not None:
            columns += [_column(name, values) for name, values in _by_name(table, len(data), None)]
        return cls(tuple(columns), tuple(errors), _has_names(table))

    def encode(self, given: Any, data: Observations) -> torch.Tensor:
        """Return covariates of rows as numbers ``(N, C)``."""
        with_errors, table = _parts(given)
        if with_errors != bool(self.errors):
            said = [f'Expected given="{NOISE}", as in the fit; got a table without it.',
                    f'Expected given as in the fit, without "{NOISE}"; got it.']  # fmt: skip
            raise ValueError(said[with_errors])
        own = self.columns[len(self.errors) :]
        if (table is None) != (not own):
            raise ValueError(self._expected("got none of them" if own else "got more"))
        logs = _log_errors(data)[:, list(self.errors)] if self.errors else None
        parts = [] if logs is None else [
            column.encode(np.where(np.isnan(logs[:, j]), column.location, logs[:, j]))
            for j, column in enumerate(self.columns[: len(self.errors)])
        ]  # fmt: skip
        if table is not None:
            found = _by_name(table, len(data), self._wanted(own))
            if len(found) != len(own):
                raise ValueError(self._expected(f"got {len(found)} columns"))
            parts += [column.encode(values) for column, (_, values) in zip(own, found, strict=True)]
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def of_points(self, given: Any, n_rows: int) -> Array:
        """Return covariates of points as numbers ``(N, C)``; a single row is for all of them.

        Where errors are covariates, their logarithms come first.
        """
        if isinstance(given, str):
            raise ValueError(
                f"Expected given as a table of {', '.join(self.names)}, because points have no "
                f"errors; got {given!r}."
            )
        table = given
        if not hasattr(table, "columns") and not hasattr(table, "to_frame"):
            table = _cells(given)
            if table.ndim == 0 or (table.ndim == 1 and len(self.columns) > 1):
                table = table.reshape(1, -1)
        rows = 1 if len(table) == 1 else n_rows
        found = _by_name(table, rows, self._wanted(self.columns))
        if len(found) != len(self.columns):
            raise ValueError(self._expected(f"got {len(found)} columns"))
        parts = [c.encode(values) for c, (_, values) in zip(self.columns, found, strict=True)]
        return np.repeat(np.concatenate(parts, axis=1), n_rows // rows, axis=0)

    def missing(self) -> str:
        """Say that rows have no covariates, and which they should have."""
        return (
            "Expected given, because the model was fitted with covariates "
            f"({', '.join(self.names)}); got none."
        )

    def _wanted(self, columns: tuple[Column, ...]) -> list[str] | None:
        """Return the names by which a table's columns are to be found; None for by their order."""
        return [column.name for column in columns] if self.named else None

    def _expected(self, got: str) -> str:
        """Say which covariates are expected."""
        return f"Expected given with the covariates of the fit, {', '.join(self.names)}; {got}."

    def as_dict(self) -> dict[str, Any]:
        """Return what is saved."""
        columns = [
            {
                "name": column.name, "location": float(column.location),
                "scale": float(column.scale),
                "categories": None if column.categories is None else list(column.categories),
            }
            for column in self.columns
        ]  # fmt: skip
        return {"columns": columns, "errors": [int(d) for d in self.errors], "named": self.named}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Covariates:
        """Take what :meth:`as_dict` gave."""
        columns = [
            Column(
                str(each["name"]), float(each["location"]), float(each["scale"]),
                None if each["categories"] is None else tuple(map(str, each["categories"])),
            )
            for each in saved["columns"]
        ]  # fmt: skip
        errors = tuple(int(d) for d in saved["errors"])
        return cls(tuple(columns), errors, bool(saved["named"]))


def _parts(given: Any) -> tuple[bool, Any]:
    """Tell the word for errors from a table: ``"noise"``, a table, or ``("noise", table)``."""
    if isinstance(given, str):
        if given != NOISE:
            raise ValueError(f'Expected given as a table of covariates, or "noise"; got {given!r}.')
        return True, None
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return _parts(given[0])[0], given[1]
    return False, given


def _log_errors(data: Observations) -> Array:
    """Logarithms ``(N, M)`` of the rows' errors; NaN where a value is missing."""
    if not data.noise.additive:
        raise ValueError(
            'Expected noise that is added to the truth with given="noise"; got values with a '
            "likelihood, as counts, whose errors depend on what was measured. Give what they were "
            "measured with instead, as the exposures."
        )
    sd = data.noise.variance().sqrt().double().numpy()
    sd = np.array(np.broadcast_to(sd, data.w.shape))
    seen = np.ones(sd.shape, bool) if data.observed is None else data.observed.numpy()
    if (sd[seen] == 0).any():
        row = int(np.argwhere(seen & (sd == 0))[0][0])
        raise ValueError(
            f'Expected positive errors with given="noise", whose logarithm is taken; got 0 in row '
            f"{row}."
        )
    return np.where(seen, np.log(np.where(seen, sd, 1.0)), np.nan)


def _varying_errors(data: Observations) -> tuple[int, ...]:
    """Columns whose errors differ by row."""
    logs = _log_errors(data)
    varying = tuple(int(d) for d in np.flatnonzero(np.nanstd(logs, axis=0) > 1e-9))
    if not varying:
        raise ValueError(
            'Expected errors that differ by row with given="noise"; got the same for all rows.'
        )
    return varying


def _has_names(table: Any) -> bool:
    return hasattr(table, "columns") or hasattr(table, "to_frame")


def _by_name(table: Any, n_rows: int, wanted: list[str] | None) -> list[tuple[str, Any]]:
    """Columns of a table of covariates, with their names; by name where both have some."""
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):
        table = table.to_frame()
    if hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        found = {str(column): _cells(table[column]) for column in table.columns}
        if wanted is not None and set(wanted) != set(names):
            raise ValueError(
                f"Expected given with the columns {', '.join(wanted)}, as in the fit; "
                f"got {', '.join(names)}."
            )
        names = names if wanted is None else wanted
    else:
        array = _cells(table)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ValueError(f"Expected given of shape (N,) or (N, C); got {array.shape}.")
        names = [f"x{j}" for j in range(array.shape[1])]
        if wanted is not None and len(wanted) == len(names):
            names = wanted
        found = {name: array[:, j] for j, name in enumerate(names)}
    if not names:
        raise ValueError("Expected at least one covariate in given; got none.")
    rows = len(found[names[0]])
    if rows != n_rows:
        one = " or one for all" if n_rows > 1 else ""
        raise ValueError(f"Expected given with {n_rows} rows, one for each{one}; got {rows}.")
    return [(name, found[name]) for name in names]


def _cells(values: Any) -> NDArray[Any]:
    """Return cells of a table as an array; those that are masked are None."""
    try:
        array = np.ma.asarray(values) if hasattr(values, "mask") else np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"Expected given as a rectangular table of covariates; got {type(values).__name__} of "
            'parts of several lengths. For errors beside a table say ("noise", table).'
        ) from error
    if isinstance(array, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(array)
        array = np.array(array.data, dtype=object if masked.any() else None)
        if masked.any():
            array[masked] = None
    if array.dtype.kind == "c":
        raise ValueError("Expected covariates that are real numbers, or labels; got complex ones.")
    return array


def check_rows(w: Any, given: Any) -> None:
    """Raise if a data frame of covariates has other rows than one of measurements."""
    table = _parts(given)[1]
    if hasattr(table, "iloc"):
        refuse_other_rows(w, table, "given")


def _column(name: str, values: NDArray[Any]) -> Column:
    """Learn what one covariate is."""
    if values.dtype.kind in "biuf":
        numbers = _numbers(values, name)
        spread = numbers.std()
        if not (spread > 0 and numbers.max() > numbers.min()):  # rounding makes spread of one value
            raise ValueError(
                f"Expected covariates that differ by row; got one value in {name}. Leave it out."
            )
        return Column(name, float(numbers.mean()), float(spread))
    missing = np.array([_is_missing(each) for each in values])
    if missing.any():
        _refuse_missing(name, int(missing.argmax()))
    # Text among objects is text; an array of texts may be what numpy makes of a list of numbers.
    if values.dtype.kind != "O" or not any(isinstance(each, str) for each in values):
        try:
            return _column(name, values.astype(np.float64))
        except (ValueError, TypeError) as error:
            if "Expected" in str(error):
                raise
    labels, counts = np.unique(values.astype(str), return_counts=True)
    if not 2 <= len(labels) <= MOST_CATEGORIES:
        raise ValueError(
            f"Expected 2 to {MOST_CATEGORIES} categories in {name}; got {len(labels)}. "
            "Put rare ones together, or leave it out."
        )
    order = np.argsort(-counts, kind="stable")
    return Column(name, categories=tuple(str(label) for label in labels[order]))


def _is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or what pandas has for these."""
    try:
        return cell is None or bool(cell != cell)
    except TypeError:  # pandas.NA is not even unequal to itself
        return True


def _numbers(values: NDArray[Any], name: str) -> Array:
    try:
        numbers = np.array(
            [np.nan if _is_missing(each) else each for each in values]
            if values.dtype == object
            else values,
            dtype=np.float64,
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"Expected numbers in {name} of given; got others.") from error
    bad = ~np.isfinite(numbers)
    if bad.any():
        _refuse_missing(name, int(bad.argmax()))
    refuse_extremes(f"{name} of given", numbers)
    return numbers


def _refuse_missing(name: str, row: int) -> None:
    raise ValueError(
        f"Expected covariates that are known in every row; got none for {name} in row {row} of "
        "given. Drop such rows, or put the column in w with its error, where values may be missing."
    )
