"""Packed tables and pipes."""

import gzip
import io
import sys

import pyarrow as pa
import pytest
from tables.catalogue import catalogue
from tables.test_formats import read, write

from deconflow.tables import open_table


@pytest.fixture
def pipe(monkeypatch):
    """A way to put bytes onto the standard input."""

    def fill(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return fill


def test_the_bytes_say_whether_a_file_is_packed(tmp_path):
    """Browsers unpack what they load, and keep its name; others forget the ending."""
    (tmp_path / "loaded.csv.gz").write_text("x,x_err\n1,2\n")
    (tmp_path / "packed.csv").write_bytes(gzip.compress(b"x,x_err\n1,2\n"))
    for name in ("loaded.csv.gz", "packed.csv"):
        assert read(tmp_path / name).to_pylist() == [{"x": 1, "x_err": 2}]


def test_parts_that_were_packed_one_after_the_other(tmp_path):
    parts = [gzip.compress(part) for part in (b"x,x_err\n1,2\n", b"3,4\n")]
    (tmp_path / "t.csv.gz").write_bytes(b"".join(parts))
    assert read(tmp_path / "t.csv.gz")["x"].to_pylist() == [1, 3]


@pytest.mark.parametrize("name", ["t.csv.xz", "t.zip", "t.tar.gz", "t.tgz"])
def test_other_packings(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"which is packed. Unpack it"):
        open_table(tmp_path / name)


@pytest.mark.parametrize(
    "ending", ["csv", "tsv", "parquet", "fits", "ecsv", "vot", "csv.gz", "fits.gz", "vot.bz2"]
)
def test_the_format_of_a_pipe_is_told_by_its_bytes(tmp_path, pipe, ending):
    table = catalogue()
    write(tmp_path / f"t.{ending}", table)
    pipe((tmp_path / f"t.{ending}").read_bytes())
    again = pa.concat_tables(open_table("-").chunks(60))
    assert again.column_names == table.column_names
    assert again["x"].equals(table["x"])


def test_pipes_of_plain_text(pipe):
    for text in ("x x_err\n1 2\n", "# made by hand\nx;x_err\n1;2\n", "x\tx_err\n1\t2\n"):
        pipe(text.encode())
        assert pa.concat_tables(open_table("-").chunks(9)).to_pylist() == [{"x": 1, "x_err": 2}]
    pipe(b"x\n1\n")
    assert open_table("-").names == ["x"]
    pipe(b"")
    with pytest.raises(ValueError, match="in standard input; got: Empty CSV file"):
        open_table("-")


TEXTS = {
    "a header": "x   x_err\n1.5   0.5\n2.5 -\n",
    "a header as a comment": "# x x_err\n1.5 0.5\n2.5 nan\n",
    "commas": "x,x_err\n1.5,0.5\n2.5,\n",
    "tabs": "x\tx_err\n1.5\t0.5\n2.5\t\n",
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("ending", ["dat", "txt"])
def test_text_with_spaces(tmp_path, case, ending):
    from deconflow.tables import RowReader, find_columns, read_rows

    (tmp_path / f"t.{ending}").write_text(TEXTS[case] + "3.5 0.5\n".replace(" ", TEXTS[case][1]))
    source = open_table(tmp_path / f"t.{ending}")
    rows = read_rows(RowReader(find_columns(source.names, ["x"]), source))
    assert rows.w.tolist() == [[1.5], [3.5]]
    with pytest.raises(ValueError, match=r"Expected an output that ends in .csv, .* got 'out.dat'"):
        write(tmp_path / "out.dat", catalogue())
