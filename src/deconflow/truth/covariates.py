"""Covariates: what is known exactly of each row, as numbers of a common scale."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
MISSING = ("None", "nan", "NaT", "<NA>")


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

    @classmethod
    def fit(cls, name: str, values: NDArray[Any]) -> Column:
        """Find out whether values are numbers or labels, and which."""
        if _are_numbers(values):
            numbers = _numbers(name, values)
            spread = numbers.std()
            if not (spread > 0 and numbers.max() > numbers.min()):  # rounding makes spread of one
                raise ValueError(
                    f"Expected covariates that differ by row; got one value in {name}. Leave it "
                    "out."
                )
            return cls(name, float(numbers.mean()), float(spread))
        labels, counts = np.unique(_labels(name, values), return_counts=True)
        if not 2 <= len(labels) <= MOST_CATEGORIES:
            raise ValueError(
                f"Expected 2 to {MOST_CATEGORIES} categories in {name}; got {len(labels)}. "
                "Put rare ones together, or leave it out."
            )
        order = np.argsort(-counts, kind="stable")
        return cls(name, categories=tuple(labels[order].tolist()))

    def encode(self, values: NDArray[Any]) -> Array:
        """Return numbers ``(N, c)``; an error for labels that were not there at the fit."""
        if self.categories is None:
            return ((_numbers(self.name, values) - self.location) / self.scale)[:, None]
        labels, known = _labels(self.name, values), np.array(self.categories)
        unseen = ~np.isin(labels, known)
        if unseen.any():
            row = int(unseen.argmax())
            raise ValueError(
                f"Expected {self.name} among {', '.join(self.categories)}, as in the fit; got "
                f"{str(labels[row])!r} in row {row} of given. Fit again with rows of that kind."
            )
        return (labels[:, None] == known[None, 1:]).astype(np.float64)


@dataclass(frozen=True)
class Covariates:
    """How covariates become numbers.

    Attributes
    ----------
    columns : tuple of Column
        The covariates.
    errors : tuple of int
        Columns of ``w`` the logarithm of whose error is a covariate; these come first.
    """

    columns: tuple[Column, ...]
    errors: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the covariates, as users know them."""
        return [column.name for column in self.columns]

    @property
    def continuous(self) -> NDArray[np.bool_]:
        """Which of the numbers, ``(C,)``, are not indicators of a category."""
        kinds = [[True] if c.categories is None else [False] * len(c.categories[1:])
                 for c in self.columns]  # fmt: skip
        return np.concatenate(kinds)

    @classmethod
    def fit(cls, given: Any, data: Observations, names: list[str]) -> Covariates:
        """Learn what covariates are, from those of the rows that are fitted."""
        with_errors, table = given_parts(given)
        columns: list[Column] = []
        errors: list[int] = []
        if with_errors:
            logs = _log_errors(data)
            usual = np.nanmean(logs, axis=0)
            logs = np.where(np.isnan(logs), usual, logs)
            errors = np.flatnonzero(np.ptp(logs, axis=0) > 1e-9).tolist()
            columns = [Column.fit(f"log error of {names[d]}", logs[:, d]) for d in errors]
            if not errors:
                raise ValueError(
                    f'Expected errors that differ by row with given="{NOISE}"; got the same for '
                    "all rows."
                )
        if table is not None:
            columns += [Column.fit(*each) for each in _by_name(table, len(data)).items()]
        return cls(tuple(columns), tuple(errors))

    def encode(self, given: Any, data: Observations) -> torch.Tensor:
        """Return covariates of rows as numbers ``(N, C)``."""
        with_errors, table = given_parts(given)
        own, parts = self.columns[len(self.errors) :], []
        if with_errors != bool(self.errors) or (table is None) != (not own):
            got = [f'"{NOISE}"'] * with_errors + ["a table"] * (table is not None)
            raise ValueError(self._expected(" and ".join(got)))
        if with_errors:
            for column, d in zip(self.columns, self.errors, strict=False):
                logs = _log_errors(data)[:, d]
                parts.append(column.encode(np.where(np.isnan(logs), column.location, logs)))
        if table is not None:
            parts += self._encoded(own, table, len(data))
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def encode_one(self, x: Any) -> Array:
        """Return one value of the covariates as numbers ``(1, C)``; logarithms of errors first."""
        if hasattr(x, "keys") and not hasattr(x, "columns"):  # a mapping, or a row of pandas
            x = dict(x)
        return np.concatenate(self._encoded(self.columns, x, 1), axis=1)

    def missing(self) -> str:
        """Say that rows have no covariates, and which they should have."""
        return (
            "Expected given, because the model was fitted with covariates "
            f"({', '.join(self.names)}); got none."
        )

    def _encoded(self, own: tuple[Column, ...], table: Any, n_rows: int) -> list[Array]:
        """Encode columns of a table, found by name, or by order where either has no names."""
        found, names = _by_name(table, n_rows), [column.name for column in own]
        if set(found) != set(names):
            named = not (_are_numbered(found) or _are_numbered(names))
            if named or len(found) != len(own):
                got = f"the columns {', '.join(found)}" if named else f"{len(found)} columns"
                raise ValueError(self._expected(got))
            found = dict(zip(names, found.values(), strict=True))
        return [column.encode(found[column.name]) for column in own]

    def _expected(self, got: str) -> str:
        return f"Expected given with the covariates of the fit, {', '.join(self.names)}; got {got}."

    def as_dict(self) -> dict[str, Any]:
        """Return what is saved."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Covariates:
        """Take what :meth:`as_dict` gave."""
        columns = [
            Column(**{**each, "categories": each["categories"] and tuple(each["categories"])})
            for each in saved["columns"]
        ]
        return cls(tuple(columns), tuple(saved["errors"]))


def check_rows(w: Any, given: Any, data: Observations) -> None:
    """Raise if a table of covariates has other rows than ``w``, or these cannot be moved."""
    table = given_parts(given)[1]
    if hasattr(table, "iloc"):
        refuse_other_rows(w, table, "given")
    if not data.noise.additive:
        raise ValueError(
            "Expected noise that is added to the true values with given; got values with a "
            "likelihood, such as counts. Leave out given."
        )


def given_parts(given: Any) -> tuple[bool, Any]:
    """Tell the word for errors from a table: ``"noise"``, a table, or ``("noise", table)``."""
    if isinstance(given, str):
        if given != NOISE:
            raise ValueError(f'Expected given as a table of covariates, or "noise"; got {given!r}.')
        return True, None
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given_parts(given[0])[0], given[1]
    return False, given


def _log_errors(data: Observations) -> Array:
    """Logarithms ``(N, M)`` of the rows' errors; NaN where a value is missing."""
    sd = data.noise.variance().sqrt().double().expand(len(data), -1).numpy()
    seen = np.ones(sd.shape, bool) if data.observed is None else data.observed.numpy()
    if (sd[seen] == 0).any():
        row = int(np.argwhere(seen & (sd == 0))[0][0])
        raise ValueError(
            f'Expected positive errors with given="{NOISE}", whose logarithm is taken; got 0 in '
            f"row {row}."
        )
    return np.where(seen, np.log(np.where(seen, sd, 1.0)), np.nan)


def _by_name(table: Any, n_rows: int) -> dict[str, NDArray[Any]]:
    """Columns of a table of covariates by their names, which are x0, x1, ... if it has none."""
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):
        table = table.to_frame()
    names = table if isinstance(table, dict) else getattr(table, "columns", None)
    if names is None:
        array = _cells(table)
        if array.ndim < 2:
            array = array.reshape((1, -1) if n_rows == 1 else (-1, 1))
        found = {f"x{j}": column for j, column in enumerate(array.T)}
    else:
        found = {str(name): np.atleast_1d(_cells(table[name])) for name in names}
    if not found:
        raise ValueError("Expected at least one covariate in given; got none.")
    for name, column in found.items():
        if column.shape != (n_rows,):
            raise ValueError(
                f"Expected given of shape (N,) or (N, C), with one row for each of {n_rows}; got "
                f"{name} of shape {column.shape}."
            )
    return found


def _are_numbered(names: Any) -> bool:
    return list(names) == [f"x{j}" for j in range(len(names))]


def _cells(values: Any) -> NDArray[Any]:
    """Return cells of a table as an array; those that are masked are None."""
    try:
        array = np.ma.asarray(values) if hasattr(values, "mask") else np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"Expected given as a rectangular table of covariates; got {type(values).__name__} of "
            'parts of several lengths. For errors with a table say ("noise", table).'
        ) from error
    if isinstance(array, np.ma.MaskedArray):
        array, masked = array.data, np.ma.getmaskarray(array)
        if masked.any():
            array = array.astype(object)
            array[masked] = None
    if array.dtype.kind == "c":
        raise ValueError("Expected covariates that are real numbers, or labels; got complex ones.")
    return array


def _are_numbers(values: NDArray[Any]) -> bool:
    """Whether cells are numbers: text among objects is not, even where it looks like some."""
    if values.dtype.kind == "O" and any(isinstance(each, str) for each in values):
        return False
    try:
        values[~_missing(values)].astype(np.float64)
    except (ValueError, TypeError):
        return False
    return True


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which cells are None, NaN, or what pandas has for these."""
    if values.dtype != object:
        return np.asarray(values != values)
    return np.array([not isinstance(c, str) and str(c) in MISSING for c in values], dtype=bool)


def _numbers(name: str, values: NDArray[Any]) -> Array:
    try:
        numbers, known = np.full(len(values), np.nan), ~_missing(values)
        numbers[known] = values[known].astype(np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"Expected numbers in {name} of given; got others.") from error
    _refuse(name, ~np.isfinite(numbers))
    refuse_extremes(f"{name} of given", numbers)
    return numbers


def _labels(name: str, values: NDArray[Any]) -> NDArray[np.str_]:
    _refuse(name, _missing(values))
    return values.astype(str)


def _refuse(name: str, missing: NDArray[np.bool_]) -> None:
    if missing.any():
        raise ValueError(
            f"Expected covariates that are known in every row; got none for {name} in row "
            f"{int(missing.argmax())} of given. Drop such rows, or put the column in w with its "
            "error, where values may be missing."
        )
