"""Columns of errors are found, and rows become measurements with the right noise."""

import json

import numpy as np
import pyarrow as pa
import pytest

from deconflow.noise import GaussianNoise
from deconflow.saving import from_json, to_json
from deconflow.tables import (
    Columns,
    RowReader,
    find_columns,
    open_table,
    read_rows,
    split_list,
    writing,
)
from deconflow.tables.columns import parse_pairs

NAN = float("nan")
PAIRS = ["x:x=vx,y:y=vy,x:y=c"]


def test_variances_are_named_where_errors_are():
    found = find_columns(["x", "y", "vx", "vy", "c"], ["x", "y"], covariances=PAIRS)
    assert found.describe() == ["x with error sqrt(vx); c", "y with error sqrt(vy); c"]


def rows_of(tmp_path, columns, **data):
    table = pa.table(data)
    with writing(tmp_path / "t.parquet", table.schema) as append:
        append(table)
    return read_rows(RowReader(columns, open_table(tmp_path / "t.parquet")))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["x=a,y=b"], (("a", "a"), ("b", "b"))),
        (["x=a", "y=0.5"], (("a", "a"), (0.5, 0.5))),
        (["a,b"], (("a", "a"), ("b", "b"))),
        (["x=a:b"], (("a", "b"), ("y_err", "y_err"))),
    ],
)
def test_errors_that_are_named(said, found):
    columns = find_columns(["x", "y", "x_err", "y_err", "a", "b"], ["x", "y"], errors=said)
    assert columns.errors == found


NAMES = ["x", "y", "x_err", "e_x", "y_err", "z", "c"]
REFUSED = {
    "missing": (["xx"], {}, "Expected the column 'xx'.*Did you mean 'x'"),
    "twice": (["y", "y"], {}, "each once"),
    "no error": (["z"], {}, r"Name it: errors=\['z=COLUMN'\]"),
    "two errors": (["x"], {}, "got several: x_err, e_x"),
    "error column missing": (["y"], {"errors": ["y=nope"]}, "Expected the column 'nope'"),
    "wrong count": (["x", "y"], {"errors": ["c"]}, "Expected 2 columns after errors="),
    "unknown name": (["y"], {"errors": ["q=c"]}, "with NAME one of y"),
    "error twice": (["y"], {"errors": ["y=c", "y=x_err"]}, "got two in errors="),
    "negative": (["y"], {"errors": ["y=-1"]}, "at least 0 in errors="),
    "pair": (["y", "x"], {"errors": ["x=c"], "correlations": ["y=c"]}, "FIRST:SECOND=COLUMN"),
    "own corr": (["y"], {"correlations": ["y:y=c"]}, "Expected correlations="),
    "law": (["y"], {"noise": "cauchy"}, "Expected noise= as one of gaussian"),
    "asymmetric law": (["y"], {"errors": ["y=c:y_err"], "noise": "laplace"}, "split-normal"),
    "correlated law": (
        ["y", "x"],
        {"errors": ["x=c"], "correlations": ["x:y=c"], "noise": "laplace"},
        "gaussian errors where columns are correlated",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    names, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        find_columns(NAMES, names, **options)


def test_columns_survive_json():
    available = ["x", "y", "x_err", "y_lo", "y_hi", "u"]
    columns = find_columns(available, ["x", "y"], errors=["y=y_lo:y_hi"], df=4.0)
    text = json.dumps(to_json(columns, {}, "columns"))
    assert from_json(json.loads(text), Columns, {}, "columns") == columns


def test_correlations_become_covariances(tmp_path):
    columns = find_columns(["x", "y", "x_err", "y_err", "y_x_corr"], ["x", "y"])
    rows = rows_of(
        tmp_path, columns, x=[1.0, 2.0, 3.0], y=[0.0, 1.0, NAN], x_err=[0.5, 1.0, 2.0],
        y_err=[0.1, 0.2, NAN], y_x_corr=[0.5, -0.5, NAN],
    )  # fmt: skip
    wanted = [[[0.25, 0.025], [0.025, 0.01]], [[1.0, -0.1], [-0.1, 0.04]]]
    assert isinstance(rows.rows.noise, GaussianNoise)
    assert np.allclose(rows.rows.noise.covariance()[:2], wanted)
    assert np.isnan(rows.rows.w[2, 1])
    assert rows.usable.all()


def test_covariance_columns(tmp_path):
    columns = find_columns(["x", "y", "vx", "vy", "c"], ["x", "y"], covariances=PAIRS)
    rows = rows_of(
        tmp_path, columns, x=[1.0] * 2, y=[2.0] * 2, vx=[4.0] * 2, vy=[9.0] * 2, c=[3.0] * 2
    )
    assert np.allclose(rows.rows.noise.covariance(), [[[4.0, 3.0], [3.0, 9.0]]])


def test_unusable_rows_have_reasons(tmp_path):
    columns = find_columns(["x", "y", "x_err", "y_err", "x_y_corr"], ["x", "y"])
    rows = rows_of(
        tmp_path, columns,
        x=[1.0, NAN, np.inf, 1.0, 1.0, 1.0], y=[1.0, NAN, 1.0, 1.0, 1.0, 1.0],
        x_err=[1.0, 1.0, 1.0, NAN, 1.0, 1.0], y_err=[1.0] * 6,
        x_y_corr=[0.1, 0.1, 0.1, NAN, NAN, 1.0],
    )  # fmt: skip
    assert list(rows.status) == [
        "ok", "no measured value", "x is infinite", "ok", "no correlation of x and y", "ok",
    ]  # fmt: skip
    assert rows.rows.w.shape == (3, 2)
    assert np.isnan(rows.rows.w[1, 0])  # a value without an error is a missing value
    assert rows.without_error == 1


def test_correlations_that_cannot_be(tmp_path):
    names = ["x", "y", "z"]
    errors = [f"{name}=1" for name in names]
    available = [*names, "a", "b", "c"]
    pairs = ["x:y=a", "x:z=b", "y:z=c"]
    columns = find_columns(available, names, errors=errors, correlations=pairs)
    rows = rows_of(
        tmp_path, columns, x=[1.0] * 3, y=[1.0] * 3, z=[1.0] * 3, a=[0.9] * 3, b=[0.9] * 3,
        c=[0.9, 0.9, -0.9],
    )  # fmt: skip
    assert list(rows.status) == ["ok", "ok", "errors and correlations make no covariance"]


HARD = {
    "text": ({"x": ["1", "2", "abc"]}, "got 'abc' in row 2"),
    "negative": ({"x_err": [1.0, -0.5, 1.0]}, "column 'x_err'; got -0.5 in row 1"),
    "all missing": ({"x": [NAN, NAN, NAN]}, "Expected measured values.*'x'; got none in 3 rows"),
    "no errors": ({"x_err": [NAN, NAN, NAN]}, "Expected measured values.*'x'"),
    "date": ({"x": pa.array([1, 2, 3], pa.timestamp("s"))}, "Expected numbers in column 'x'"),
    "correlation": ({"x_y_corr": [0.1, 1.5, 0.0]}, "between -1 and 1.*got 1.5 in row 1"),
}


@pytest.mark.parametrize("case", HARD)
def test_bad_cells_are_named(tmp_path, case):
    change, message = HARD[case]
    data = {"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], "x_err": [1.0] * 3, "y_err": [1.0] * 3}
    data |= {"x_y_corr": [0.0] * 3} | change
    with pytest.raises(ValueError, match=message):
        rows_of(tmp_path, find_columns(list(data), ["x", "y"]), **data)


LAWS = {
    "gaussian": lambda e: e**2,
    "laplace": lambda e: e**2,
    "uniform": lambda e: e**2 / 3,
    "student-t": lambda e: e**2 * 5 / 3,
    "split-normal": lambda e: e**2,
}


@pytest.mark.parametrize("kind", LAWS)
def test_noise_laws_by_name(tmp_path, kind):
    columns = find_columns(["x", "x_err"], ["x"], noise=kind, df=5.0)
    rows = rows_of(tmp_path, columns, x=[1.0, 2.0], x_err=[0.5, 2.0])
    error = np.array([[0.5], [2.0]])
    assert np.allclose(rows.rows.noise.variance(), LAWS[kind](error))
    if kind != "gaussian":
        with pytest.raises(ValueError, match="above 0, because the noise is"):
            rows_of(tmp_path, columns, x=[1.0, 2.0], x_err=[0.5, 0.0])


def test_asymmetric_errors_are_on_their_sides(tmp_path):
    columns = find_columns(["x", "x_err_lo", "x_err_hi"], ["x"])
    rows = rows_of(tmp_path, columns, x=[1.0] * 2, x_err_lo=[0.1] * 2, x_err_hi=[3.0] * 2)
    far_above, far_below = np.full((2, 1), -2.0), np.full((2, 1), 2.0)  # n = w - v
    assert (rows.rows.noise.log_prob(far_above) > rows.rows.noise.log_prob(far_below)).all()


def test_units_of_errors_are_converted(tmp_path):
    from astropy.table import Table

    table = Table({"ra": [1.0, 2.0], "ra_error": [1.0, 3.6]})
    table["ra"].unit, table["ra_error"].unit = "deg", "mas"
    table.write(tmp_path / "t.fits")
    source = open_table(tmp_path / "t.fits")
    columns = find_columns(source, ["ra"])
    rows = read_rows(RowReader(columns, source))
    assert np.allclose(np.sqrt(rows.rows.noise.variance()[1]), 1e-6, rtol=1e-9)
    table["ra"].unit = "arcsec"
    table.write(tmp_path / "other.fits")
    with pytest.raises(ValueError, match="Expected column 'ra' in deg, as in the fit; got arcsec"):
        RowReader(columns, open_table(tmp_path / "other.fits"))
    table["ra"].unit = "s"
    table.write(tmp_path / "odd.fits")
    with pytest.raises(ValueError, match="in a unit like"):
        RowReader(columns, open_table(tmp_path / "odd.fits"))


def lengths(tmp_path, unit, columns=("x:x=v", "y:y=u", "x:y=c"), **units):
    """Read x in metres and y in seconds, with variances and covariances in units of their own."""
    from astropy.table import Table

    data = {"x": [1.0, 2.0], "y": [1.0, 2.0], "v": [1e-4, 4e-4], "u": [9.0] * 2, "c": [0.01] * 2}
    table = Table(data)
    for name, its_unit in {"x": "m", "y": "s", "v": unit, "u": "s2", "c": "km s", **units}.items():
        table[name].unit = its_unit
    table.write(tmp_path / "t.fits")
    source = open_table(tmp_path / "t.fits")
    found = find_columns(source, ["x", "y"], covariances=columns)
    return read_rows(RowReader(found, source))


def test_units_of_covariances_are_converted(tmp_path):
    rows = lengths(tmp_path, "km2")
    assert np.allclose(rows.rows.noise.covariance()[0], [[100.0, 10.0], [10.0, 9.0]])
    assert np.allclose(rows.rows.noise.covariance()[1], [[400.0, 10.0], [10.0, 9.0]])


@pytest.mark.parametrize(
    ("unit", "other", "message"),
    [
        ("km", {}, r"Expected column 'v' in a unit like m \* m; got km. Convert it"),
        ("m2", {"c": "m2"}, r"Expected column 'c' in a unit like m \* s; got m2. Convert it"),
    ],
)
def test_units_of_covariances_that_cannot_be_converted(tmp_path, unit, other, message):
    with pytest.raises(ValueError, match=message):
        lengths(tmp_path, unit, **other)


def test_exact_values_share_no_covariance(tmp_path):
    columns = find_columns(["x", "y", "vx", "vy", "c"], ["x", "y"], covariances=PAIRS)
    data = {"x": [1.0] * 3, "y": [2.0] * 3, "vx": [0.0, 0.0, 1.0], "vy": [1.0] * 3}
    rows = rows_of(tmp_path, columns, **data, c=[0.0, 0.5, 0.5])
    assert list(rows.status) == ["ok", "errors and correlations make no covariance", "ok"]


ODD = ["a=b", "c:d", "e,f", "a", "é x"]


def test_names_with_signs_of_their_own():
    """Whatever a column is called, it can be named."""
    available = [*ODD, "s:1", "r=2", "t,u"]
    names = split_list(["a=b", "c:d", "e,f", "a,é x"], available)
    assert names == ODD
    errors = ["a=b=s:1", "c:d=r=2", "e,f=t,u", "a=0.5,é x=0.1:0.2"]
    found = find_columns(available, names, errors=errors)
    expected = (("s:1",) * 2, ("r=2",) * 2, ("t,u",) * 2, (0.5, 0.5), (0.1, 0.2))
    assert found.errors == expected
    pairs = parse_pairs(["a=b:c:d=r=2", "c:d:e,f=t,u"], names, "correlations")
    assert pairs == (("a=b", "c:d", "r=2"), ("c:d", "e,f", "t,u"))
    with pytest.raises(ValueError, match="Expected correlations= as FIRST:SECOND=COLUMN"):
        parse_pairs(["a:a=t,u"], names, "correlations")
