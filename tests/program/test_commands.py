"""Each command gives what the library gives, for every row in its place."""

import re

import numpy as np
import pyarrow as pa
import pytest
from program.running import read, refused, succeed
from tables.catalogue import N, catalogue, text

import deconflow
from deconflow import XDGMM, cli
from deconflow.noise import gaussian


def measurements(table):
    """What the catalogue's x and y mean, by hand."""
    w = np.column_stack([table["x"], table["y"]])
    sd = np.column_stack([table["x_err"], table["e_y"]])
    covariance = sd[:, :, None] * sd[:, None, :]
    covariance[:, 0, 1] *= table["x_y_corr"]
    covariance[:, 1, 0] = covariance[:, 0, 1]
    return w, gaussian(covariance=covariance)


def test_fit_is_that_of_the_library(folder):
    w, noise = measurements(catalogue())
    mine = XDGMM(2, floor=0.1, random_state=0).fit(w, noise=noise)
    saved = XDGMM.load(folder / "model")
    assert np.allclose(saved.means_, mine.means_)
    assert np.allclose(saved.covariances_, mine.covariances_)


def test_info(folder):
    output = succeed("info", "model")
    for words in (
        "xd (XDGMM)",
        "stars.csv",
        "250 used of 250",
        "x with error x_err",
        "floor = 0.1",
    ):
        assert words in output
    assert "max_iter" not in output  # a default


def test_denoise_is_the_posterior(folder):
    succeed("denoise", "model", "stars.csv", "-o", "out.parquet", "--correlations", "--chunk", 60)
    out = read("out.parquet")
    assert out.column_names[:9] == catalogue().column_names
    assert out["id"].to_pylist() == catalogue()["id"].to_pylist()
    w, noise = measurements(catalogue())
    posterior = XDGMM.load("model").posterior(w, noise=noise)
    for d, name in enumerate("xy"):
        assert np.allclose(out[f"{name}_mean"], posterior.mean[:, d])
        assert np.allclose(out[f"{name}_sd"], posterior.sd[:, d])
    correlation = posterior.covariance[:, 0, 1] / posterior.sd.prod(1)
    assert np.allclose(out["x_y_posterior_corr"], correlation)
    assert set(out["deconflow_status"].to_pylist()) == {"ok"}


def test_quantiles_and_draws(folder):
    succeed(
        "denoise", "model", "stars.csv", "-o", "out.csv", "--quantiles", "0.16,0.5,0.975",
        "--samples", 3,
    )  # fmt: skip
    out = read("out.csv")
    w, noise = measurements(catalogue())
    draws = XDGMM.load("model").posterior(w, noise=noise).sample(4000, random_state=1)
    for share, name in ((0.16, "q16"), (0.5, "q50"), (0.975, "q97_5")):
        below = (draws[:, :, 0] < out[f"x_{name}"].to_numpy()[:, None]).mean(1)
        assert np.abs(below - share).max() < 0.04  # five standard errors of a share
    shift = (out["x_sample_3"].to_numpy() - out["x_mean"]) / out["x_sd"].to_numpy()
    assert abs(np.std(shift) - 1) < 0.15
    assert not np.array_equal(out["x_sample_1"], out["x_sample_2"])


def test_rows_that_cannot_be_used_keep_their_place(folder):
    lines = text(catalogue(6)).splitlines()
    cells = [line.split(",") for line in lines]
    header = cells[0]
    cells[2][header.index("x")] = "inf"
    for name in ("x", "y"):
        cells[4][header.index(name) + (name == "y")] = ""  # the name has a comma of its own
    (folder / "odd.csv").write_text("\n".join(",".join(row) for row in cells) + "\n")
    output = succeed("denoise", "model", "odd.csv", "-o", "out.csv")
    assert "4 rows; 1 marked 'x is infinite', 1 marked 'no measured value'" in output
    out = read("out.csv")
    status = out["deconflow_status"].to_pylist()
    assert status == ["ok", "x is infinite", "ok", "no measured value", "ok", "ok"]
    assert [v is None for v in out["x_mean"].to_pylist()] == [s != "ok" for s in status]


def test_names_that_are_taken(folder):
    succeed("denoise", "model", "stars.csv", "-o", "one.csv")
    assert "Give --prefix" in refused("denoise", "model", "one.csv", "-o", "two.csv")
    succeed("denoise", "model", "one.csv", "-o", "two.csv", "--prefix", "new_")
    assert read("two.csv").column_names[-1] == "new_deconflow_status"


def test_score(folder):
    output = succeed("score", "model", "stars.csv", "-o", "out.parquet", "--chunk", 70)
    w, noise = measurements(catalogue())
    scores = XDGMM.load("model").score_observations(w, noise=noise)
    assert np.allclose(read("out.parquet")["log_density"], scores)
    mean, error = (float(x) for x in re.search(r"p\(w\) (\S+) \+- ([\d.]+)", output).groups())
    assert abs(mean - scores.mean()) < 1e-5
    assert abs(error - scores.std() / np.sqrt(N)) < 1e-5
    assert output.split(";")[0].endswith(succeed("score", "model", "stars.csv", "-q").split(";")[0])


def test_score_says_how_unusual_rows_are(folder):
    """P-values are those of the library, whatever the chunks; the last line counts them."""
    table = catalogue()
    x = np.array(table["x"]).copy()
    x[[3, 17]] = np.inf, 1e3
    table = table.set_column(table.column_names.index("x"), "x", pa.array(x))
    (folder / "odd.csv").write_text(text(table))
    outputs = []
    for chunk in (7, 100, 50_000):
        output = succeed("score", "model", "odd.csv", "-o", "out.parquet", "--chunk", chunk, "-q")
        out = read("out.parquet")
        assert out.column_names[-3:] == ["log_density", "p_value", "deconflow_status"]
        outputs.append((output, out["p_value"].to_pylist()))
    assert outputs[0] == outputs[1] == outputs[2]
    assert succeed("score", "model", "odd.csv", "-q") == output
    w, noise = measurements(table)
    used = np.isfinite(w).all(1)
    wanted = XDGMM.load("model").p_values(w[used], noise=noise[used])
    p = outputs[0][1]
    assert p[3] is None
    assert np.array_equal([each for each in p if each is not None], wanted)
    count = (wanted <= 0.01).sum()
    assert output.splitlines()[-1] == (
        f"p-values: {count} of {N - 1} rows at 0.01 or below (2.5 expected if the model and the "
        "errors are right); smallest 0.0001, in row 17 (the first is 0)"
    )


def test_empty_cells_are_predicted_from_the_others(folder):
    """Columns given others, by a table in which they are empty."""
    (folder / "part.csv").write_text("x,x_err,y,e_y,x_y_corr\n,,1.0,0.1,\n,,2.0,0.3,\n")
    succeed("denoise", "model", "part.csv", "-o", "out.csv", "--quantiles", "0.5", "-q")
    out, model = read("out.csv"), XDGMM.load("model")
    w, sd = np.array([[1.0], [2.0]]), np.array([[0.1], [0.3]])
    wanted = model.condition(w, [1], noise=gaussian(sd=sd))
    assert np.allclose(out["x_mean"], wanted.mean[:, 0])
    assert np.allclose(out["x_sd"], wanted.sd[:, 0])
    assert np.allclose(out["x_q50"], wanted.quantile(0.5)[:, 0])


def test_sample(folder):
    succeed("sample", "model", "-n", 4000, "-o", "draws.fits", "--seed", 3)
    drawn = read("draws.fits")
    assert drawn.column_names == ["x", "y"]
    model = XDGMM.load("model")
    mean = model.weights_ @ model.means_
    assert np.allclose([np.mean(drawn["x"]), np.mean(drawn["y"])], mean, atol=0.2)


def repeated(path, times=4, empty=()):
    """Write 60 objects, each measured some times."""
    rng = np.random.default_rng(0)
    objects = np.repeat(np.arange(60), times)
    x = rng.normal(size=60)[objects] + 0.3 * rng.normal(size=len(objects))
    labels = ["" if row in empty else f"star {i}" for row, i in enumerate(objects)]
    rows = zip(x, labels, objects, strict=True)
    path.write_text("x,x_err,star,no\n" + "".join(f"{v},0.3,{s},{i}\n" for v, s, i in rows))
    return x, objects


def test_groups_by_a_column(folder):
    x, objects = repeated(folder / "often.csv")
    fit = ("fit", "often.csv", "-c", "x", "-o", "grouped", "--method", "xd")
    assert "60 groups by star, the largest of 4 rows" in succeed(*fit, "--groups", "star")
    saved = XDGMM.load(folder / "grouped")
    mine = XDGMM("auto", random_state=0).fit(x[:, None], noise=[0.3], groups=objects)
    np.testing.assert_allclose(saved.means_, mine.means_)
    alone = XDGMM("auto", random_state=0).fit(x[:, None], noise=[0.3])
    assert saved.means_.shape != alone.means_.shape or not np.allclose(saved.means_, alone.means_)


def test_compare_holds_out_whole_groups(folder, monkeypatch):
    from deconflow.program import compare

    parts, split = [], compare._split
    monkeypatch.setattr(compare, "_split", lambda *a: parts.append(split(*a)) or parts[-1])
    _, objects = repeated(folder / "often.csv")
    said = ("compare", "often.csv", "-c", "x", "--methods", "kde", "-q")
    succeed(*said, "--groups", "star")
    succeed(*said)
    grouped, alone = ([{*objects[rows]} for rows in pair] for pair in parts)
    assert not grouped[0] & grouped[1]
    assert len(parts[0][1]) == 48
    assert alone[0] & alone[1]  # the negative twin


def test_compare_says_when_it_is_luck():
    from deconflow.program.compare import verdict

    rng = np.random.default_rng(0)
    base = rng.normal(size=400)
    near, far = base + 0.01 * rng.normal(size=400), base - 0.5
    lines = list(verdict({"xd": base, "flow": near, "kde": far}))
    best = "flow" if near.mean() > base.mean() else "xd"
    other = {"xd": "flow", "flow": "xd"}[best]
    assert any(line.startswith(f"{best} is clearly better than kde") for line in lines)
    assert any(line.startswith(f"{best} is not clearly better than {other}") for line in lines)


def assert_same_as_python(model, table, options=()):
    """The program and the library answer alike about a folder: what is exact, and what is drawn."""
    succeed("denoise", model, table, "-o", "denoised.parquet", "-q", *options)
    succeed("score", model, table, "-o", "scored.parquet", "-q")
    out, scored = read("denoised.parquet"), read("scored.parquet")
    loaded = deconflow.load(model)
    w, noise = measurements(catalogue())
    posterior = loaded.posterior(w, noise=noise)
    for d, name in enumerate("xy"):
        assert np.abs(out[f"{name}_mean"].to_numpy() - posterior.mean[:, d]).max() < 1e-9
        assert np.abs(out[f"{name}_sd"].to_numpy() - posterior.sd[:, d]).max() < 1e-9
    scores = loaded.score_observations(w, noise=noise)
    assert np.abs(scored["log_density"].to_numpy() - scores).max() < 1e-9
    sizes = posterior.effective_sample_size
    if np.isinf(sizes).all():  # a closed form has no such column
        assert "effective_sample_size" not in out.column_names
    else:
        assert np.allclose(out["effective_sample_size"], sizes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library may have doubts about so quick a fit
def test_auto(folder):
    quick = ("--set", "quick=true", "--set", "n_jobs=1", "-q")
    output = succeed("fit", "stars.csv", "-c", "x,y", "-o", "auto", *quick)
    assert "one to three minutes" not in output
    assert "held-out log p(w)" in output
    assert "auto (Deconvolver)" in succeed("info", "auto")
    assert_same_as_python("auto", "stars.csv")
    succeed("denoise", "auto", "stars.csv", "-o", "out.parquet", "--quantiles", "0.5", "-q")
    w, noise = measurements(catalogue())
    same = deconflow.load("auto").posterior(w, noise=noise, n_samples=400)
    assert np.abs(read("out.parquet")["x_q50"].to_numpy() - same.quantile(0.5)[:, 0]).max() < 1e-9
    succeed("report", "auto", "-o", "page.html")
    assert not (folder / ".auto.checkpoint").exists()


def test_a_row_that_fails_is_marked_alone(folder, monkeypatch):
    plain = XDGMM.posterior

    def fails(self, w, noise=None, **options):
        if (np.abs(w[:, 0] - 77.0) < 1e-9).any():
            raise ValueError("out of reach")
        return plain(self, w, noise=noise, **options)

    monkeypatch.setattr(XDGMM, "posterior", fails)
    lines = text(catalogue(40)).splitlines()
    for row in (7, 30):
        cells = lines[row + 1].split(",")
        lines[row + 1] = ",".join([cells[0], "77.0", *cells[2:]])
    (folder / "odd.csv").write_text("\n".join(lines))
    succeed("denoise", "model", "odd.csv", "-o", "out.csv")
    status = read("out.csv")["deconflow_status"].to_pylist()
    assert [i for i, word in enumerate(status) if word == "out of reach"] == [7, 30]
    assert status.count("ok") == 38


EXAMPLES = {
    command.__name__: re.search(r"Example: deconflow (.*)", command.__doc__).group(1)
    for command in cli.COMMANDS
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_each_help_works(folder, name):
    assert EXAMPLES[name].split()[0] == name
    assert f"Example: deconflow {EXAMPLES[name]}" in succeed(name, "--help")
    output = succeed(*EXAMPLES[name].split())
    if name == "compare":
        assert re.search(r"xd +held-out log p\(w\) -\d", output)
