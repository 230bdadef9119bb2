"""Tables with a row for each draw, read as tables with a row for each object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from deconflow.tables.columns import Columns, check_available
from deconflow.tables.io import Source, need, row_name, slices

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 100_000


def gathered(source: Source, columns: Columns) -> Source:
    """Return a table with a row for each object, whatever the rows of this one are."""
    how = columns.how
    if how.id is None:
        return source
    lists = [*columns.names, *([how.log_prior] if how.log_prior else [])]
    return Gathered(source, how.id, lists)


class Gathered(Source):
    """The draws of each object in one row, in lists; objects are in the order they first appear.

    All of ``columns`` is held in memory, since the draws of an object may be anywhere.

    Parameters
    ----------
    source
        A table with a row for each draw.
    id
        Column that says whose draw it is.
    columns
        What becomes lists.
    """

    def __init__(self, source: Source, id: str, columns: Sequence[str]) -> None:
        pa = need("pyarrow")
        check_available(source.names, [id, *columns], source.name)
        self.name, self.id = source.name, id
        table = self._gathered(source, list(columns))
        fields = [source.schema.field(id).with_type(table[id].type)]
        for name in columns:
            fields.append(source.schema.field(name).with_type(table[name].type))
        self.schema = pa.schema(fields)
        self.table, self.n_rows = table.cast(self.schema), table.num_rows

    @property
    def kept(self) -> list[str]:
        """Columns that go along into a table with a row for each object: not the draws."""
        return [self.id]

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        return slices(self.table.select(list(columns)), size)

    def _gathered(self, source: Source, columns: list[str]) -> pa.Table:
        from deconflow.tables.arrow_io import as_labels, as_numbers

        pa = need("pyarrow")
        chunks = list(source.chunks(ROWS_AT_ONCE, [self.id, *columns]))
        if not chunks:
            raise ValueError(f"Expected one or more rows in {source.name}; got none.")
        table = pa.concat_tables(chunks)
        labels = as_labels(table[self.id], self.id, 0)
        missing = np.array([label is None for label in labels])
        if missing.any():
            raise ValueError(
                f"Expected whose draw it is in column {self.id!r} of every row; got none in "
                f"{row_name(int(missing.argmax()))}. Fill it in, or leave the row out."
            )
        places = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        code = np.array([places[label] for label in labels])
        order = np.argsort(code, kind="stable")
        ends = np.searchsorted(code[order], np.arange(len(places) + 1)).astype(np.int64)
        lists = [
            pa.LargeListArray.from_arrays(ends, as_numbers(table[name], name, 0)[order])
            for name in columns
        ]
        return pa.table([pa.array(list(places)), *lists], names=[self.id, *columns])
