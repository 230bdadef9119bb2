"""What columns of errors are called, in files and in data frames."""

import numpy as np
import pytest

from deconflow.tables import RowReader, error_columns, find_columns, open_table, read_rows

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


SKY = ["id", "plx", "g", "plx_uncertainty", "plx_flag", "error_in_g", "seed", "sequence"]
REFUSED = {
    "several": (["x", "x_err", "dx"], ["x"], (), r"several: x_err, dx\. Name it: err.*'x=x_err'"),
    "said for another": (["x", "y", "dx"], ["x", "y"], ["y=dx"], "the error of column 'x'"),
    "likely ones": (SKY, ["plx", "g"], (), r"may be plx_uncertainty, error_in_g, plx_flag\. Name"),
    "none": (["plx", "id"], ["plx"], (), r"got none of them\. Name it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_errors_that_are_not_found_are_asked_for(case):
    available, names, errors, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        find_columns(available, names, errors=errors)


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
