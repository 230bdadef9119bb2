"""Tables that are too large for memory: when they are, and a pass that tells what is in them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from deconflow import ranks
from deconflow.certificate import Certificate
from deconflow.program.found import Found
from deconflow.program.messages import note
from deconflow.program.methods import METHODS, fits_streams
from deconflow.program.reading import is_too_large, to_keep
from deconflow.program.selected import Selected
from deconflow.streams import Overview, RowStream
from deconflow.tables import Columns, Measurements, RowReader, refuse_empty_columns

if TYPE_CHECKING:
    import pyarrow as pa

CHECKED_ROWS = 100_000
"""Rows that the certificate looks at, drawn by chance from all."""


def is_beyond_memory(reader: RowReader) -> bool:
    """Whether rows are fitted in passes: too many for memory, or shared out among processes."""
    return ranks.world() > 1 or is_too_large(reader)


class InPasses:
    """Rows that a fit passes over, chunk by chunk.

    Parameters
    ----------
    reader
        What reads them.
    method
        Name of the method that is to fit them.
    seen
        What was said of the rows that were seen.
    """

    def __init__(self, reader: RowReader, method: str, seen: Selected) -> None:
        _refuse(reader, method, selected=not seen.nothing)
        self._reader, self._stream = reader, ToldStream(reader)

    @property
    def columns(self) -> Columns:
        """What the model is to know of the table."""
        return to_keep(self._reader.columns)

    @property
    def found(self) -> Found:
        """What was found, after the fit."""
        return self._stream.found

    def fit(self, model: Any) -> None:
        """Fit a model to all rows."""
        model.fit(self._stream)

    def certify(self, model: Any) -> Certificate:
        """Check a fitted model by some rows, drawn by chance; the certificate says how many."""
        sample = self._stream.seen.sample
        assert sample is not None
        rows = sample.rows[slice(CHECKED_ROWS)]
        found = model.certify(rows.w, sample_weight=rows.weights, **rows.arguments)
        return replace(found, fitted_of=self.found.used)


def _refuse(reader: RowReader, method: str, *, selected: bool) -> None:
    """Raise if a method, or what was said of the rows, needs all of them in memory."""
    rows = "rows" if reader.source.n_rows is None else f"{reader.source.n_rows} rows"
    why = f"{rows} of {reader.source.name} beyond memory, or several processes"
    how = reader.columns.how
    said = {
        "--groups": reader.groups, "--given": reader.given, "--select": selected or None,
        "--id": how.id, "--fit-errors": how.fit_errors or None,
    }  # fmt: skip
    for option, value in said.items():
        if value is not None:
            raise ValueError(f"Expected no {option} with {why}; got it. Fit a sample of the rows.")
    if not fits_streams(method):
        able = " or ".join(name for name in METHODS if fits_streams(name))
        raise ValueError(
            f"Expected --method {able} with {why}; got --method {method}. Or fit a sample of the "
            "rows."
        )


class ToldStream(RowStream):
    """Rows in chunks; the first pass over them tells what it has found.

    Attributes
    ----------
    found : Found
        What was found in all rows of all processes.
    seen : Overview
        The same as the fit has it, with a sample of the rows.
    """

    found: Found
    seen: Overview
    _counted: Found | None = None

    def overview(self, *args: Any, **options: Any) -> Overview:
        """Pass over all rows once."""
        self.seen = super().overview(*args, **options)
        first, *others = (part for part in ranks.gathered(self._counted) if part is not None)
        self.found = reduce(lambda one, other: one.merged(other), others, first)
        columns = self.reader.columns
        refuse_empty_columns(columns.names, self.found.measured, self.found.n_rows)
        assert self.seen.sample is not None
        self.found.take_errors(self.seen.sample)
        note(*self.found.in_words(columns), *self.found.of_weights(self.reader.weights))
        return self.seen

    def _rows(self, piece: str, first: int, table: pa.Table) -> Measurements:
        rows = super()._rows(piece, first, table)
        if not hasattr(self, "seen"):
            found = Found.of(rows)
            self._counted = found if self._counted is None else self._counted.merged(found)
        return rows
