"""Parquet, by batches of its row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deconflow.tables.source import Sink, Source


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        try:
            with pq.ParquetFile(path) as file:
                self.schema = file.schema_arrow.remove_metadata()
                self.n_rows = file.metadata.num_rows
        except pa.ArrowInvalid as error:
            raise ValueError(f"Expected a Parquet file at {path}; got: {error}") from error

    def chunks(self, size: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Walk through the rows."""
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            wanted = None if columns is None else list(columns)
            for batch in file.iter_batches(size, columns=wanted, use_threads=False):
                yield pa.Table.from_batches([batch])


class ParquetSink(Sink):
    """A Parquet file that is being written."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema)

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()

    def discard(self) -> None:
        """Let go of the file."""
        self._writer.close()
