"""ECSV and VOTable, which astropy reads and writes whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deconflow.tables.arrays import as_arrow, as_masked, field_of
from deconflow.tables.formats import need
from deconflow.tables.source import Sink, Source, slices

FORMATS = {"ecsv": "ascii.ecsv", "votable": "votable"}
OPTIONS = {"votable": {"use_names_over_ids": True}}
"""Names as people gave them, not as XML wants them."""


class WholeSource(Source):
    """A table that is read at once."""

    def __init__(self, path: Path, kind: str) -> None:
        self.name = path.name
        self._table = as_pyarrow(_read(path, kind))
        self.schema = self._table.schema
        self.n_rows = self._table.num_rows

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows."""
        table = self._table if columns is None else self._table.select(list(columns))
        return slices(iter([table]), size)


class WholeSink(Sink):
    """A table that is kept in memory until it is written at once."""

    def __init__(self, path: Path, kind: str, schema: pa.Schema) -> None:
        self._path, self._kind, self._schema = path, kind, schema
        self._parts: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._parts.append(table.cast(self._schema))

    def close(self) -> None:
        """Write everything."""
        whole = pa.concat_tables(self._parts) if self._parts else self._schema.empty_table()
        table = as_astropy(whole)
        with warnings.catch_warnings(action="ignore"):
            table.write(self._path, format=FORMATS[self._kind], overwrite=True)

    def discard(self) -> None:
        """Forget the rows."""
        self._parts.clear()


def as_pyarrow(table: Any) -> pa.Table:
    """Turn an astropy table into one of pyarrow; units become metadata of the fields."""
    arrays = []
    for name in table.colnames:
        column = table[name]
        values = np.asarray(column.filled() if hasattr(column, "filled") else column)
        mask = getattr(column, "mask", None)
        arrays.append(as_arrow(values, None if mask is None else np.asarray(mask)))
    fields = [
        field_of(name, array.type, str(table[name].unit) if table[name].unit else None)
        for name, array in zip(table.colnames, arrays, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def as_astropy(table: pa.Table) -> Any:
    """Turn a pyarrow table into one of astropy."""
    result = need("astropy.table").Table()
    for field in table.schema:
        result[field.name] = as_masked(table[field.name])
        unit = (field.metadata or {}).get(b"unit")
        if unit:
            result[field.name].unit = unit.decode()
    return result


def _read(path: Path, kind: str) -> Any:
    table_type = need("astropy.table").Table
    try:
        with warnings.catch_warnings(action="ignore"):
            return table_type.read(path, format=FORMATS[kind], **OPTIONS.get(kind, {}))
    except (ValueError, IndexError, TypeError, KeyError, StopIteration) as error:
        raise ValueError(f"Expected a {kind} table at {path}; got: {error}") from error
