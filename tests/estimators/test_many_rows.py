"""Answers about many rows: in little more memory than they take, and some rows at a time."""

import importlib
import pickle
import tracemalloc

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from deconflow import XDGMM, _limits, open_rows, streams
from deconflow.fits.mixture_fit import BlendFit
from deconflow.fits.posterior import WeightedPosterior
from deconflow.observations import OutOfReachError

posterior_of_rows = importlib.import_module("deconflow.xd.posterior")

N = 50_000
#: Numbers of a piece of work, here; its bytes are small beside the answers.
PIECE = 25_000


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(N, 2)) + 3 * rng.integers(2, size=(N, 1))
    sd = rng.uniform(0.3, 0.7, size=(N, 2))
    return v + sd * rng.normal(size=v.shape), sd


@pytest.fixture(scope="module")
def model(rows):
    w, sd = (each[:2000] for each in rows)
    return XDGMM(2, random_state=0).fit(w, noise=sd)


@pytest.fixture
def in_pieces(monkeypatch):
    monkeypatch.setattr(_limits, "NUMBERS_AT_ONCE", PIECE)


def beyond_answer(question):
    """Bytes of numpy's arrays at the peak of a question, less those of the arrays it returns."""
    question()  # compiles
    tracemalloc.start()
    answer = question()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - sum(array.nbytes for array in answer)


def moments(posterior):
    return posterior.mean, posterior.covariance


# Beside the answer there is at most a piece of work (a half more for what it does not count), and
# so many numbers for each row: errors and bias of scores, densities of one class at a time, the
# standard deviations that correlations are made with. Before pieces counted all their arrays, these
# took 9 to 41 pieces.
QUESTIONS = {
    "posterior": (0, lambda m, w, sd: moments(m.posterior(w, sd))),
    "score": (2, lambda m, w, sd: (m.score_observations(w, sd),)),
    "memberships": (1, lambda m, w, sd: (m.predict_proba(w, sd),)),
}
ANSWERED = {
    "correlation": (2, lambda posterior: posterior.correlation),
    "sample": (0, lambda posterior: posterior[:1000].sample(100, 0)),
}
DRAWN = {
    "quantile": lambda posterior: posterior.quantile([0.1, 0.9]),
    "probability": lambda posterior: posterior.probability(0, 1),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_memory_of_a_question(name, model, rows, in_pieces):
    numbers, question = QUESTIONS[name]
    errors = 2  # of each row are copied: they are the user's to change
    assert beyond_answer(lambda: question(model, *rows)) < 12 * PIECE + 8 * (numbers + errors) * N


@pytest.mark.parametrize("name", ANSWERED)
def test_memory_of_a_question_to_a_posterior(name, whole, in_pieces):
    numbers, question = ANSWERED[name]
    assert beyond_answer(lambda: (question(whole),)) < 12 * PIECE + 8 * numbers * N


@pytest.mark.parametrize("name", DRAWN)
def test_memory_of_a_question_to_draws(name, in_pieces):
    samples = np.random.default_rng(0).normal(size=(5_000, 50, 2))
    arrays = samples.mean(1), np.ones((5_000, 2, 2)), np.ones(5_000)
    posterior = WeightedPosterior(["x", "y"], *arrays, samples)
    assert beyond_answer(lambda: (DRAWN[name](posterior),)) < 12 * PIECE


def changed(rows, law):
    """Some of the rows, with noise and missing values of a kind."""
    w, sd = (each[:3000].copy() for each in rows)
    if law == "missing":
        w[::7, 1] = np.nan
    if law == "full":
        return w, sd[:, :, None] * sd[:, None, :] * [[1.0, 0.3], [0.3, 1.0]]
    return w, [0.5, 0.4] if law == "shared" else sd


@pytest.mark.parametrize("law", ["by row", "shared", "full", "missing"])
def test_pieces_change_nothing_but_rounding(law, model, rows, monkeypatch):
    w, noise = changed(rows, law)
    whole, score = model.posterior(w, noise), model.score_observations(w, noise)
    draws = WeightedPosterior(whole.names, *moments(whole), np.ones(len(w)), whole.samples)
    expected = [*moments(whole), score, draws.quantile(0.3), draws.probability(0, 1)]
    monkeypatch.setattr(_limits, "NUMBERS_AT_ONCE", PIECE)
    again, score = model.posterior(w, noise), model.score_observations(w, noise)
    found = [*moments(again), score, draws.quantile(0.3), draws.probability(0, 1)]
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ask", ["score_observations", "posterior", "blend", "chunks"])
def test_rows_out_of_reach_are_named_as_in_the_whole(ask, model, rows, monkeypatch):
    w, sd = changed(rows, "by row")
    w[2345] = 1e150
    monkeypatch.setattr(_limits, "NUMBERS_AT_ONCE", 1000)
    monkeypatch.setattr(posterior_of_rows, "FEW", 1)  # as for a large mixture
    blend = BlendFit([0.5, 0.5], [model.density_] * 2)
    asked = {
        "blend": lambda: blend.posterior(model._rows(w, sd, {})),
        "chunks": lambda: list(model.posterior_in_chunks(w, sd, chunk=1000)),
    }
    with pytest.raises(OutOfReachError, match="row 2345"):
        asked.get(ask, lambda: getattr(model, ask)(w, sd))()


# -- some rows at a time ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(model, rows):
    return model.posterior(*rows)


def test_chunks_are_the_whole(model, rows, whole):
    seen = 0
    for some, part in model.posterior_in_chunks(*rows, chunk=15_000):
        assert some == slice(seen, min(seen + 15_000, N))
        seen = some.stop
        for one, two in zip(moments(part), moments(whole), strict=True):
            np.testing.assert_allclose(one, two[some], rtol=1e-12, atol=1e-12)
    assert seen == N


def test_chunks_draw_by_numbers_of_their_own(model, rows):
    w, sd = (np.tile(each[:50], (2, 1)) for each in rows)  # the same rows twice
    one, two = (part.samples for _, part in model.posterior_in_chunks(w, sd, chunk=50))
    np.testing.assert_array_equal(one, model.posterior(w[:50], sd[:50]).samples)
    assert not np.isclose(one, two).any()
    again = [part.samples for _, part in model.posterior_in_chunks(w, sd, chunk=50)]
    np.testing.assert_array_equal(again, [one, two])


def test_chunks_of_a_stream_are_its_own(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 70)
    monkeypatch.setattr(posterior_of_rows, "FEW", 0)
    w, sd = (each[:200] for each in rows)
    table = {"x": w[:, 0], "y": w[:, 1], "x_err": sd[:, 0], "y_err": sd[:, 1]}
    pd.DataFrame(table).to_parquet(tmp_path / "rows.parquet")
    stream = open_rows(tmp_path / "rows.parquet", ["x", "y"])
    model = XDGMM(1).fit(w, noise=sd, names=["x", "y"])
    parts = list(model.posterior_in_chunks(stream))
    assert [some for some, _ in parts] == [slice(0, 70), slice(70, 140), slice(140, 200)]
    mean = np.concatenate([part.mean for _, part in parts])
    np.testing.assert_allclose(mean, model.posterior(w, sd).mean, rtol=1e-12)
    with pytest.raises(ValueError, match="columns of the fit, x, y; got y, x"):
        model.posterior_in_chunks(open_rows(tmp_path / "rows.parquet", ["y", "x"]))
    table["x"] = np.where(np.arange(200) == 150, 1e150, table["x"])
    pd.DataFrame(table).to_parquet(tmp_path / "far.parquet")
    far = model.posterior_in_chunks(open_rows(tmp_path / "far.parquet", ["x", "y"]))
    with pytest.raises(OutOfReachError, match=r"row 10, .*far\.parquet.*from row 140"):
        list(far)


# -- models in other processes ------------------------------------------------------------------


@pytest.mark.parametrize("tool", [pickle, cloudpickle], ids=lambda tool: tool.__name__)
def test_a_pickled_model_answers_the_same_and_is_small(tool, model, rows):
    w, sd = (each[:100] for each in rows)
    model.posterior(w, sd)  # what a question leaves behind is not sent along
    sent = tool.dumps(model)
    again = tool.loads(sent)
    np.testing.assert_array_equal(again.posterior(w, sd).mean, model.posterior(w, sd).mean)
    np.testing.assert_array_equal(again.score_observations(w, sd), model.score_observations(w, sd))
    # Beside its 2 x 7 numbers: names of classes and settings; a row of 2000 would be 16 bytes.
    assert len(sent) < 10_000
