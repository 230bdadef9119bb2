"""Every format gives back what was written, in the order of rows and columns."""

import gzip
import io
import sys

import numpy as np
import pyarrow as pa
import pytest
from astropy.table import Table
from tables.catalogue import N, catalogue

from deconflow.tables import RowReader, error_columns, find_columns, open_table, read_rows, writing
from deconflow.tables.formats import WRITTEN


def write(path, table, size=70):
    with writing(path, table.schema) as append:
        for start in range(0, len(table), size):
            append(table.slice(start, size))


def read(path, size=60, columns=None, **options):
    return pa.concat_tables(open_table(path, **options).chunks(size, columns))


@pytest.mark.parametrize("ending", [*WRITTEN, ".csv.gz", ".tsv.bz2", ".fits.gz"])
def test_round_trip(tmp_path, ending):
    table = catalogue()
    write(tmp_path / f"t{ending}", table)
    again = read(tmp_path / f"t{ending}")
    assert again.column_names == table.column_names
    for name in table.column_names:
        cells, wanted = again[name].to_pylist(), table[name].to_pylist()
        if name == "name":
            cells, wanted = ([cell or "" for cell in each] for each in (cells, wanted))
        assert cells == wanted, name
    assert list(tmp_path.iterdir()) == [tmp_path / f"t{ending}"]  # nothing is left beside it


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".fits"])
def test_chunks_are_bounded_and_columns_can_be_chosen(tmp_path, ending):
    write(tmp_path / f"t{ending}", catalogue())
    chunks = list(open_table(tmp_path / f"t{ending}").chunks(40, ["y", "x"]))
    assert max(len(chunk) for chunk in chunks) == 40
    assert sum(len(chunk) for chunk in chunks) == N
    assert {tuple(chunk.column_names) for chunk in chunks} == {("y", "x")}
    write(tmp_path / f"t{ending}", catalogue().slice(0, 0))
    assert list(open_table(tmp_path / f"t{ending}").chunks(10)) == []


def test_text_goes_through_as_it_is_written(tmp_path):
    lines = 'id,x,note\n007,1.10,\n008,,"a,b"\n009,1e3,c\n'
    (tmp_path / "in.csv").write_text("# from somewhere\n" + lines)
    source = open_table(tmp_path / "in.csv", typed=False)
    with writing(tmp_path / "out.csv", source.schema) as append:
        for chunk in source.chunks(2):
            append(chunk)
    assert (tmp_path / "out.csv").read_text() == lines


def test_types_of_text_hold_for_all_rows(tmp_path):
    """A column that looks whole in the first chunk may not be so in the last; 007 is a name."""
    rows = "\n".join(f"{i},{i},{i % 2 == 0},{i}" for i in range(200))
    (tmp_path / "t.csv").write_text(f"a,b,c,d\n{rows}\n1.5,word,true,007\nNA,,,\n")
    schema = open_table(tmp_path / "t.csv").schema
    assert schema.types == [pa.float64(), pa.string(), pa.bool_(), pa.string()]


TEXTS = {
    "spaces.csv": "x, x_err\r\n1.5, 0.5\r\n",
    "semicolons.csv": "x;x_err\n1.5;0.5\n",
    "mark.csv": "\ufeffx,x_err\n1.5,0.5\n",
    "tabs.tsv": "x\tx_err\n1.5\t0.5\n",
    "quotes.csv": '"x","x_err"\n"1.5","0.5"\n',
    "comments.csv": "# made by hand\nx,x_err\n1.5,0.5\n",
    "spaces.dat": "x   x_err\n1.5   0.5\n",
    "header.txt": "# x x_err\n1.5 0.5\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_as_people_write_it(tmp_path, name):
    """A byte order mark, spaces beside names, semicolons, and ends of lines from elsewhere."""
    (tmp_path / name).write_text(TEXTS[name], newline="")
    assert read(tmp_path / name).to_pylist() == [{"x": 1.5, "x_err": 0.5}]
    assert read(tmp_path / name, columns=["x_err"]).to_pylist() == [{"x_err": 0.5}]


def test_missing_cells_of_text_with_spaces(tmp_path):
    (tmp_path / "t.dat").write_text("x x_err\n1.5 0.5\n2.5 -\n3.5 0.5\n")
    source = open_table(tmp_path / "t.dat")
    found = read_rows(RowReader(find_columns(source, ["x"]), source))
    assert found.rows.w.tolist() == [[1.5], [3.5]]
    with pytest.raises(ValueError, match=r"Expected an output that ends in .csv, .* got 'out.dat'"):
        write(tmp_path / "out.dat", catalogue())


def test_pipes(monkeypatch):
    def fill(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    fill(b"# made by hand\nx;x_err\n1;2\n")
    assert pa.concat_tables(open_table("-").chunks(9)).to_pylist() == [{"x": 1, "x_err": 2}]
    fill(b"")
    with pytest.raises(ValueError, match=r"Expected input.csv to hold a table"):
        open_table("-")


@pytest.mark.parametrize("ending", [".fits", ".ecsv", ".parquet"])
def test_units_nulls_and_arrays(tmp_path, ending):
    table = catalogue()
    field = pa.field("x", pa.float64(), metadata={"unit": "mas", "description": "where"})
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(range(2 * N)), 2)
    table = table.set_column(1, field, table["x"]).append_column("pair", pairs)
    write(tmp_path / f"t{ending}", table)
    source = open_table(tmp_path / f"t{ending}")
    assert (source.unit("x"), source.unit("y")) == ("mas", None)
    again = read(tmp_path / f"t{ending}")
    assert again["count"].null_count == table["count"].null_count > 0
    assert again["pair"].to_pylist()[:2] == [[0, 1], [2, 3]]
    write(tmp_path / "t.csv", table)
    assert read(tmp_path / "t.csv")["pair"].to_pylist()[1] == "[2, 3]"
    if ending != ".parquet":
        seen = Table.read(tmp_path / f"t{ending}")
        assert (str(seen["x"].unit), seen["x"].description) == ("mas", "where")


BAD = {
    "missing": ("none.csv", None, "got no such file"),
    "unknown": ("t.xlsx", b"", "Expected a file that ends in .csv"),
    "empty": ("t.csv", b"", "Expected t.csv to hold a table"),
    "ragged": ("t.csv", b"a,b\n1,2,3\n", "Expected t.csv to hold a table.*Expected 2 columns"),
    "twice": ("t.csv", b"a,a\n1,2\n", "got 'a' twice"),
    "not packed": ("t.csv.gz", b"a,b\n1,2\n", "Expected t.csv.gz to hold a table"),
    "otherwise packed": ("t.csv.xz", b"", "which is packed. Unpack it"),
    "parquet": ("t.parquet", b"no parquet", "Expected t.parquet to hold a table"),
    "fits": ("t.fits", b"no fits", "Expected t.fits to hold a table"),
    "ecsv": ("t.ecsv", b"no ecsv", "Expected t.ecsv to hold a table"),
    "votable": ("t.vot", b"no votable", "Expected t.vot to hold a table"),
    "cut": ("t.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 9)[:-9], "Expected t.csv.gz to hold"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, case):
    name, content, message = BAD[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        list(open_table(tmp_path / name).chunks(10))


# -- what columns of errors are called, in files and in data frames -------------------------------


FORMS = (
    "x_err", "x_error", "e_x", "sigma_x", "x_se", "x_std", "x_sd", "x_unc", "x_sigma", "xerr",
    "x_e", "err_x", "dx", "XERR", "X_ERR", "xERR", "se", "SE", "err", "error", "sd", "sigma",
)  # fmt: skip


@pytest.mark.parametrize("error", FORMS)
def test_errors_by_convention(error):
    assert find_columns(["x", error, "other"], ["x"]).errors == ((error, error),)


PAIRS = [("x_err_lo", "x_err_hi"), ("x_err2", "x_err1"), ("xerr2", "xerr1"), ("X_ERR2", "X_ERR1")]


@pytest.mark.parametrize("pair", PAIRS)
def test_asymmetric_errors_by_convention(pair):
    assert find_columns(["x", *pair], ["x"]).errors == (pair,)


FOUND = {
    "exact case wins": (["x", "x_err", "X_ERR"], "x", ["x"], "x_err"),
    "the name's case wins": (["x", "X", "x_ERR", "X_ERR"], "X", ["x", "X"], "X_ERR"),
    "another column's error is not mine": (["x", "X", "x_err"], "X", ["X"], None),
    "effects": (["beta", "eaf", "se", "eaf_se"], "beta", ["beta", "eaf"], "se"),
    "a lone error of two columns": (["x", "y", "se"], "x", ["x", "y"], None),
    "what is measured is no error": (["x", "dx", "x_err"], "x", ["x", "dx"], "x_err"),
    "half a pair": (["x", "x_err1"], "x", ["x"], None),
    "a named error before a lone one": (["x", "x_err", "se"], "x", ["x"], "x_err"),
}


@pytest.mark.parametrize("case", FOUND)
def test_which_column_it_is(case):
    available, name, measured, wanted = FOUND[case]
    assert error_columns(available, name, measured) == ([(wanted, wanted)] if wanted else [])


def test_several_are_refused_with_their_names():
    with pytest.raises(ValueError, match=r"got several: x_err, dx\. Name it: errors=\['x=x_err'"):
        find_columns(["x", "x_err", "dx"], ["x"])


def test_a_column_that_is_said_for_one_is_not_found_for_another():
    with pytest.raises(ValueError, match="Expected the error of column 'x'"):
        find_columns(["x", "y", "dx"], ["x", "y"], errors=["y=dx"])


def test_likely_columns_of_this_table_are_named():
    table = ["id", "plx", "g", "plx_uncertainty", "plx_flag", "error_in_g", "seed", "sequence"]
    with pytest.raises(ValueError, match=r"may be plx_uncertainty, error_in_g, plx_flag\. Name"):
        find_columns(table, ["plx", "g"])
    with pytest.raises(ValueError, match=r"got none of them\. Name it"):
        find_columns(["plx", "id"], ["plx"])


def planets(tmp_path, lower, errors=(), size=10):
    cells = "\n".join(f"{i},0.2,{value}" for i, value in enumerate(lower))
    (tmp_path / "t.csv").write_text(f"r,rerr1,rerr2\n{cells}\n")
    source = open_table(tmp_path / "t.csv")
    reader = RowReader(find_columns(source.names, ["r"], errors=errors), source)
    chunks = enumerate(source.chunks(size, reader.needed))
    return [reader(chunk, size * i).rows.noise for i, chunk in chunks]


@pytest.mark.parametrize("lower", [[-0.1, "", -0.3], [0.1, "", 0.3]])
@pytest.mark.parametrize("errors", [(), ("r=rerr2:rerr1",)])
def test_lower_errors_may_all_be_negative(tmp_path, lower, errors):
    wanted = planets(tmp_path, [0.1, "", 0.3])[0].variance()
    (noise,) = planets(tmp_path, lower, errors)
    assert np.array_equal(noise.variance(), wanted)


@pytest.mark.parametrize("size", [1, 10])
def test_a_mixture_of_signs_is_refused(tmp_path, size):
    with pytest.raises(ValueError, match=r"one sign in column 'rerr2'; got 0.3 in row 2"):
        planets(tmp_path, [-0.1, -0.1, 0.3], size=size)
    with pytest.raises(ValueError, match=r"one sign in column 'rerr2'; got -0.3 in row 1"):
        planets(tmp_path, [0.1, -0.3, 0.3], size=size)


def test_a_negative_error_that_is_no_lower_one_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("x,x_err\n1,-0.1\n2,-0.2\n")
    source = open_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"of at least 0 in column 'x_err'; got -0.1 in row 0"):
        read_rows(RowReader(find_columns(source.names, ["x"]), source))
