"""Rows of a chunk that are not values with errors: posterior samples, replicates, counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from deconflow._types import Array
from deconflow.tables.cells import Cells, Mask, Values
from deconflow.tables.columns import Columns
from deconflow.tables.error_bars import Factors

if TYPE_CHECKING:
    from deconflow.noise import Noise


class Draws(Values):
    """Posterior samples: cells with lists, as many draws in each column of a row."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        super().__init__(cells, columns)
        from deconflow.tables.arrow_io import as_draws

        prior = columns.how.log_prior
        read = [*columns.names, *([prior] if prior else [])]
        lists = [as_draws(cells.table[name], name) for name in read]
        for name, each in zip(read, lists, strict=True):
            for row, (draws, wanted) in enumerate(zip(each, lists[0], strict=True)):
                if len(draws) != len(wanted):
                    raise ValueError(
                        f"Expected as many draws in column {name!r} as in {read[0]!r}; got "
                        f"{len(draws)} and {len(wanted)} in {cells.row(row)}. Correct it."
                    )
        rows = list(zip(*lists, strict=True))
        self.draws = [np.stack(row[: len(columns.names)], -1) for row in rows]
        self.log_prior = [row[-1] for row in rows] if prior else None
        for row, draws in enumerate(self.draws):
            cells.reasons.set(row, self._why_not(draws))
        usable = cells.usable
        self.w[usable] = 0.0
        for row, values in enumerate(self.log_prior or ()):
            if usable[row] and not np.isfinite(values).all():
                raise ValueError(
                    f"Expected a finite log prior of every draw in column {prior!r}; got another "
                    f"in {cells.row(row)}. Correct it, or leave that draw out."
                )

    def law(self) -> tuple[Array, Noise | None]:
        """Usable values and their noise."""
        from deconflow import noise as laws

        usable = np.flatnonzero(self.cells.usable)
        if not len(usable):
            return self.w[:0], None
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


class Replicates(Values):
    """Repeated measurements of each row, from which the errors follow."""

    def __init__(self, cells: Cells, columns: Columns, factors: Factors) -> None:
        super().__init__(cells, columns)
        how = columns.how
        most = max(map(len, how.replicates))
        self.values = np.full((len(cells), most, len(columns.names)), np.nan)
        for d, (name, repeated) in enumerate(zip(columns.names, how.replicates, strict=True)):
            for r, column in enumerate(repeated):
                values = cells.numbers(column) * factors[column, (name,)]
                cells.mark(np.isinf(values), f"{column} is infinite")
                self.values[:, r, d] = values
        seen = ~np.isnan(self.values)
        self.w[seen.any(1)] = 0.0

    def law(self) -> tuple[Array, Noise | None]:
        """Usable means and their noise."""
        from deconflow import noise as laws

        values, how = self.values[self.cells.usable], self.columns.how
        if not len(values):
            return self.w[:0], None
        if not how.covariance:
            found = laws.replicate_covariance(values)
            how = replace(how, covariance=tuple(map(tuple, found.tolist())))
            self.columns = replace(self.columns, how=how)
        return laws.from_replicates(values, covariance=how.covariance)


class Counts(Values):
    """Counts, whose law follows from what is counted: of a rate, or of a probability."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        super().__init__(cells, columns)
        for d, name in enumerate(columns.names):
            self.w[:, d] = self._counts(name)
        beside = columns.how.beside
        self.beside = None if beside is None else self._beside(beside)
        if columns.noise == "binomial" and self.beside is not None:
            wanted = f"no more counts than trials, which are in column {beside!r}"
            most = np.fmax.reduce(self.w, axis=1)
            cells.refuse(most > self.beside, most, wanted, "Correct the count or the trials.")

    def law(self) -> tuple[Array, Noise | None]:
        """Usable rates or probabilities, near what the counts say, and their law."""
        from torch import from_numpy

        from deconflow import noise as laws

        usable = self.cells.usable
        if not usable.any():
            return self.w[:0], None
        beside = 1.0 if self.beside is None else self.beside[usable][:, None]
        reading = (laws.poisson if self.columns.noise == "poisson" else laws.binomial)(beside)
        w, noise = reading.read(from_numpy(self.w[usable]))
        return w.numpy(), noise

    def _counts(self, name: str) -> Array:
        values = self.cells.numbers(name)
        wanted = f"counts in column {name!r}, whole numbers of at least 0"
        self.cells.refuse(~_whole(values), values, wanted, "Correct it, or choose another noise=.")
        self.cells.mark(np.isinf(values), f"{name} is infinite")
        return values

    def _beside(self, name: str) -> Array:
        values = self.cells.numbers(name)
        whole = self.columns.noise == "binomial"
        bad = (values <= 0) | (~_whole(values) if whole else False)
        wanted = f"{'whole ' if whole else ''}numbers above 0 in column {name!r}"
        self.cells.refuse(bad, values, wanted, "Correct it, or leave the cell empty.")
        self.cells.mark(~np.isfinite(values), f"no value in {name}")
        return values


def _whole(values: Array) -> Mask:
    """Whether numbers are counts; missing and infinite ones may be."""
    return ~((values < 0) | np.isfinite(values) & (np.floor(values) != values))
