"""Opening and writing a table, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deconflow.files import replacing
from deconflow.tables.formats import format_of, need, split_part
from deconflow.tables.source import Sink, Source, refuse_twice

if TYPE_CHECKING:
    import pyarrow as pa


def open_table(path: str | Path, *, typed: bool = True) -> Source:
    """Open a CSV, Parquet, FITS, ECSV or VOTable file for reading.

    Parameters
    ----------
    path
        The file; its ending says the format. ``file.fits[NAME]`` or ``file.fits[2]`` is one of
        several tables in a FITS file.
    typed
        Whether the columns of a text file shall get types, by one more pass through it. False
        hands its cells on to another text file as they are written.
    """
    path, part = split_part(path)
    kind = format_of(path)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"Expected a table at {path}; got {got}.")
    need("pyarrow")
    source = _open(path, kind, part, typed)
    refuse_twice(source.names, source.name)
    return source


@contextmanager
def writing(path: str | Path, schema: pa.Schema) -> Iterator[Sink]:
    """Write a table in the format of ``path``'s ending; it is there when it is whole."""
    kind = format_of(path)
    need("pyarrow")
    with replacing(path) as part:
        sink = _sink(part, kind, schema)
        try:
            yield sink
            sink.close()
        except BaseException:
            sink.discard()
            raise


def _open(path: Path, kind: str, part: str | None, typed: bool) -> Source:
    if kind in ("csv", "tsv"):
        from deconflow.tables.text import TextSource

        source = TextSource(path, "," if kind == "csv" else "\t")
        return source.typed() if typed else source
    if kind == "parquet":
        from deconflow.tables.parquet import ParquetSource

        return ParquetSource(path)
    if kind == "fits":
        from deconflow.tables.fits import FitsSource

        return FitsSource(path, part)
    from deconflow.tables.whole import WholeSource

    return WholeSource(path, kind)


def _sink(path: Path, kind: str, schema: pa.Schema) -> Sink:
    if kind in ("csv", "tsv"):
        from deconflow.tables.text import TextSink

        return TextSink(path, schema, "," if kind == "csv" else "\t")
    if kind == "parquet":
        from deconflow.tables.parquet import ParquetSink

        return ParquetSink(path, schema)
    if kind == "fits":
        from deconflow.tables.fits import FitsSink

        return FitsSink(path, schema)
    from deconflow.tables.whole import WholeSink

    return WholeSink(path, kind, schema)
