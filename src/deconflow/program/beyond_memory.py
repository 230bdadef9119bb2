"""Tables that are too large for memory, which are fitted in passes."""

from dataclasses import replace
from functools import reduce
from typing import Any, Self

from deconflow import ranks
from deconflow._types import ArrowTable
from deconflow.program.messages import note
from deconflow.program.methods import METHODS, takes
from deconflow.program.reading import Found
from deconflow.streams import Overview, RowStream
from deconflow.tables import Measurements, RowReader, refuse_empty_columns

#: Rows that the certificate looks at, drawn by chance from all.
CHECKED_ROWS = 100_000


class CountedStream(RowStream):
    """Rows in chunks; the first pass over them prints what it has found.

    Attributes
    ----------
    found : Found
        Counts of all rows of all processes.
    seen : Overview
        What the fit knows of them, with a sample of the rows.
    """

    found: Found
    seen: Overview
    _counted: Found | None = None

    @classmethod
    def of(cls, reader: RowReader, method: str, *, selected: bool) -> Self:
        """Return the rows of a reader, unless all of them are needed in memory."""
        rows = "rows" if reader.source.n_rows is None else f"{reader.source.n_rows} rows"
        why = f"{rows} of {reader.source.name} beyond memory, or several processes"
        columns = reader.columns
        facts = {
            "--groups": reader.groups, "--given": reader.given, "--select": selected,
            "--id": columns.id, "--fit-errors": columns.fit_errors,
        }  # fmt: skip
        for option, value in facts.items():
            if value:
                raise ValueError(
                    f"Expected no {option} with {why}; got it. Fit a sample of the rows."
                )
        if not takes(method, "beyond memory"):
            able = " or ".join(name for name in METHODS if takes(name, "beyond memory"))
            raise ValueError(
                f"Expected --method {able} with {why}; got --method {method}. Or fit a sample of "
                "the rows."
            )
        return cls(reader)

    def overview(self, *args: Any, **options: Any) -> Overview:
        """Pass over all rows once."""
        self.seen = super().overview(*args, **options)
        parts = [part for part in ranks.gathered(self._counted) if part is not None]
        self.found, columns = reduce(Found.merged, parts), self.reader.columns
        sums = self.found.sums
        refuse_empty_columns(columns.names, sums["measured"], sums["rows"])
        note(*self.found.in_words(columns, self.reader.weights))
        return self.seen

    def _rows(self, piece: str, first: int, table: ArrowTable) -> Measurements:
        rows = super()._rows(piece, first, table)
        if not hasattr(self, "seen"):
            found = Found.of(rows)
            self._counted = found if self._counted is None else self._counted.merged(found)
        return rows

    def certify(self, model: Any) -> Any:
        """Check a fit by a sample of its rows."""
        certificate = self.seen.sample[:CHECKED_ROWS].ask(model.certify)
        return replace(certificate, fitted_of=int(self.found.sums["used"]))
