"""How rows were measured, by options: each kind gives the model that Python gives."""

import numpy as np
import pyarrow as pa
import pytest
from program.running import ONE_FIT, run, succeed

import deconflow
from deconflow import XDGMM, noise
from deconflow.tables import open_table

ONE = ("--method", "xd", "--set", "n_components=1", *ONE_FIT, "-q")
SETTINGS = {"n_components": 1, "n_average": 1, "floor": 0.1, "random_state": 0}
"""What the program makes of these."""
N = 120


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, **columns):
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def read(path):
    return pa.concat_tables(open_table(path).chunks(10_000))


def numbers(path, name):
    return read(path)[name].to_numpy().astype(float)


def made(*names, rows=None, **known):
    """Fit the same by hand."""
    return XDGMM(**SETTINGS).name_columns(list(names)).fit(rows, **known)


def assert_round_trip(table, model, w, name="x", **arguments):
    """What the program answers of its model is what Python answers of its own."""
    saved = deconflow.load("m")
    at = np.linspace(w.min(), w.max(), 7)[:, None] if w.shape[1] == 1 else w[:7]
    np.testing.assert_allclose(saved.score_samples(at), model.score_samples(at), rtol=1e-6)
    succeed("denoise", "m", table, "-o", "out.parquet", "-q", "--chunk", 50, "--seed", 0)
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


def counted():
    rng = np.random.default_rng(0)
    time = rng.uniform(2, 20, N).round(3)
    return rng.poisson(rng.gamma(9.0, 1 / 3, N) * time), time


def test_counts_and_their_exposure(here):
    counts, time = counted()
    write(here / "t.csv", n=counts, time=time)
    said = succeed(
        "fit", "t.csv", "-c", "n", "--noise", "poisson", "--exposure", "time", "-o", "m", *ONE
    )
    assert "n counted, exposure time (poisson)" in said
    w, law = counts[:, None].astype(float), noise.poisson(time[:, None])
    assert_round_trip("t.csv", made("n", rows=w, noise=law), w, "n", noise=law)
    assert "column     n counted, exposure time" in succeed("info", "m")
    out = numbers("out.parquet", "n_mean")
    assert (out > 0).all()
    assert np.abs(out - counts / time).max() < np.abs(out - counts).max()  # a rate, not a count


def test_counts_out_of_trials(here):
    rng = np.random.default_rng(1)
    trials = rng.integers(5, 60, N)
    counts = rng.binomial(trials, rng.beta(4, 8, N))
    write(here / "t.csv", x=counts, n=trials)
    succeed("fit", "t.csv", "-c", "x", "--noise", "binomial", "--trials", "n", "-o", "m", *ONE)
    w, law = counts[:, None].astype(float), noise.binomial(trials[:, None])
    assert_round_trip("t.csv", made("x", rows=w, noise=law), w, noise=law)
    out = numbers("out.parquet", "x_mean")
    assert ((out > 0) & (out < 1)).all()
