"""How rows were measured, by options: each kind gives the model that Python gives."""

import json
from dataclasses import asdict
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from program.running import numbers, read, refused, run, succeed, write

import deconflow
from deconflow import XDGMM, Certificate, noise
from deconflow.tables import find_columns

ONE = ("--method", "xd", "--set", "n_components=1", "-q")
#: What the program makes of these.
SETTINGS = {"n_components": 1, "floor": 0.1, "random_state": 0}
N = 60


def made(*names, rows=None, **known):
    """Fit the same by hand."""
    return XDGMM(**SETTINGS).fit(rows, **known, names=list(names))


def assert_round_trip(table, model, w, name="x", chunk=("--chunk", 50), **arguments):
    """What the program answers of its model is what Python answers of its own."""
    saved = deconflow.load("m")
    at = np.linspace(w.min(), w.max(), 7)[:, None] if w.shape[1] == 1 else w[:7]
    np.testing.assert_allclose(saved.score_samples(at), model.score_samples(at), rtol=1e-6)
    succeed("denoise", "m", table, "-o", "out.parquet", "-q", *chunk, "--seed", 0)
    answer = model.posterior(w, **arguments)
    tolerance = (
        {"rtol": 1e-6}
        if "effective_sample_size" not in read("out.parquet").column_names
        else {"atol": 0.5 * answer.sd.mean()}
    )
    np.testing.assert_allclose(
        numbers("out.parquet", f"{name}_mean"), answer.mean[:, 0], **tolerance
    )
    succeed("score", "m", table, "-o", "scored.parquet", "-q")
    np.testing.assert_allclose(
        numbers("scored.parquet", "log_density"), model.score_observations(w, **arguments),
        atol=0.02,
    )  # fmt: skip


def as_read(values, reading):
    """Read values, with the law of their likelihood; each that differs takes time to make."""
    w, law = reading.read(np.asarray(values, dtype=float)[:, None])
    return w, law


def with_limits():
    """Values of which those below their limit were not detected."""
    rng = np.random.default_rng(2)
    sd = rng.uniform(0.2, 0.6, (N, 1)).round(4)
    w = (rng.normal(size=(N, 1)) + sd * rng.normal(size=(N, 1))).round(4)
    flags = np.where(w < -0.3, -1, 0)
    return np.where(flags, -0.3, w), sd, flags


def limits():
    w, sd, flags = with_limits()
    known = {"noise": sd, "limits": flags}
    return {"x": w, "x_err": sd, "x_limit": flags}, w, known, {"noise": sd}


def poisson():
    rng = np.random.default_rng(0)
    time = rng.choice([1.5, 4.0], N)
    counts = rng.poisson(rng.gamma(9.0, 1 / 3, N) * time)
    w, law = as_read(counts, noise.poisson(time[:, None]))
    return {"x": counts, "time": time}, w, {"noise": law}, {"noise": np.ones((N, 1))}


def free():
    rng = np.random.default_rng(3)
    sd = np.where(np.arange(300) % 2, 0.05, 1.0)[:, None]
    w = (rng.normal(size=sd.shape) + 2 * sd * rng.normal(size=sd.shape)).round(5)
    known = {"noise": noise.gaussian(sd=sd, scale="fit")}
    return {"x": w, "x_err": sd}, w, known, {"noise": sd}


def relative():
    rng = np.random.default_rng(6)
    sd = rng.uniform(0.1, 0.3, (20, 1)).round(4)
    w = (rng.gamma(9, 1, (20, 1)) * np.exp(sd * rng.normal(size=(20, 1)))).round(4)
    read, law = as_read(w[:, 0], noise.multiplicative(noise.gaussian(sd=sd)))
    return {"x": w, "x_err": sd}, read, {"noise": law}, {"noise": sd}


def seen(**rule):
    """Rows that are seen if what was measured is above zero."""
    rng = np.random.default_rng(7)
    sd = rng.uniform(0.2, 0.6, (120, 1)).round(4)
    w = (rng.normal(0.4, 1, (120, 1)) + sd * rng.normal(size=(120, 1))).round(4)
    w, sd = w[w[:, 0] > 0], sd[w[:, 0] > 0]
    return {"x": w, "x_err": sd}, w, {"noise": sd, **rule}, {"noise": sd}


def seen_by_truth():
    grid = {"edges_0": np.array([-9.0, 0.5, 20.0]), "values": np.array([0.3, 1.0])}
    np.savez("grid.npz", **grid)
    return seen(selection=deconflow.Efficiency.from_npz("grid.npz"), selection_of="truth")


KINDS = {
    "limits": (limits, (), "x with error x_err; limits in x_limit (gaussian)", "limits in x_limit"),
    "counts": (
        poisson, ("--noise", "poisson", "--exposure", "time"),
        "x counted, exposure time (poisson)", "column     x counted, exposure time",
    ),
    "free errors": (
        free, ("--fit-errors", "scale"), "x with error x_err, scale to be estimated (gaussian)",
        "factors on the stated errors: x ",
    ),
    "relative errors": (
        relative, ("--noise", "lognormal"), "x with error x_err (lognormal)", "lognormal"
    ),
    "selected": (
        partial(seen, selection="x > 0"), ("--select", "x>0"), "Selected by x above 0", "known "
    ),
    "selected by truth": (
        seen_by_truth, ("--efficiency", "grid.npz", "--select-of", "truth"),
        "efficiency on a grid", "efficiency on a grid",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_the_model_that_python_gives(here, kind):
    make, options, said, remembered = KINDS[kind]
    columns, w, known, plain = make()
    write(here / "t.csv", **{name: np.ravel(values) for name, values in columns.items()})
    assert said in succeed("fit", "t.csv", "-c", "x", *options, "-o", "m", *ONE)
    assert remembered in succeed("info", "m")
    ours = {name: value for name, value in known.items() if not name.startswith("selection")}
    model = made("x", rows=w, **known)
    assert_round_trip("t.csv", model, w, chunk=(), **ours)
    at = np.linspace(w.min(), w.max(), 7)[:, None]
    twin = made("x", rows=columns["x"].reshape(len(w), 1), **plain)  # as if nothing was said
    assert np.abs(twin.score_samples(at) - deconflow.load("m").score_samples(at)).max() > 0.02


def test_what_a_model_cannot_be_checked_by(here):
    for make, options, words in (
        (limits, (), "Expected rows without limits for a self-test"),
        (seen, ("--select", "x>0"), "Expected no selection with a self-test"),
    ):
        write(here / "t.csv", **{name: np.ravel(values) for name, values in make()[0].items()})
        succeed("fit", "t.csv", "-c", "x", *options, "-o", "m", *ONE)
        assert words in run("report", "m", "--self-test", 1, "-o", "r.html").output
    succeed("report", "m", "-o", "r.html")


def test_replicates(here):
    """New rows are read with the errors that the fitted ones had, also one alone."""
    rng = np.random.default_rng(4)
    truth, errors = rng.normal(size=(N, 1, 2)), rng.normal(size=(N, 2, 2)) * [0.5, 0.2]
    errors[..., 1] += 0.3 * errors[..., 0]
    values = (truth + errors).round(5)
    names = {"a": values[:, 0, 0], "b": values[:, 1, 0], "c": values[:, 0, 1], "d": values[:, 1, 1]}
    write(here / "t.csv", **names)
    said = succeed(
        "fit",
        "t.csv",
        "-c",
        "x,y",
        "--replicates",
        "x=a,b",
        "--replicates",
        "y=c,d",
        "-o",
        "m",
        *ONE,
    )
    assert "x by replicates a, b (gaussian)" in said
    w, law = noise.from_replicates(values)
    model = made("x", "y", rows=w, noise=law)
    assert_round_trip("t.csv", model, w, noise=law)
    names = {name: [*column[:1], ""] for name, column in names.items()}
    write(here / "one.csv", **names)
    assert "1 rows; 1 marked 'no measured value'" in succeed(
        "denoise", "m", "one.csv", "-o", "one.parquet", "-q"
    )
    np.testing.assert_allclose(
        numbers("one.parquet", "y_sd")[0], model.posterior(w, noise=law).sd[0, 1], rtol=1e-6
    )


def drawn():
    """Posterior samples of two columns, and the log prior that they were drawn with."""
    rng = np.random.default_rng(8)
    w, sd = rng.normal(size=(N, 1, 2)), rng.uniform(0.3, 0.5, (N, 1, 2))
    draws = (w + sd * rng.normal(size=(N, 60, 2))).round(5)
    return draws, (-0.5 * draws[..., 0] ** 2 / 9).round(5)


def write_lists(path, draws, prior):
    columns = {"x": list(draws[..., 0]), "y": list(draws[..., 1]), "p": list(prior)}
    pq.write_table(pa.table({**columns, "name": [f"s{i}" for i in range(len(draws))]}), path)


def test_posterior_samples_in_lists_and_in_rows(here):
    """The same model, whether cells hold the draws, or rows do in any order."""
    draws, prior = drawn()
    write_lists(here / "t.parquet", draws, prior)
    said = succeed("fit", "t.parquet", "-c", "x,y", "--log-prior", "p", "-o", "m", *ONE)
    assert "x by draws in lists, less p (posterior samples)" in said
    w, law = noise.from_samples(draws, log_prior=prior)
    model = made("x", "y", rows=w, noise=law)
    assert_round_trip("t.parquet", model, w, chunk=(), noise=law)
    assert read("out.parquet")["name"].to_pylist()[3] == "s3"
    star, draw = np.divmod(np.arange(draws[..., 0].size), draws.shape[1])
    order = np.lexsort([np.random.default_rng(0).permutation(len(star)), star != 0])
    rows = {
        "star": star,
        "x": draws[star, draw, 0],
        "y": draws[star, draw, 1],
        "p": prior[star, draw],
    }
    write(here / "long.csv", **{name: values[order] for name, values in rows.items()})
    said = succeed(
        "fit", "long.csv", "-c", "x,y", "--id", "star", "--log-prior", "p", "-o", "long", *ONE
    )
    assert "x by draws of each star, less p" in said
    assert f"{N} of {N} rows can be used" in said
    np.testing.assert_allclose(deconflow.load("long").sample(5, 0), model.sample(5, 0), rtol=1e-6)
    said = succeed("denoise", "long", "long.csv", "-o", "out.csv", "-q", "--quantiles", "0.5")
    assert said.startswith(f"{N} rows;")
    found = read("out.csv")
    assert found.column_names[0] == "star"
    assert "x" not in found.column_names
    place = found["star"].to_pylist().index(7)
    expected = model.posterior(w, noise=law).mean[7, 0]
    assert numbers("out.csv", "x_mean")[place] == pytest.approx(expected, abs=0.1)
    assert "column     x by draws of each star" in succeed("info", "long")


def test_objects_whose_draws_cannot_be_used(here):
    draws, prior = drawn()
    write_lists(here / "t.parquet", draws, prior)
    succeed("fit", "t.parquet", "-c", "x", "-o", "m", *ONE)
    lists = [*draws[:8, :, 0], [], None, [1.0, 2.0], [1.0, float("nan"), 3.0, 4.0], [2.0] * 5]
    pq.write_table(pa.table({"x": lists}), here / "odd.parquet")
    succeed("denoise", "m", "odd.parquet", "-o", "out.parquet", "-q")
    status = read("out.parquet")["deconflow_status"].to_pylist()
    few, broken = "fewer than 3 draws", "a draw is missing or infinite"
    assert status == ["ok"] * 8 + [few, few, few, broken, "all draws of x are equal"]


FIT = ("fit", "t.csv", "-c", "x", "-o", "bad", *ONE)
BAD = {
    (*FIT, "--select", "x<2"): "Expected rows that --select lets through; got x = 3 in row 2 (the "
    "first is 0). Leave such rows out, or change the range.",
    (*FIT, "--select", "z<1"): "Expected --select as 'COLUMN>NUMBER', 'COLUMN<NUMBER' or "
    "'NUMBER<COLUMN<NUMBER', with one of the columns x; got 'z<1'.",
    (*FIT, "--select", "x<9", "--select-of", "all"): "Expected --select-of measured or truth; got "
    "'all'.",
    (*FIT, "--select-of", "truth"): "Expected --select or --efficiency with --select-of; got "
    "neither.",
    (*FIT, "--select", "x<9", "--efficiency", "g.npz"): "Expected one of --select and "
    "--efficiency; got both.",
    (*FIT, "--efficiency", "none.npz"): "Expected a grid of chances in none.npz",
    (*FIT, "--efficiency", "t.csv"): "Expected a grid of chances in t.csv, made by numpy.savez; "
    "got",
    (*FIT, "--limits", "x=z"): "Expected the column 'z'",
    (*FIT, "--limits", "z=x_err"): "Expected --limits as NAME=COLUMN, with NAME one of x, or none; "
    "got 'z=x_err'.",
    (*FIT, "--replicates", "x"): "Expected two or more different columns of --replicates for 'x'; "
    "got x.",
    (*FIT, "--replicates", "x,x_err", "--errors", "0.1"): "Expected no --errors with posterior "
    "samples, replicates or counts, which have no separate errors; got 'x=0.1'.",
    (*FIT, "--log-prior", "x_err"): "Expected --log-prior with posterior samples only",
    (*FIT, "--id", "star"): "Expected the column 'star'; got a table",
    (*FIT, "--id", "x_err", "--groups", "x_err"): "Expected no --groups, --weights or --given "
    "with --id; got one. Leave it out.",
    (*FIT, "--noise", "binomial"): "Expected --trials with a column, for --noise binomial; got "
    "none.",
    (*FIT, "--trials", "x"): "Expected --trials with --noise binomial only; got it with "
    "'gaussian'.",
    (*FIT, "--noise", "poisson"): "Expected counts in column 'x', whole numbers of at least 0; got "
    "1.5 in row 0 (the first is 0). Correct it, or choose another --noise.",
    (*FIT, "--fit-errors", "size"): "Expected --fit-errors with scale, jitter, correlation; got "
    "'size'.",
    (*FIT, "--fit-errors", "scale", "--noise", "laplace"): "Expected one kind of measurement; got "
    "--noise laplace and --fit-errors. Leave one out.",
    (*FIT, "--replicates-by", "x_err"): "Expected --fit-errors with --replicates-by",
    (*FIT, "--fit-errors", ""): "Expected --fit-errors with scale, jitter, correlation; got none.",
}  # fmt: skip


@pytest.mark.parametrize("command", BAD, ids=" ".join)
def test_bad_input_ends_in_one_line(here, command):
    write(here / "t.csv", x=[1.5, "", 3, 0.4, 0.7], x_err=[0.5] * 5)
    assert refused(*command).startswith(f"deconflow: {BAD[command]}")
    assert not (here / "bad").exists()


DAMAGES = ({}, {"limits": 3}, {"limits": ["a", "b"]}, {"errors": [["a"]]}, {"noise": None},
           {"replicate_covariance": [[1.0, 2.0]]})  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_descriptions(here, damage):
    w, sd, flags = with_limits()
    write(here / "t.csv", x=w[:, 0], x_err=sd[:, 0], x_limit=flags[:, 0])
    columns = asdict(find_columns(["x", "x_err"], ["x"]))
    about = {
        "command": None, "date": "", "fitted": "", "known": [], "method": "xd", "seconds": 1.0,
        "special_settings": {}, "certificate": asdict(Certificate()),
        "table": {"path": "t.csv", "rows": 1, "used": 1, "columns": [], "weights": None},
        "columns": columns | damage,
    }  # fmt: skip
    made("x", rows=w, noise=sd).save("m", extra_files={"table.json": json.dumps(about)})
    result = run("denoise", "m", "t.csv", "-o", "out.csv", "-q")
    assert result.exit_code == (0 if damage == {} else 2), result.output
    if damage != {}:
        assert result.output.startswith("deconflow: Expected a ")
