"""Every format gives back what was written, in the order of rows and columns."""

import pyarrow as pa
import pytest
from tables.catalogue import N, catalogue

from deconflow.tables import open_table, writing
from deconflow.tables.io import WRITTEN


def write(path, table, size=70):
    with writing(path, table.schema) as sink:
        for start in range(0, len(table), size):
            sink.write(table.slice(start, size))


def read(path, size=60, columns=None, **options):
    return pa.concat_tables(open_table(path, **options).chunks(size, columns))


@pytest.mark.parametrize(
    "ending", [*WRITTEN, *(f"{e}.gz" for e in WRITTEN), ".csv.bz2", ".fits.zst"]
)
def test_round_trip(tmp_path, ending):
    table = catalogue()
    write(tmp_path / f"t{ending}", table)
    again = read(tmp_path / f"t{ending}")
    assert again.column_names == table.column_names
    for name in table.column_names:
        cells = again[name].to_pylist()
        wanted = table[name].to_pylist()
        if name == "name":
            wanted = [cell or "" for cell in wanted]
            cells = [cell or "" for cell in cells]
        assert cells == wanted, name
    assert list(tmp_path.iterdir()) == [tmp_path / f"t{ending}"]  # nothing is left beside it


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".fits"])
def test_chunks_are_bounded_and_columns_can_be_chosen(tmp_path, ending):
    write(tmp_path / f"t{ending}", catalogue())
    chunks = list(open_table(tmp_path / f"t{ending}").chunks(40, ["y", "x"]))
    assert max(len(chunk) for chunk in chunks) == 40
    assert sum(len(chunk) for chunk in chunks) == N
    assert {name for chunk in chunks for name in chunk.column_names} == {"x", "y"}


def test_text_goes_through_as_it_is_written(tmp_path):
    lines = 'id,x,note\n007,1.10,\n008,,"a,b"\n009,1e3,c\n'
    (tmp_path / "in.csv").write_text("# from somewhere\n" + lines)
    source = open_table(tmp_path / "in.csv", typed=False)
    with writing(tmp_path / "out.csv", source.schema) as sink:
        for chunk in source.chunks(2):
            sink.write(chunk)
    assert (tmp_path / "out.csv").read_text() == lines


def test_types_of_text_hold_for_all_rows(tmp_path):
    """A column that looks whole in the first chunk may not be so in the last."""
    rows = "\n".join(f"{i},{i},{i % 2 == 0}" for i in range(200))
    (tmp_path / "t.csv").write_text(f"a,b,c\n{rows}\n1.5,word,true\nNA,,\n")
    schema = open_table(tmp_path / "t.csv").schema
    assert schema.types == [pa.float64(), pa.string(), pa.bool_()]


def test_what_looks_like_a_number_may_be_a_name(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n007,1,0.5\n123,true,00.5\n8,false,0\n")
    assert open_table(tmp_path / "t.csv").schema.types == [pa.string(), pa.string(), pa.float64()]


def test_text_as_people_write_it(tmp_path):
    """A byte order mark, spaces beside names, semicolons, and ends of lines from elsewhere."""
    for name, lines in {
        "spaces.csv": "x, x_err\r\n1.5, 0.5\r\n",
        "semicolons.csv": "x;x_err\n1.5;0.5\n",
        "mark.csv": "\ufeffx,x_err\n1.5,0.5\n",
        "tabs.tsv": "x\tx_err\n1.5\t0.5\n",
        "quotes.csv": '"x","x_err"\n"1.5","0.5"\n',
        "comments.csv": "# made by hand\nx,x_err\n1.5,0.5\n",
    }.items():
        (tmp_path / name).write_text(lines, newline="")
        assert read(tmp_path / name).to_pylist() == [{"x": 1.5, "x_err": 0.5}]
        assert read(tmp_path / name, columns=["x_err"]).to_pylist() == [{"x_err": 0.5}]


def test_fits_opens_in_astropy_with_units_and_nulls(tmp_path):
    from astropy.table import Table

    table = catalogue()
    field = pa.field("x", pa.float64(), metadata={"unit": "mas"})
    table = table.set_column(1, field, table["x"])
    write(tmp_path / "t.fits", table)
    seen = Table.read(tmp_path / "t.fits")
    assert str(seen["x"].unit) == "mas"
    assert seen["count"].mask.sum() == table["count"].null_count
    assert open_table(tmp_path / "t.fits").unit("x") == "mas"
    assert open_table(tmp_path / "t.fits").unit("y") is None


def test_arrays_in_cells(tmp_path):
    from astropy.table import Table

    Table({"x": [1.0, 2.0], "pair": [[1, 2], [3, 4]]}).write(tmp_path / "in.fits")
    table = read(tmp_path / "in.fits")
    assert table["pair"].to_pylist() == [[1, 2], [3, 4]]
    for ending in (".fits", ".ecsv", ".parquet"):
        write(tmp_path / f"out{ending}", table)
        assert read(tmp_path / f"out{ending}")["pair"].to_pylist() == [[1, 2], [3, 4]]
    write(tmp_path / "out.csv", table)
    assert read(tmp_path / "out.csv")["pair"].to_pylist() == ["[1, 2]", "[3, 4]"]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".fits", ".ecsv", ".vot"])
def test_an_empty_table_has_no_chunks(tmp_path, ending):
    write(tmp_path / f"t{ending}", catalogue().slice(0, 0))
    assert list(open_table(tmp_path / f"t{ending}").chunks(10)) == []


BAD = {
    "missing": ("none.csv", None, "got no such file"),
    "unknown": ("t.xlsx", b"", "Expected a file that ends in .csv"),
    "empty": ("t.csv", b"", "Expected a header and rows"),
    "ragged": ("t.csv", b"a,b\n1,2,3\n", "Expected a header and rows"),
    "twice": ("t.csv", b"a,a\n1,2\n", "got 'a' twice"),
    "parquet": ("t.parquet", b"no parquet", "Expected t.parquet to hold a table"),
    "fits": ("t.fits", b"no fits", "Expected t.fits to hold a table"),
    "ecsv": ("t.ecsv", b"no ecsv", "Expected t.ecsv to hold a table"),
    "votable": ("t.vot", b"no votable", "Expected t.vot to hold a table"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, case):
    name, content, message = BAD[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        list(open_table(tmp_path / name).chunks(10))
