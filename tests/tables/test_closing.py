"""What reads text is closed on every way out, and its threads do not need the interpreter."""

import gzip

import pyarrow as pa
import pytest

from deconflow.tables import open_table
from deconflow.tables.packed import Content, TableError

HEADER = b"x,x_err\n"
ROWS = HEADER + b"1,2\n" * 5
CUT = HEADER + b"1,2\n" * 300_000 + b"3\n"
"""A megabyte and more, so that the bad row is in a block that is read later."""


@pytest.fixture
def streams(monkeypatch):
    """Everything that is opened for the threads of pyarrow."""
    opened = []

    def stream(content):
        opened.append(stream_of(content))
        return opened[-1]

    stream_of = Content.stream
    monkeypatch.setattr(Content, "stream", stream)
    return opened


def exhausted(path):
    list(open_table(path).chunks(2))


def abandoned(path):
    chunks = open_table(path).chunks(2)
    next(chunks)
    chunks.close()


def refused(path):
    with pytest.raises(TableError, match="as many cells"):
        open_table(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("content", "way_out"), [(HEADER, exhausted), (ROWS, abandoned), (CUT, refused)]
)
def test_what_reads_is_closed(tmp_path, streams, content, way_out, pack):
    path = tmp_path / "rows.csv"
    path.write_bytes(pack(content))
    way_out(path)
    assert streams
    for stream in streams:
        assert stream.closed
        assert not isinstance(stream, pa.PythonFile)
