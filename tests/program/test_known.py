"""What is known of the truth: covariates, bounds, atoms and a background, by options."""

import re
from contextlib import chdir

import numpy as np
import pytest
from program.running import numbers, read, refused, succeed, write

import deconflow
from deconflow import XDGMM
from deconflow.tables import parse_atoms, parse_bounds

ONE = ("--method", "xd", "--set", "n_components=1", "-q")
#: What the program makes of these.
SETTINGS = {"n_components": 1, "floor": 0.1, "random_state": 0}
N = 150


def written(n=N):
    """Columns of a table whose truth depends on a number, a word, and its error."""
    rng = np.random.default_rng(0)
    age, kind = rng.normal(size=n).round(4), rng.choice(["red", "blue"], n).astype(object)
    sd = rng.uniform(0.1, 0.5, (n, 2)).round(4)
    v = np.column_stack([2 + np.abs(age) + (kind == "red"), rng.normal(size=n)])
    v[::5] = 0.0
    w = np.maximum(v + sd * rng.normal(size=(n, 2)), -5 * sd).round(4)
    return {"x": w[:, 0], "y": w[:, 1], "x_err": sd[:, 0], "y_err": sd[:, 1],
            "age": age.astype(str).astype(object), "kind": kind}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a table and models of it, one for each option; what the fits have said."""
    folder = tmp_path_factory.mktemp("known")
    columns = written()
    columns["age"][3], columns["kind"][5] = "", "NA"
    write(folder / "t.csv", **columns)
    fits = {
        "columns": ("-c", "x", "--given", "age,kind"),
        "noise": ("-c", "x,y", "--given", "noise", "--given", "kind"),
        "parts": ("-c", "x", "--atoms", "0", "--background", "uniform"),
        "points": ("-c", "x,y", "--atoms", "0:0", "--bounds", "x=-1:,y=-9:9"),
    }
    with chdir(folder):
        said = {
            name: succeed("fit", "t.csv", *options, "-o", name, *ONE)
            for name, options in fits.items()
        }
    return folder, said


@pytest.fixture
def folder(models, monkeypatch):
    monkeypatch.chdir(models[0])
    return models[0]


def rows(*names, only=slice(None)):
    """Measurements, errors and words of the table, by hand."""
    columns = written()
    w = np.column_stack([columns[name] for name in names])
    sd = np.column_stack([columns[f"{name}_err"] for name in names])
    age, kind = columns["age"].astype(float), columns["kind"]
    return w[only], sd[only], age[only], kind[only]


def usable(*bad):
    return np.setdiff1d(np.arange(N), bad)


def denoised(model, *options):
    output = f"{model}.parquet"
    succeed("denoise", model, "t.csv", "-o", output, "-q", "--chunk", 40, *options)
    return read(output)


@pytest.mark.slow
def test_covariates_are_those_of_python(folder):
    keep = usable(3, 5)
    w, sd, age, kind = rows("x", only=keep)
    given = {"age": age, "kind": kind}
    wanted = XDGMM(**SETTINGS).fit(w, noise=sd, given=given, names=["x"])
    assert deconflow.load("columns").known_ == wanted.known_
    out = denoised("columns")
    posterior = wanted.posterior(w, noise=sd, given=given)
    np.testing.assert_allclose(numbers(out, "x_mean")[keep], posterior.mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(numbers(out, "x_sd")[keep], posterior.sd[:, 0], rtol=1e-8)
    assert np.isnan(numbers(out, "x_mean")[[3, 5]]).all()
    status = out["deconflow_status"].to_pylist()
    assert status[3] == "no value in age, which is given"
    assert status[5] == "no value in kind, which is given"
    assert set(status) - {status[3], status[5]} == {"ok"}
    said = succeed("score", "columns", "t.csv", "-q", "-o", "scored.csv")
    scores = wanted.score_observations(w, noise=sd, given=given)
    np.testing.assert_allclose(numbers("scored.csv", "log_density")[keep], scores, rtol=1e-8)
    assert f"mean log p(w) {scores.mean():.6f}" in said


def test_parts_are_those_of_python(folder):
    w, sd, _, _ = rows("x")
    known = {"atoms": [0.0], "background": "uniform"}
    wanted = XDGMM(**SETTINGS, **known).fit(w, noise=sd, names=["x"])
    out, answer = denoised("parts", "--samples", "1"), wanted.posterior(w, noise=sd)
    pairs = {"x_mean": answer.mean[:, 0], "prob_x_at_0": answer.probability_of_atoms[:, 0],
             "prob_background": answer.probability_of_background}  # fmt: skip
    for name, values in pairs.items():
        np.testing.assert_allclose(numbers(out, name), values, rtol=1e-6, atol=1e-9)
    assert numbers(out, "prob_x_at_0")[::5].mean() > numbers(out, "prob_x_at_0").mean() + 0.3
    names = out.column_names
    assert names.index("prob_background") == names.index("prob_x_at_0") + 1
    assert names.index("prob_background") + 1 == names.index("x_sample_1")
    succeed("sample", "parts", "-n", 100, "-o", "draws.csv")
    share = (numbers("draws.csv", "x") == 0).mean()
    assert abs(share - wanted.atom_weights_[0]) < 0.2
    assert share > 0


def test_points_within_bounds(folder):
    w, sd, _, _ = rows("x", "y")
    known = {"atoms": [[0.0, 0.0]], "bounds": {"x": (-1, None), "y": (-9, 9)}}
    wanted = XDGMM(**SETTINGS, **known).fit(w, noise=sd, names=["x", "y"])
    model = deconflow.load("points")
    np.testing.assert_allclose(model.atom_weights_, wanted.atom_weights_, rtol=1e-8)
    np.testing.assert_allclose(model.sample(20, 0), wanted.sample(20, 0), rtol=1e-8)
    assert "prob_x_at_0_y_at_0" in denoised("points").column_names
    assert "prob_background" not in denoised("points").column_names
    assert (model.sample(500, 0)[:, 0] >= -1).all()


SENTENCES = {
    "columns": ["Location and spread of the true values are curves of age, kind."],
    "noise": ["curves of log error of x, log error of y, kind."],
    "parts": ["of the true values are exactly 0.", "of the rows are background."],
    "points": ["The true x is at least -1.", "The true y is between -9 and 9.", "exactly 0, 0."],
}


@pytest.mark.parametrize("name", SENTENCES)
def test_what_became_of_it_is_said(folder, models, name):
    info = succeed("info", name)
    for sentence in SENTENCES[name]:
        assert sentence in models[1][name]
        assert re.search(rf"^known      .*{re.escape(sentence)}", info, re.MULTILINE)


def test_regressions_of_the_mix_have_no_errors(folder):
    said = succeed("regress", "noise", "y", "t.csv", "--on", "x")
    assert "a model with covariates is not refitted" in said
    assert "slope of x" in said


def test_models_saved_from_python(folder):
    w, sd, _, kind = rows("x")
    XDGMM(1).fit(w, noise=sd, given={"kind": kind}, names=["x"]).save("of_python")
    assert "curves of kind." in succeed("info", "of_python")
    assert denoised("of_python")["deconflow_status"].to_pylist().count("ok") == N - 1


def test_words_that_the_fit_does_not_know(folder):
    columns = written(6)
    columns["kind"][:3] = ["red", "pink", "blue"]
    write(folder / "new.csv", **columns)
    said = succeed("denoise", "columns", "new.csv", "-o", "new.parquet", "-q")
    assert """5 rows; 1 marked "kind is 'pink', which no row of the fit had\"""" in said
    status = read("new.parquet")["deconflow_status"].to_pylist()
    assert status[1] == "kind is 'pink', which no row of the fit had"
    assert status.count("ok") == 5


def test_whole_numbers_as_words(here):
    """Kinds are read alike from text and from a table with types; -999 may be missing."""
    columns = written(60)
    codes = np.array(["1", "b"] * 30, dtype=object)
    codes[0] = "-999"
    columns["kind"] = codes
    write(here / "t.csv", **columns)
    said = succeed(
        "fit", "t.csv", "-c", "x", "--given", "kind", "--missing", "-999", "-o", "m", *ONE
    )
    assert "given kind" in said
    columns["kind"] = np.array(["1"] * 60, dtype=object)
    write(here / "ones.csv", **columns)
    for output in ("out.csv", "out.parquet"):
        assert succeed("denoise", "m", "ones.csv", "-o", output, "-q").startswith("60 rows;")


OTHER = ("fit", "t.csv", "-c", "x", "-o", "bad")
FIT = (*OTHER, *ONE)
BAD = {
    (*FIT, "--given", "aeg"): "Expected the column 'aeg' in t.csv; got a table with x, y, x_err, "
    "y_err, age, kind. Did you mean 'age'?",
    (*FIT, "--given", "x"): "Expected --given with columns that are not measured; got 'x'. Take it "
    "out of one of them.",
    (*FIT, "--given", ","): "Expected --given with columns, or the word noise; got none.",
    (*FIT, "--given", "noise", "--errors", "x=0.1"): "Expected errors that differ by row with "
    "--given noise; got the same for all rows.",
    (*FIT, "--bounds", "z=0:"): "Expected --bounds as NAME=LOW:HIGH, NAME=LOW: or NAME=:HIGH, with "
    "NAME one of x; got 'z=0:'.",
    (*FIT, "--bounds", "x=0"): "Expected --bounds as NAME=LOW:HIGH, NAME=LOW: or NAME=:HIGH, with "
    "NAME one of x; got 'x=0'.",
    (*FIT, "--bounds", ""): "Expected values after --bounds; got none.",
    (*FIT, "--bounds", "x=0:,x=:9"): "Expected one bound for column 'x'; got two in --bounds.",
    (*FIT, "--bounds", "x=2:1"): "Expected bounds with low below high; got (2.0, 1.0)",
    (*FIT, "--bounds", "x=3:"): "Expected measurements within 8 errors of the bounds; got x = ",
    (*FIT, "--bounds", "x=-9:", "--set", "bounds=[0,1]"): "Expected bounds once; got --bounds and "
    "--set bounds. Leave one out.",
    (*FIT, "--atoms", "a"): "Expected --atoms with numbers, such as 0; got 'a'.",
    (*FIT, "--atoms", "0:0"): "Expected --atoms with numbers, such as 0; got '0:0'.",
    (*FIT, "-c", "y", "--atoms", "0"): "Expected --atoms with points of x:y, such as 0:0; got '0'.",
    (*FIT, "--atoms", "-20", "--bounds", "x=-9:"): "Expected atoms within the bounds of the truth; "
    "got [-20.0]. Move the bounds, or leave that atom out.",
    (*FIT, "--background", "flat"): "Expected --background uniform; got 'flat'.",
    (*OTHER, "-m", "flow", "--atoms", "0"): "Expected no --atoms with --method flow; got one. Use "
    "--method auto, xd, bayes or spline, which take it.",
    (*OTHER, "-m", "kde", "--bounds", "0:"): "Expected no --bounds with --method kde; got one. Use "
    "--method auto, xd, bayes, flow or spline, which take it.",
    (*OTHER, "-m", "kde", "--given", "age"): "Expected no --given with --method kde; got one. Use "
    "--method auto, xd, bayes or flow, which take it.",
    (*FIT, "--given", "age", "--bounds", "x=-9:"): "Expected no bounds with covariates; "
    "got some. Leave them out.",
    ("report", "columns", "--self-test", "1"): "Expected no covariates with a "
    "self-test; got some.",
    ("compare", "t.csv", "-c", "x", "--background", "uniform"): "Expected no --background with "
    "--method flow; got one.",
}  # fmt: skip


@pytest.mark.parametrize("command", BAD, ids=" ".join)
def test_bad_input_ends_in_one_line(folder, command):
    assert refused(*command).startswith(f"deconflow: {BAD[command]}")
    assert not (folder / "bad").exists()


def test_syntax():
    names = ["a", "a=b", "c,d"]
    assert parse_bounds(["a=b=0:1", "c,d=:-2e3"], names) == {"a=b": (0, 1), "c,d": (None, -2000)}
    assert parse_atoms([" 1 , -2"], ["a"]) == [1, -2]
    for bad in ("a=nan:1", "a=:", "a=1:2:3", "a"):
        with pytest.raises(ValueError, match="Expected bounds="):
            parse_bounds([bad], names)
