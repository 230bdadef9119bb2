"""``deconflow regress``: what it says, writes and draws."""

import matplotlib.image
import numpy as np
import pyarrow.csv
import pytest
from program.running import forget_the_table, refused, run, succeed
from program.test_commands import measurements
from tables.catalogue import catalogue

import deconflow


def mine(folder, **options):
    w, noise = measurements(catalogue())
    return deconflow.load(folder / "model").regress("y", on="x", w=w, noise=noise, **options)


def test_it_is_that_of_the_library(folder):
    output = succeed("regress", "model", "y", "stars.csv", "--on", "x", "-o", "curve.csv")
    found = mine(folder)
    assert found.summary() in output
    curve = pyarrow.csv.read_csv("curve.csv")
    assert curve.column_names == ["x", "mean", "low", "high", "q16", "q50", "q84"]
    x, band = found.grid(), found.band()
    wanted = [x, band.value, band.lower, band.upper, *found.quantile([0.16, 0.5, 0.84], x)]
    np.testing.assert_allclose(np.column_stack(curve.columns), np.column_stack(wanted), rtol=1e-9)


def test_picture_and_pipe(folder):
    output = succeed("regress", "model", "x", "--on", "y", "-p", "a.png", "-o", "-", "-n", "5")
    assert "y,mean,low,high,q16,q50,q84" in output.splitlines()
    picture = matplotlib.image.imread("a.png")
    assert min(picture.shape[:2]) > 300
    assert picture.std() > 0.05


def test_a_table_that_is_gone(folder):
    forget_the_table(folder / "model")
    output = succeed("regress", "model", "y", "--on", "x", "-o", "curve.csv", "-p", "a.svg")
    assert "name it for standard errors" in output
    assert "+-" not in output
    assert pyarrow.csv.read_csv("curve.csv").column_names == ["x", "mean", "q16", "q50", "q84"]
    named = succeed("regress", "model", "y", "stars.csv", "--on", "x", "-n", "3")  # the twin
    assert named.count("+-") == 3


def test_several_columns(folder):
    rng = np.random.default_rng(0)
    v = rng.normal(size=(300, 2))
    w = np.column_stack([v, v @ [2, -1]]) + 0.2 * rng.normal(size=(300, 3))
    lines = ["a,b,c", *(",".join(map(str, row)) for row in w)]
    (folder / "abc.csv").write_text("\n".join(lines) + "\n")
    fit = ("--method", "xd", "--set", "n_components=1")
    succeed("fit", "abc.csv", "-c", "a,b,c", "--errors", "0.2", "-o", "abc", *fit)
    output = succeed("regress", "abc", "c", "--on", "a,b", "-n", "5")
    assert "slope of a  1.9" in output or "slope of a  2.0" in output
    for option in (("-o", "c.csv"), ("-p", "c.png")):
        line = refused("regress", "abc", "c", "--on", "a,b", *option)
        assert "Expected one column in --on for a curve or a picture; got a, b." in line


BAD = {
    "target": (("z", "--on", "x"), "Expected the column to predict among x, y; got 'z'."),
    "on": (("y", "--on", "q"), "Expected --on among x, y; got 'q'."),
    "itself": (("y", "--on", "y"), "Expected --on with some of x; got y."),
    "ending": (("y", "--on", "x", "-p", "a.doc"), "that ends in .png"),
    "format": (("y", "--on", "x", "-o", "a.odd"), "Expected"),
    "refits": (("y", "--on", "x", "-n", "1"), "greater than or equal to 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(folder, case):
    options, message = BAD[case]
    result = run("regress", "model", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert not list(folder.glob("a.*"))
