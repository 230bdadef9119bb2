"""A folder of files is one table, or is refused before its rows are read."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables.catalogue import catalogue

from deconflow.tables import (
    RowReader,
    TableError,
    find_columns,
    open_table,
    read_rows,
    writing,
)

WHOLE = catalogue(90)
PIECES = [WHOLE.slice(0, 40), WHOLE.slice(40, 0), WHOLE.slice(40, 30), WHOLE.slice(70)]
NAMES = ["a", "b", "c", "sub/a"]


@pytest.fixture
def survey(tmp_path):
    """A folder whose files have an ending, made of pieces of the catalogue."""

    def write(ending=".parquet", names=NAMES, pieces=PIECES):
        for name, piece in zip(names, pieces, strict=True):
            path = tmp_path / "survey" / f"{name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing(path, piece.schema) as append:
                append(piece)
        return tmp_path / "survey"

    return write


def rows(source, columns=None, size=25):
    chunks = list(source.chunks(size, columns))
    return pa.concat_tables(chunks) if chunks else []


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv.gz", ".fits"])
def test_a_folder_is_the_table_that_was_cut(survey, ending):
    source = open_table(survey(ending))
    assert source.names == WHOLE.column_names
    assert source.n_rows == (None if ending in (".csv", ".tsv.gz") else len(WHOLE))
    found = rows(source)
    for name in ("id", "x", "e_y", "flag"):
        assert found[name].to_pylist() == WHOLE[name].to_pylist(), name
    assert rows(source, ["y", "id"]).column_names == ["y", "id"]
    assert max(len(chunk) for chunk in source.chunks(25)) <= 25
    assert [name for name, _ in source.pieces] == [f"{name}{ending}" for name in NAMES]


def test_columns_in_another_order_and_narrower_types(survey):
    other = PIECES[2].select(WHOLE.column_names[::-1])
    other = other.set_column(other.column_names.index("x"), "x", other["x"].cast(pa.float32()))
    source = open_table(survey(pieces=[*PIECES[:2], other, PIECES[3]]))
    assert source.schema.field("x").type == pa.float64()
    found = rows(source)
    assert found["y"].to_pylist() == WHOLE["y"].to_pylist()
    assert np.allclose(found["x"], WHOLE["x"], rtol=1e-6)  # float32


def test_text_has_the_types_of_all_files(tmp_path):
    (tmp_path / "a.csv").write_text("x,id\n1,1\n")
    (tmp_path / "b.csv").write_text("id,x\nstar,0.5\n")
    source = open_table(tmp_path)
    assert source.schema.types == [pa.float64(), pa.string()]
    assert rows(source).to_pylist() == [{"x": 1.0, "id": "1"}, {"x": 0.5, "id": "star"}]
    assert open_table(tmp_path, typed=False).schema.types == [pa.string()] * 2


def test_hive_folders_are_columns(survey):
    names = ["year=2020/band=g/0", "year=2020/band=r/0", "year=2021/band=g/0", "year=2021/band=r/0"]
    source = open_table(survey(names=names))
    assert source.names == [*WHOLE.column_names, "year", "band"]
    assert pa.types.is_integer(source.schema.field("year").type)
    found = rows(source, ["band", "x", "year"])
    assert found["x"].to_pylist() == WHOLE["x"].to_pylist()
    assert found["year"].to_pylist() == [2020] * 40 + [2021] * 50
    assert set(found["band"].to_pylist()[40:70]) == {"g"}
    assert rows(source, ["year"])["year"].to_pylist() == found["year"].to_pylist()


def test_the_layout_of_hats(survey):
    names = [f"dataset/Norder=1/Dir=0/Npix={n}" for n in (4, 11)] + [
        "dataset/Norder=0/Dir=0/Npix=7",
        "dataset/Norder=2/Dir=0/Npix=3/part0",
    ]
    folder = survey(names=names)
    pq.write_metadata(WHOLE.schema, folder / "dataset" / "_common_metadata")
    (folder / "dataset" / "_metadata").write_bytes(b"of all files")
    (folder / "hats.properties").write_text("obs_collection=x\n")
    (folder / "partition_info.csv").write_text("Norder,Npix\n1,4\n")
    (folder / "dataset" / "data_thumbnail.parquet").write_bytes(b"no table of ours")
    source = open_table(folder)
    assert source.names == [*WHOLE.column_names, "Norder", "Dir", "Npix"]
    assert source.n_rows == len(WHOLE)
    orders = [name.split("/")[1] for name, _ in source.pieces]
    assert orders == ["Norder=0", "Norder=1", "Norder=1", "Norder=2"]


def test_what_is_no_table_is_left_out(survey):
    folder = survey()
    for name in (".hidden.parquet", "_SUCCESS", ".d.parquet.12345678.part/d.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"half")
    assert open_table(folder).n_rows == len(WHOLE)
    (folder / "README.md").write_text("words")
    with pytest.warns(UserWarning, match=r"are no tables are left out: README.md"):
        assert open_table(folder).n_rows == len(WHOLE)


def test_patterns(survey, tmp_path, monkeypatch):
    folder = survey()
    (folder / "notes.txt").write_text("a b\n1 2\n")
    with pytest.raises(ValueError, match=r"of one format .* a.parquet and notes.txt. Choose .*\*"):
        open_table(folder)
    source = open_table(folder / "*.parquet")
    assert [name for name, _ in source.pieces] == ["a.parquet", "b.parquet", "c.parquet"]
    assert len(open_table(folder / "**" / "*.parquet").pieces) == 4
    with pytest.raises(FileNotFoundError, match="got none that match"):
        open_table(folder / "*.csv")
    monkeypatch.chdir(tmp_path)
    assert open_table("*/c.parquet").n_rows == 30


def test_links_are_followed_once(survey, tmp_path):
    folder = survey()
    (folder / "loop").symlink_to(folder)
    (folder / "more").symlink_to(folder / "sub")
    assert open_table(folder).n_rows == len(WHOLE)


def with_unit(piece, unit):
    i = piece.column_names.index("x")
    field = piece.schema.field(i).with_metadata({"unit": unit} if unit else {})
    return piece.set_column(i, field, piece["x"])


DIFFERENT = {
    "a column less": (PIECES[2].drop(["e_y"]), "got 'e_y' in one of them only"),
    "a column more": (PIECES[2].append_column("z", PIECES[2]["x"]), "got 'z' in one of them only"),
    "another type": (
        PIECES[2].set_column(1, "x", pa.array(["one"] * 30)),
        "survey/c.parquet .* Field x has incompatible types: double vs string",
    ),
    "a unit": (with_unit(PIECES[2], "km"), "in no unit in survey/c.parquet, .* got km. Convert"),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_files_that_differ_are_refused(survey, kind):
    other, message = DIFFERENT[kind]
    folder = survey(pieces=[*PIECES[:2], other, PIECES[3]])
    with pytest.raises(TableError, match=message) as error:
        open_table(folder)
    assert "survey/c.parquet" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", [".parquet", ".fits"])
def test_a_file_cut_short_is_named(survey, ending):
    folder = survey(ending)
    path = folder / f"c{ending}"
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(TableError, match=f"survey/c{ending}"):
        open_table(folder)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_pieces_are_the_files(survey, ending):
    source = open_table(survey(ending), typed=False)
    tables = filter(None, (rows(piece) for _, piece in source.pieces))  # one has no rows
    assert list(map(int, pa.concat_tables(tables)["id"].to_pylist())) == WHOLE["id"].to_pylist()
    assert [name for name, _ in source.pieces] == [f"{name}{ending}" for name in NAMES]


def test_pieces_of_one_file_are_its_row_groups(tmp_path):
    pq.write_table(WHOLE, tmp_path / "one.parquet", row_group_size=20)
    for path in (tmp_path / "one.parquet", tmp_path):
        pieces = open_table(path).pieces
        assert [piece.n_rows for _, piece in pieces] == [20, 20, 20, 20, 10]
        found = [id for _, piece in pieces for id in rows(piece)["id"].to_pylist()]
        assert found == WHOLE["id"].to_pylist()


def test_fits_files_with_several_tables_say_it_once(tmp_path):
    from astropy.io import fits

    table = fits.BinTableHDU.from_columns([fits.Column("x", "D", array=np.arange(3.0))])
    for name in "ab":
        hdus = [fits.PrimaryHDU(), table.copy(), table.copy()]
        fits.HDUList(hdus).writeto(tmp_path / f"{name}.fits")
    with pytest.warns(UserWarning, match="the first is taken") as told:
        assert len(rows(open_table(tmp_path))) == 6
    assert len(told) == 1
    with warnings.catch_warnings(action="error"):
        assert len(rows(open_table(tmp_path / "*.fits[2]"))) == 6


def test_a_wrong_cell_is_named_with_its_file_and_its_row_there(tmp_path):
    (tmp_path / "a.csv").write_text("x,x_err\n1,1\n2,1\n3,1\n")
    (tmp_path / "b.csv").write_text("x,x_err\n1,1\noops,1\n")
    source = open_table(tmp_path, typed=False)
    reader = RowReader(find_columns(source.names, ["x"]), source)
    with pytest.raises(ValueError, match=r"got 'oops' in row 1 .* This is about .*/b\.csv\."):
        read_rows(reader)


def test_a_folder_that_is_not_there_is_no_file_of_another_format(tmp_path):
    with pytest.raises(FileNotFoundError, match="got no such file"):
        open_table(tmp_path / "nor")
