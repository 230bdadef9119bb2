"""Draws of rows' posteriors, checked once, in chunks of rows of about the same number of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.checks import as_floats, refuse_extremes

#: Largest number of coordinates of draws in a chunk.
NUMBERS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Draws:
    """Weighted draws of each row.

    Attributes
    ----------
    values : sequence of array
        ``(K_i, D)`` for each row.
    log_prior : sequence of array or None
        ``(K_i,)`` for each row; None for a flat prior.
    """

    values: Sequence[Array]
    log_prior: Sequence[Array] | None

    @property
    def dim(self) -> int:
        """Number of values of a draw."""
        return self.values[0].shape[1]

    @property
    def counts(self) -> IntArray:
        """Number of draws of each row."""
        return np.array([len(row) for row in self.values])

    def chunks(self, rows: IntArray | None = None) -> Iterator[tuple[IntArray, Array, Array]]:
        """Walk through (some) rows: their numbers, draws ``(n, K, D)``, weights ``(n, K)``.

        Weights sum to one; where a row has fewer draws than others they are zero.
        """
        counts = self.counts
        rows = np.arange(len(counts)) if rows is None else rows
        rows = rows[np.argsort(counts[rows], kind="stable")]
        while len(rows):
            sizes = np.arange(1, len(rows) + 1) * counts[rows] * self.dim
            n = max(1, int(np.searchsorted(sizes, NUMBERS_AT_ONCE)))
            yield rows[:n], *self._padded(rows[:n], int(counts[rows[n - 1]]))
            rows = rows[n:]

    def _padded(self, rows: IntArray, width: int) -> tuple[Array, Array]:
        x = np.empty((len(rows), width, self.dim))
        log_weight = np.full((len(rows), width), -np.inf)
        for i, row in enumerate(rows):
            draws = self.values[row]
            x[i, : len(draws)], x[i, len(draws) :] = draws, draws[0]
            log_weight[i, : len(draws)] = 0.0 if self.log_prior is None else -self.log_prior[row]
        weight = np.exp(log_weight - log_weight.max(1, keepdims=True))
        return x, weight / weight.sum(1, keepdims=True)


def checked_draws(draws: Any, log_prior: Any) -> Draws:
    """Check draws ``(N, K, D)``, or a sequence of ``(K_i, D)``, and the prior at them."""
    values = _rows(draws, "draws", 2)
    if len(values) == 0:
        raise ValueError("Expected draws of one row or more; got none.")
    dim = values[0].shape[1]
    for i, row in enumerate(values):
        if row.shape[1] != dim or dim == 0:
            raise ValueError(
                f"Expected draws of {dim or 'one or more'} columns in every row, as in row 0; got "
                f"{row.shape[1]} in row {i}."
            )
        if not np.isfinite(row).all():
            raise ValueError(f"Expected finite draws; got NaN or inf in row {i}.")
        refuse_extremes(f"draws of row {i}", row)
        if len(row) < dim + 2:
            raise ValueError(
                f"Expected at least {dim + 2} draws in every row, for a covariance of {dim} "
                f"column{'s' if dim > 1 else ''}; got {len(row)} in row {i}."
            )
    return Draws(values, None if log_prior is None else _checked_prior(log_prior, values))


def _rows(values: Any, name: str, ndim: int) -> Sequence[Array]:
    """An array, or a sequence of arrays for each row, as a sequence of arrays."""
    if not isinstance(values, list | tuple):
        array = as_floats(values, name)
        if array.ndim != ndim + 1:
            shape = "(N, K, D)" if ndim == 2 else "(N, K)"
            hint = " For one column pass draws[:, :, None]." if (ndim, array.ndim) == (2, 2) else ""
            raise ValueError(
                f"Expected {name} of shape {shape}, or a list of N arrays; got {array.shape}.{hint}"
            )
        return [*array]
    _refuse_other_columns(values, name)
    rows = [as_floats(row, f"{name} of row {i}") for i, row in enumerate(values)]
    for i, row in enumerate(rows):
        if row.ndim != ndim:
            shape = "(K, D)" if ndim == 2 else "(K,)"
            raise ValueError(
                f"Expected {name} of each row of shape {shape}; got {row.shape} in row {i}."
            )
    return rows


def _refuse_other_columns(values: Sequence[Any], name: str) -> None:
    """Raise for tables of rows whose columns are not the same, in the same order."""
    columns = [[*map(str, getattr(row, "columns", []))] for row in values]
    for i, names in enumerate(columns):
        if names and names != columns[0]:
            raise ValueError(
                f"Expected {name} of every row with the columns {', '.join(columns[0]) or 'none'}, "
                f"as in row 0; got {', '.join(names)} in row {i}."
            )


def _checked_prior(
    log_prior: Any | Callable[[Array], Array], values: Sequence[Array]
) -> Sequence[Array]:
    """Check that the prior is a positive number at every draw."""
    if callable(log_prior):
        log_prior = [as_floats(log_prior(row), "log_prior") for row in values]
    prior = _rows(log_prior, "log_prior", 1)
    if len(prior) != len(values):
        raise ValueError(
            f"Expected log_prior of {len(values)} rows, as draws have; got {len(prior)}."
        )
    for i, (row, draws) in enumerate(zip(prior, values, strict=True)):
        if len(row) != len(draws):
            raise ValueError(
                f"Expected log_prior of {len(draws)} draws in row {i}; got {len(row)}."
            )
        if (row == -np.inf).any():
            raise ValueError(
                f"Expected a prior that is positive at every draw; got log_prior -inf in row {i}: "
                "a posterior has no draws where its prior vanishes."
            )
        if not np.isfinite(row).all():
            raise ValueError(f"Expected finite values of log_prior; got NaN or inf in row {i}.")
    return prior
