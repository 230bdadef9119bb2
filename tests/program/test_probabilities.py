"""Probabilities of ranges, and of wrong signs, as columns of a table."""

import math

import numpy as np
import pytest
from program.running import read, refused, succeed
from program.test_commands import measurements

from deconflow import XDGMM
from deconflow.ranges import parse_ranges

DENOISE = ("denoise", "model", "stars.csv", "-o", "out.parquet", "-q")


def test_columns_are_what_python_answers(folder):
    wanted = ("--prob", "x>0", "--prob", "x<2", "--prob", "0<y<2", "--prob", "y >= -1.5")
    succeed(*DENOISE, *wanted, "--signs", "--samples", 1, "--chunk", 70)
    out = read("out.parquet")
    w, noise = measurements(out)
    posterior = XDGMM.load("model").posterior(w, noise=noise)
    expected = {
        "x_sign_error": posterior.sign_error[:, 0],
        "y_sign_error": posterior.sign_error[:, 1],
        "prob_x_above_0": posterior.probability(lower=0)[:, 0],
        "prob_x_below_2": posterior.probability(upper=2)[:, 0],
        "prob_y_from_0_to_2": posterior.probability(0, 2)[:, 1],
        "prob_y_above_-1.5": posterior.probability(lower=-1.5)[:, 1],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(out[name], values, atol=1e-12)
    names = out.column_names
    assert [name for name in names if name in expected] == list(expected)
    assert names.index("prob_y_above_-1.5") + 1 == names.index("x_sample_1")
    assert np.abs(out["prob_x_above_0"].to_numpy() - expected["prob_y_from_0_to_2"]).max() > 0.1


def test_probabilities_of_draws_are_their_shares(fitted_flow, tmp_path):
    table, out = fitted_flow / "stars.csv", tmp_path / "out.parquet"
    succeed("denoise", fitted_flow / "flow", table, "-o", out, "-q", "--prob", "x>0")
    shares = read(out)["prob_x_above_0"].to_numpy()
    np.testing.assert_allclose(400 * shares, np.round(400 * shares), atol=1e-9)
    assert 0 < shares.mean() < 1


RANGES = {
    "x>0": ("x", 5e-324, math.inf, "prob_x_above_0"),
    "x>=0": ("x", 0.0, math.inf, "prob_x_above_0"),
    " x <= 1e3 ": ("x", -math.inf, 1000.0, "prob_x_below_1000"),
    "2<x": ("x", math.nextafter(2, 3), math.inf, "prob_x_above_2"),
    "2>=x": ("x", -math.inf, 2.0, "prob_x_below_2"),
    "-1<=x<=-0.5": ("x", -1.0, -0.5, "prob_x_from_-1_to_-0.5"),
    "2>=x>=0": ("x", 0.0, 2.0, "prob_x_from_0_to_2"),
    "x>1>0": ("x>1", 5e-324, math.inf, "prob_x>1_above_0"),
    "a b<1": ("a b", -math.inf, math.nextafter(1, 0), "prob_a b_below_1"),
    "0<=x<=0": ("x", 0.0, 0.0, "prob_x_from_0_to_0"),
}


@pytest.mark.parametrize("said", RANGES)
def test_ranges(said):
    (found,) = parse_ranges([said, said], ["x", "x>1", "a b"])
    assert (found.name, found.lower, found.upper, found.column) == RANGES[said]


NO_RANGES = ("z>0", "x", "x>", "x=0", "x>a", "x>nan", "x>inf", "0<x>2", "2<x<0", "0<x<0", "", ">0")


@pytest.mark.parametrize("said", NO_RANGES)
def test_what_is_no_range_ends_in_one_line(folder, said):
    line = refused(*DENOISE, "--prob", said)
    assert "Expected --prob as 'COLUMN>NUMBER'" in line
    assert line.endswith(f"with one of the columns x, y; got {said!r}.")
    assert not (folder / "out.parquet").exists()


def test_two_ranges_of_one_column_name_are_refused(folder):
    line = refused(*DENOISE, "--prob", "x>0", "--prob", "x>=0")
    assert "got prob_x_above_0 again by 'x>=0'" in line
