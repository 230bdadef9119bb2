"""Rows that count more or less than others."""

import numpy as np
import pytest
from program.running import XD, refused, succeed
from tables.catalogue import catalogue, text

from deconflow import XDGMM
from deconflow.program.model_folder import load as load_folder
from deconflow.program.plot import by_weight, measured_rows

FIT = ("-c", "x,y", "-o", "weighted", "--weights", "wt", *XD)


def write(folder, weights, name="weighted.csv"):
    table = catalogue()
    (folder / name).write_text(text(table.append_column("wt", [list(weights)])))


def test_rows_without_weight_do_not_count(folder):
    weights = np.arange(250) % 2
    write(folder, weights)
    output = succeed("fit", "weighted.csv", *FIT)
    assert "rows count by wt, from 0 to 1; 125 of them do not count" in output
    (folder / "half.csv").write_text(text(catalogue().filter(weights == 1)))
    succeed("fit", "half.csv", "-c", "x,y", "-o", "half", *XD)
    half, weighted = (XDGMM.load(folder / name).means_ for name in ("half", "weighted"))
    np.testing.assert_array_equal(weighted, half)
    whole = XDGMM.load(folder / "model").means_  # the negative twin
    assert not np.allclose(weighted, whole)


def test_the_model_remembers_the_weights(folder):
    write(folder, 1 + np.arange(250) % 3)
    succeed("fit", "weighted.csv", *FIT)
    assert "weights    wt" in succeed("info", "weighted")
    same = succeed("regress", "weighted", "y", "--on", "x", "-n", "4")
    without = succeed("regress", "weighted", "y", "stars.csv", "--on", "x", "-n", "4")
    note = "weights in column 'wt', which stars.csv does not have: its rows count equally"
    assert note in without
    assert note not in same
    succeed("denoise", "weighted", "stars.csv", "-o", "denoised.csv")  # which needs no weights


def test_pictures_show_rows_as_often_as_they_count(folder):
    """Rows of the upper half have all the weight: no row below is shown, but the one named."""
    x = np.array(catalogue()["x"].to_pylist(), dtype=float)
    write(folder, (x > np.nanmedian(x)).astype(float))
    succeed("fit", "weighted.csv", *FIT)
    data = measured_rows(load_folder(folder / "weighted"), None)
    low = int(np.nanargmin(data.rows.w[:, 0]))
    shown = by_weight(data.rows, [low], 0).w[:, 0]
    assert shown[0] == data.rows.w[low, 0]
    assert np.nanmin(shown[1:]) > np.nanmedian(x)
    assert np.nanmin(data.rows.w[:, 0]) < np.nanmedian(x)  # the negative twin
    succeed("plot", "weighted", "-k", "corner", "--rows", str(data.places[low]), "-o", "p.png")
    line = refused("plot", "weighted", "-k", "diagnostics", "-o", "p.png")
    assert "rows that count equally for a picture of kind diagnostics; got weights" in line


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (-1.0, "got -1 in row 3 (the first is 0)"),
        (None, "got none in row 3 (the first is 0)"),
        ("much", "got 'much' in row 3"),
        (float("inf"), "got inf in row 3"),
    ],
)
def test_bad_weights_are_refused_by_row(folder, cell, message):
    write(folder, [cell if i == 3 else "1" if cell == "much" else 1.0 for i in range(250)])
    line = refused("fit", "weighted.csv", *FIT)
    assert "'wt'" in line
    assert message in line


def test_weights_are_no_measured_column(folder):
    fit = ("fit", "stars.csv", "-c", "x", "-o", "no", *XD, "--weights")
    assert "Expected --weights as a column that is not measured; got 'x'." in refused(*fit, "x")
    assert "Expected the column 'z'" in refused(*fit, "z")


def test_methods_are_compared_by_weights():
    from deconflow.program.compare import verdict

    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=40) for name in ("xd", "kde")}
    some = {name: values[:20] for name, values in scores.items()}
    weights = np.repeat([1.0, 0.0], 20)
    assert list(verdict(scores, weights)) == list(verdict(some))
    assert list(verdict(scores, weights)) != list(verdict(scores))
