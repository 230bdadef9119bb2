"""Values of a chunk with their errors: the most common kind of measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deconflow._types import Array
from deconflow.tables.cells import Cells, Mask, Values
from deconflow.tables.columns import Columns
from deconflow.tables.conventions import one_sign
from deconflow.tables.how import MULTIPLYING
from deconflow.tables.option_syntax import Bar, Pairs

if TYPE_CHECKING:
    from deconflow.noise import FreeErrors, GaussianNoise, Noise

NO_COVARIANCE = "errors and correlations make no covariance"
Factors = dict[tuple[str, tuple[str, ...]], float]
"""By how much to multiply a column of errors, to bring it to the unit of these values."""


class ErrorBars(Values):
    """Values and their errors, some of them limits."""

    def __init__(
        self, cells: Cells, columns: Columns, factors: Factors, signs: dict[str, int]
    ) -> None:
        super().__init__(cells, columns)
        self.factors, self.signs = factors, signs
        self.lower, self.upper = np.ones_like(self.w), np.ones_like(self.w)
        for d, name in enumerate(columns.names):
            self._read(d, name)
        same = columns.how.replicates_by
        self.same = None if same is None else cells.labels(same)

    def law(self) -> tuple[Array, Noise | FreeErrors | None]:
        """Usable values and their noise; rows whose errors make none are marked first."""
        pairs = self._pairs(self.columns.correlations + self.columns.covariances)
        if pairs:
            noise = self._correlated_noise(self._covariance(~np.isnan(self.w), self.lower))
        elif self.cells.usable.any():
            lower, upper = map(self.cells.usable_of, (self.lower, self.upper))
            noise = independent_noise(lower, upper, self.columns.noise, self.columns.df)
        else:
            noise = None
        w = self.cells.usable_of(self.w)
        if noise is None or self.columns.noise != MULTIPLYING:
            return w, self._opened(noise)
        return self._multiplied(w, noise)

    def _multiplied(self, w: Array, noise: Noise) -> tuple[Array, Noise]:
        """Return values that errors multiply, and the law of their likelihood."""
        from torch import from_numpy

        from deconflow.noise import multiplicative

        for name, values in zip(self.columns.names, self.w.T, strict=True):
            wanted = f"values above 0 in column {name!r}, because errors multiply them"
            self.cells.refuse(values <= 0, values, wanted, "Correct it, or choose another noise=.")
        locations, law = multiplicative(noise).read(from_numpy(w))
        return locations.numpy(), law

    def _opened(self, noise: Noise | None) -> Noise | FreeErrors | None:
        """Leave open what of the errors the fit is to learn, or has learned."""
        from deconflow.noise import gaussian

        parts = self.columns.how.fit_errors
        if noise is None or not parts:
            return noise
        said = cast("GaussianNoise", noise)
        errors = {"sd": said.factor} if said.diagonal else {"covariance": said.covariance()}
        learned: dict[str, Any] = dict.fromkeys(parts, "fit")
        if self.same is not None:
            learned["replicates"] = self.same[self.cells.usable]
        return gaussian(**errors, **learned)

    def _read(self, d: int, name: str) -> None:
        """Read values and error bars of a column; NaN and one where it is missing."""
        w, limits = self.cells.numbers_and_limits(name, self.columns.how.flags(d))
        self.cells.mark(np.isinf(w), f"{name} is infinite")
        measured = ~np.isnan(w)
        lower, upper = self._bars(d, name, measured)
        known = np.isfinite(lower) & np.isfinite(upper)
        self.without_error += int((measured & ~known).sum())
        w[~known], limits[~known] = np.nan, 0
        self.w[:, d], self.limits[:, d] = w, limits
        self.lower[:, d] = np.where(measured & known, lower, 1.0)
        self.upper[:, d] = np.where(measured & known, upper, 1.0)

    def _bars(self, d: int, name: str, measured: Mask) -> tuple[Array, Array]:
        """Lower and upper errors of a column: the same array where they are the same."""
        for first, second, column in self.columns.covariances:
            if first == second == name:
                variance = self._at_least_zero(column, (name, name), measured)
                sd = np.sqrt(np.maximum(variance, 0))
                return sd, sd
        lower, upper = self.columns.errors[d]
        if lower == upper:
            bar = self._bar(upper, name, measured)
            return bar, bar
        return self._bar(lower, name, measured, signed=True), self._bar(upper, name, measured)

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
        values, law = self.cells.numbers(column), self.columns.law
        if signed:
            known = self.signs.get(column, 0)
            values, self.signs[column] = one_sign(
                values, measured, column, known, self.cells.first_row
            )
        positive = law != "gaussian"
        least = f"above 0, because the noise is {law}," if positive else "of at least 0"
        self.cells.refuse(
            measured & ((values <= 0) if positive else (values < 0)), values,
            f"errors {least} in column {column!r}",
            "Correct it, or leave the cell empty if the value is missing.",
        )  # fmt: skip
        return values * self.factors[column, names]

    def _pairs(self, pairs: Pairs) -> list[tuple[int, int, str]]:
        """Numbers of two different columns, with the column they share."""
        at = {name: d for d, name in enumerate(self.columns.names)}
        return [(at[a], at[b], column) for a, b, column in pairs if a != b]

    def _covariance(self, seen: Mask, sd: Array) -> Array:
        covariance = np.eye(sd.shape[1]) * sd[:, :, None] ** 2
        names = self.columns.names
        shared = [
            (i, j, self._correlation(column) * sd[:, i] * sd[:, j])
            for i, j, column in self._pairs(self.columns.correlations)
        ] + [
            (i, j, self.cells.numbers(column) * self.factors[column, (names[i], names[j])])
            for i, j, column in self._pairs(self.columns.covariances)
        ]
        for i, j, values in shared:
            both, known = seen[:, i] & seen[:, j], np.isfinite(values)
            self.cells.mark(both & ~known, f"no correlation of {names[i]} and {names[j]}")
            covariance[:, i, j] = covariance[:, j, i] = np.where(both & known, values, 0.0)
        return covariance

    def _correlation(self, column: str) -> Array:
        values = self.cells.numbers(column)
        wanted = f"correlations between -1 and 1 in column {column!r}"
        self.cells.refuse(np.abs(values) > 1, values, wanted, "Correct it.")
        return values

    def _correlated_noise(self, covariance: Array) -> Noise | None:
        """Let the noise check covariances; only where it refuses some, find and mark them all."""
        from deconflow.noise import gaussian

        usable = self.cells.usable
        if not usable.any():
            return None
        try:
            return gaussian(covariance=covariance[usable])
        except ValueError:
            bad = usable & _indefinite(covariance)
            if not bad.any():
                raise
            self.cells.mark(bad, NO_COVARIANCE)
            return self._correlated_noise(covariance)


def independent_noise(lower: Array, upper: Array, kind: str = "gaussian", df: float = 3.0) -> Noise:
    """Make noise of a law by its name, from the error bars of values that are independent."""
    from deconflow import noise as laws

    same = upper is lower or np.array_equal(lower, upper, equal_nan=True)
    if kind == "split-normal" or not same:
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
