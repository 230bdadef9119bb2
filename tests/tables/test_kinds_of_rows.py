"""Rows that are not just values with errors: limits, posterior samples, replicates, counts."""

import numpy as np
import pyarrow as pa
import pytest

from deconflow.tables import RowReader, find_columns, gathered, open_table
from deconflow.tables import read_rows as read_all
from deconflow.tables.cells import Cells
from deconflow.tables.columns import parse_replicates

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
    words = find_columns(source, ["x"]).describe()
    assert words == ["x with error x_err; limits in X_LIMIT"]


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
    source = parquet(tmp_path, **LISTS, z=[1.0, 2.0], s=[["a", "b"], ["c", "d", "e"]])
    with pytest.raises(ValueError, match="got some in 'x' and none in 'z'"):
        read_rows(source, "x", "z")
    with pytest.raises(ValueError, match="lists of numbers in column 's'"):
        read_rows(source, "x", "s")
    with pytest.raises(ValueError, match="no id= where cells are lists"):
        read_rows(source, "x", id="z")
    other = parquet(tmp_path, x=LISTS["x"], y=LISTS["y"][::-1])
    with pytest.raises(
        ValueError, match="as many draws in column 'y' as in 'x'; got 3 and 2 in row 0"
    ):
        read_rows(other, "x", "y")
    with pytest.raises(ValueError, match="no errors= with posterior samples"):
        find_columns(source, ["x"], errors=["x=z"])


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
