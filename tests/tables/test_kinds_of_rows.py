"""Rows that are not just values with errors: limits, posterior samples, replicates, counts."""

import numpy as np
import pyarrow as pa
import pytest
from astropy.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from deconflow.tables import RowReader, described, find_columns, gathered, open_table, writing
from deconflow.tables import read_rows as read_all
from deconflow.tables.columns import parse_replicates
from deconflow.tables.kinds import Cells

NAN = float("nan")


def opened(tmp_path, text, typed=False):
    (tmp_path / "t.csv").write_text(text)
    return open_table(tmp_path / "t.csv", typed=typed)


def parquet(tmp_path, **columns):
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return open_table(tmp_path / "t.parquet")


def read_rows(source, *names, missing=(), noise="gaussian", **said):
    columns = find_columns(source, names, noise=noise, missing=missing, **said)
    return read_all(RowReader(columns, gathered(source, columns)))


def with_limits(cells):
    return "x,x_err,x_limit\n" + "".join(f"{x},0.1,{flag}\n" for x, flag in cells)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    "flags", [("-1", "0", "1", ""), ("<", "", ">", "0"), ("-1.0", "NA", "1.0", "0.0")]
)
def test_flags_are_read_from_a_column(tmp_path, flags, typed):
    source = opened(tmp_path, with_limits(zip([1, 2, 3, 4], flags, strict=True)), typed)
    assert read_rows(source, "x").rows.limits.tolist() == [[-1], [0], [1], [0]]


def test_flags_in_columns_with_types(tmp_path):
    for flags in ([-1, 0, 1, None], [-1.0, NAN, 1.0, 0.0], ["<", None, ">", ""]):
        source = parquet(tmp_path, x=[1.0, 2, 3, 4], x_err=[0.1] * 4, x_limit=flags)
        assert read_rows(source, "x").rows.limits.tolist() == [[-1], [0], [1], [0]]


@pytest.mark.parametrize("typed", [False, True])
def test_cells_of_text_are_limits(tmp_path, typed):
    source = opened(
        tmp_path, "x,x_err,y,y_err\n<1.5,1,1,1\n > 2 ,1,2,1\n3,1,>-3e2,1\n,1,<,1\n", typed
    )
    rows = read_rows(source, "x", "y")
    np.testing.assert_array_equal(rows.rows.w, [[1.5, 1], [2, 2], [3, -300]])
    assert rows.rows.limits.tolist() == [[-1, 0], [1, 0], [0, 1]]
    assert rows.status.tolist()[3] == "no measured value"
    assert rows.rows.facts["limits"] is rows.rows.limits


def test_limits_without_a_number_or_an_error_are_missing(tmp_path):
    text = "x,y,x_err,y_err,x_limit\n,1,1,1,-1\n<2,1,,1,0\n-99,2,1,1,1\n4,3,1,1,1\n"
    rows = read_rows(opened(tmp_path, text), "x", "y", missing=(-99,))
    assert rows.rows.limits.tolist() == [[0, 0], [0, 0], [0, 0], [1, 0]]
    assert rows.without_error == 1


def test_flags_are_found_or_named_or_left(tmp_path):
    source = opened(tmp_path, "x,x_err,X_LIMIT,f\n1,1,7,1\n2,1,7,0\n")
    assert find_columns(source, ["x"]).limits == ("X_LIMIT",)
    assert find_columns(source, ["x"], limits=["none"]).limits == ()
    assert read_rows(source, "x", limits=["x=f"]).rows.limits.tolist() == [[1], [0]]
    assert find_columns(source, ["x"]).describe() == ["x with error x_err; limits in X_LIMIT"]


LISTS = {"x": [[1.0, 2.0], [3.0, 4.0, 5.0]], "y": [[0.0, 1.0], [2.0, 3.0, 4.0]]}
BAD = {
    "flag": (
        "x,x_err,x_limit\n1,1,0\n2,1,2.5\n", ["x"], {},
        r"column 'x_limit'; got '2.5' in row 1 \(the first is 0\)..*limits=\['none'\]",
    ),
    "both": ("x,x_err,x_limit\n1,1,0\n<2,1,1\n", ["x"], {}, "one limit of 'x'.*row 1"),
    "column": ("x,x_err\n1,1\n2,1\n", ["x"], {"limits": ["x=f"]}, "Expected the column 'f'"),
    "syntax": ("x,x_err\n1,1\n2,1\n", ["x"], {"limits": ["f"]}, "limits= as NAME=COLUMN"),
    "error": ("x,x_err\n1,<1\n2,1\n", ["x"], {}, "numbers in column 'x_err'; got '<1' in row 0"),
    "kinds": ("n,x1,x2\n1,1,1\n", ["n"], {"noise": "poisson", "replicate_columns": ["x1,x2"]},
              "one kind of measurement; got noise='poisson' and replicate_columns="),
    "law": ("x,i\n1,1\n", ["x"], {"noise": "laplace", "id": "i"}, "noise='laplace' and posterior"),
    "trials": ("n\n1\n", ["n"], {"noise": "binomial"}, "trials= with a column"),
    "exposure": ("n,t\n1,1\n", ["n"], {"noise": "binomial", "exposure": "t", "trials": "t"},
                 "exposure= with noise='poisson' only"),
    "prior": ("x,x_err,p\n1,1,1\n", ["x"], {"log_prior": "p"}, "log_prior= with posterior samples"),
    "id": ("x,i\n1,1\n", ["x"], {"id": "x"}, "id= as a column that is not measured; got 'x'"),
    "no id": ("x,i\n1,1\n2,\n", ["x"], {"id": "i"}, "object of each draw in column 'i'.*row 1"),
    "fitted": ("x,x_err\n1,1\n", ["x"], {"fit_errors": ["size"]}, "correlation; got 'size'"),
    "negative": ("n\n3\n-1\n", ["n"], {"noise": "poisson"}, "counts in .*'n'.*got -1 in row 1"),
    "half": ("n\n3\n0.5\n", ["n"], {"noise": "poisson"}, "counts in column 'n'.*got 0.5 in row 1"),
    "time": ("n,t\n3,1\n5,0\n", ["n"], {"noise": "poisson", "exposure": "t"},
             "above 0 in column 't'; got 0 in row 1"),
    "half a trial": ("n,t\n3,4\n5,6.5\n", ["n"], {"noise": "binomial", "trials": "t"},
                     "whole numbers above 0 in column 't'; got 6.5 in row 1"),
    "limits of counts": ("n,f\n3,1\n", ["n"], {"noise": "poisson", "limits": ["n=f"]},
                         "limits of values with errors that add to them; got the column 'f'"),
    "limits by name": ("n,n_limit\n3,1\n", ["n"], {"noise": "poisson"}, "got the column 'n_limit'"),
    "log": ("x,x_err\n3,.1\n-2,.1\n", ["x"], {"noise": "lognormal"},
            "above 0 in column 'x', because errors multiply them; got -2 in row 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused(tmp_path, case):
    text, names, said, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        read_rows(opened(tmp_path, text), *names, **said)


def test_refused_lists(tmp_path):
    source = parquet(
        tmp_path, **LISTS, z=[1.0, 2.0], s=[["a", "b"], ["c", "d", "e"]], r=LISTS["y"][::-1]
    )
    for names, said, message in (
        (["x", "z"], {}, "got some in 'x' and none in 'z'"),
        (["x", "s"], {}, "lists of numbers in column 's'"),
        (["x"], {"id": "z"}, "no id= where cells are lists"),
        (["x", "r"], {}, "as many draws in column 'r' as in 'x'; got 3 and 2 in row 0"),
        (["x"], {"errors": ["x=z"]}, "no errors= with posterior samples"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rows(source, *names, **said)


def test_draws_of_objects_are_gathered(tmp_path):
    """Rows may be in any order, the id text or numbers; objects come as they first appear."""
    text = "star,x,y,p,other\nb,1,10,.1,\na,2,20,.2,\nb,3,30,.3,\n"
    source = opened(tmp_path, text)
    columns = find_columns(source, ["x", "y"], id="star", log_prior="p")
    found = gathered(source, columns)
    assert found.n_rows == 2
    assert found.kept == ["star"]
    table = next(found.chunks(10))
    assert table.to_pylist() == [
        {"star": "b", "x": [1, 3], "y": [10, 30], "p": [0.1, 0.3]},
        {"star": "a", "x": [2], "y": [20], "p": [0.2]},
    ]
    numbers = gathered(
        opened(tmp_path, text.replace("b", "7").replace("a,", "5,"), typed=True), columns
    )
    assert next(numbers.chunks(10))["star"].to_pylist() == [7, 5]
    assert gathered(source, find_columns(["x", "x_err"], ["x"])) is source


def test_replicates_are_written_in_lists():
    available = ["x1", "x2", "a,b", "y=1"]
    assert parse_replicates(["x1", "a,b"], ["x"], available) == (("x1", "a,b"),)
    assert parse_replicates(["x=x1,x2,y=x2,y=1"], ["x", "y"], available)[1] == ("x2", "y=1")
    for bad in (["x1"], ["x1,x1"], ["x=x1,x2"]):
        names = ["x", "y"] if "=" in bad[0] else ["x"]
        with pytest.raises(ValueError, match="two or more different columns of replicate_columns="):
            parse_replicates(bad, names, available)
    with pytest.raises(
        ValueError, match="replicate_columns= as NAME=COLUMN,COLUMN, with NAME one of x, y"
    ):
        parse_replicates(["x1,x2"], ["x", "y"], available)


def test_counts_are_read_as_likelihoods(tmp_path):
    source = opened(tmp_path, "n,t,k\n3,2,5\n,1,5\n4,,5\n0,1,5\n")
    rows = read_rows(source, "n", noise="poisson", exposure="t")
    assert rows.status.tolist() == ["ok", "no measured value", "no value in t", "ok"]
    np.testing.assert_allclose(
        rows.rows.w, [[2.0], [1.0]], rtol=1e-5
    )  # the means of v^3 exp(-2 v) and exp(-v)
    rows = read_rows(source, "n", noise="binomial", trials="k")
    np.testing.assert_allclose(rows.rows.w, [[4 / 7], [5 / 7], [1 / 7]], rtol=1e-5)
    assert len(rows.rows[1:].w) == rows.rows[1:].noise.n_rows == 2
    with pytest.raises(
        ValueError, match=r"more counts than trials, which are in column 't'; got 3 in row 0"
    ):
        read_rows(source, "n", noise="binomial", trials="t")


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])
def test_lists_of_all_types(kind):
    parts = [[1, 2], None, [3, None]], [None, [3, None]]
    column = pa.chunked_array([pa.array(part, kind(pa.int32())) for part in parts])
    lists = Cells(pa.table({"x": column}), 0, ()).draws("x")
    assert [len(each) for each in lists] == [2, 0, 2, 0, 2]
    np.testing.assert_array_equal(np.concatenate(lists), [1, 2, 3, NAN, 3, NAN])


# -- damaged files: the table, or one sentence that names the file; whatever the damage -----------


N = 30
KINDS = ("fits", "vot", "ecsv", "csv", "parquet")


def whole():
    rng = np.random.default_rng(0)
    fields = [
        described("x", pa.float64(), "mas", "where it is"),
        described("x_err", pa.float64(), "mas"),
        described("name", pa.string()),
        described("k", pa.int64()),
    ]
    names = [f"s{i}" for i in range(N)]
    columns = [rng.normal(size=N), np.full(N, 0.3), names, np.arange(N)]
    return pa.table(columns, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The same table in each format, as bytes."""
    folder, table = tmp_path_factory.mktemp("whole"), whole()
    for kind in KINDS:
        with writing(folder / f"t.{kind}", table.schema) as append:
            append(table)
    return {kind: (folder / f"t.{kind}").read_bytes() for kind in KINDS}


@st.composite
def damages(draw):
    """Bytes changed, digits changed, a piece taken out, or the end cut off."""
    kind = draw(st.sampled_from(["bytes", "digits", "piece", "end"]))
    places = draw(st.lists(st.floats(0, 0.9999), min_size=2, max_size=5))
    return kind, places, draw(st.integers(0, 255))


def damaged(content, kind, places, value):
    content = bytearray(content)
    at = [int(place * len(content)) for place in places]
    if kind == "end":
        return bytes(content[: at[0]])
    if kind == "piece":
        del content[min(at) : min(at) + 1 + value]
        return bytes(content)
    if kind == "digits":
        digits = [i for i, byte in enumerate(content) if byte in b"0123456789"]
        at = [digits[int(place * len(digits))] for place in places]
        value = ord("0") + value % 10
    for place in at:
        content[place] = value
    return bytes(content)


def read(path):
    """Return the table, or None after a sentence that names the file."""
    try:
        source = open_table(path)
        chunks = list(source.chunks(7))
    except ValueError as raised:
        error = str(raised)
    else:
        return pa.concat_tables([source.schema.empty_table(), *chunks])
    assert error.startswith("Expected ")
    assert path.name in error
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage(tmp_path_factory, contents, kind):
    path = tmp_path_factory.mktemp("damaged") / f"t.{kind}"
    table, header = contents[kind], 5760 if kind == "fits" else None

    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(damages(), st.booleans())
    def check(damage, above):
        """Half of the damages are in what stands above the rows, where FITS has its header."""
        some = table[:header] if above else table
        path.write_bytes(damaged(some, *damage) + table[len(some) :])
        read(path)

    check()


@pytest.fixture
def stars(tmp_path, contents):
    path = tmp_path / "stars.fits"
    path.write_bytes(contents["fits"])
    return path


@pytest.mark.filterwarnings("ignore:File may have been truncated")
def test_a_fits_file_that_was_cut_short_is_named(stars):
    stars.write_bytes(stars.read_bytes()[:-2880])
    with pytest.raises(ValueError, match=r"Expected stars.fits to hold a table"):
        open_table(stars)


def test_a_votable_that_sends_elsewhere(tmp_path):
    """Astropy would open it; neither files nor addresses that a table names are opened."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"\x00" * 160)
    Table({"x": np.arange(9.0)}).write(tmp_path / "t.vot", format="votable")
    text = (tmp_path / "t.vot").read_text()
    begin, end = text.index("<TABLEDATA>"), text.index("</TABLEDATA>")
    link = f'<BINARY2><STREAM href="file://{secret}" encoding="gzip"/></BINARY2>'
    (tmp_path / "t.vot").write_text(text[:begin] + link + text[end + len("</TABLEDATA>") :])
    with pytest.raises(ValueError, match=r"in the file itself; got a link: <STREAM href="):
        open_table(tmp_path / "t.vot")
