"""Deconvolver: candidates, their weights, and what users do with the answer."""

import warnings
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from short_fits import let_flows_win, shorten
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import Deconvolver, Observations, UntrustedFitWarning
from deconflow.auto import flows
from deconflow.auto.fit import KINDS
from deconflow.noise import student_t


@pytest.fixture
def short(monkeypatch):
    """Flows of a few steps: enough for everything but a good density."""
    shorten(monkeypatch)


@pytest.fixture
def flows_always_win(monkeypatch, short):
    let_flows_win(monkeypatch)


def data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, 2)) * [1.0, 0.5] + rng.choice([-2.0, 2.0], size=(n, 1))
    return v, v + rng.normal(size=(n, 2)) * SD


SD = np.array([0.3, 0.6])


def slow(case):
    return pytest.param(case, marks=pytest.mark.slow)


@pytest.fixture
def without_chains(monkeypatch):
    """Leave out the candidate that takes four fifths of a fit, and no part in the contract."""
    monkeypatch.delitem(KINDS, "bayes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.usefixtures("short", "without_chains")
@parametrize_with_checks(
    [Deconvolver(quick=True, n_jobs=1, random_state=0)],
    expected_failed_checks=lambda model: {
        "check_sample_weight_equivalence_on_dense_data": "nine rows of positive weight are too few"
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.usefixtures("short")
def test_a_gaussian_truth():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(400, 2)) + rng.normal(size=(400, 2)) * SD
    model = Deconvolver(n_jobs=1, random_state=0).fit(w, noise=SD)
    assert model.histories_ == []
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert model.weights_["mixtures"] > 0.05
    assert "No reason for doubt" in model.summary()
    exact = -0.5 * (w**2 / (1 + SD**2)).sum(1) - 0.5 * np.log(2 * np.pi * (1 + SD**2)).sum()
    assert model.score_observations(w, SD).mean() == pytest.approx(exact.mean(), abs=0.02)
    together = sum(
        model.weights_[name] * np.exp(each.log_prob(w)) for name, each in model.candidates_.items()
    )
    np.testing.assert_allclose(model.score_samples(w), np.log(together), atol=1e-8)
    for name, share in model.weights_.items():
        assert f"{name:<24}{f'{share:.0%}' if share else 'left out'}" in model.summary()


@pytest.fixture(scope="module")
def of_members():
    """A model in which several flows have nearly all weight, and its rows."""
    v, w = data()
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        let_flows_win(patch)
        with warnings.catch_warnings(action="ignore", category=UntrustedFitWarning):
            return Deconvolver(n_jobs=1, random_state=0).fit(w, noise=SD), v, w


def test_save_and_load(tmp_path, of_members):
    model, _, w = of_members
    assert model.weights_ == {"mixtures": pytest.approx(0.05), "flows": pytest.approx(0.95)}
    model.save(tmp_path / "model")
    loaded = Deconvolver.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.posterior(w[:5], SD).samples, model.posterior(w[:5], SD).samples
    )
    assert loaded.summary() == model.summary()
    assert loaded.certificate_ == model.certificate_
    assert len(loaded.histories_) == 2
    with pytest.raises(ValueError, match="n_samples as a whole number of at least 32; got 8"):
        loaded.score_observations(w, SD, n_samples=8)


@pytest.mark.usefixtures("flows_always_win")
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_the_same_seed_gives_the_same_fit(of_members):
    model, v, w = of_members
    first = model.score_samples(v)
    second, other = (
        Deconvolver(n_jobs=1, random_state=seed).fit(w, noise=SD).score_samples(v)
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.usefixtures("flows_always_win")
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_an_interrupted_fit_goes_on(tmp_path, monkeypatch, of_members):
    model, v, w = of_members
    whole = model.score_samples(v)
    broken = Deconvolver(n_jobs=1, random_state=0, checkpoint=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(flows, "_wanted", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            broken.fit(w, noise=SD)
    assert not hasattr(broken, "density_")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "flows0.ckpt",
        "flows1.ckpt",
    ]
    np.testing.assert_array_equal(broken.fit(w, noise=SD).score_samples(v), whole)


@pytest.mark.usefixtures("flows_always_win")
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.parametrize(
    "kind", ["missing", "projection", *map(slow, ["weights", "student-t", "by row"])]
)
def test_every_kind_of_row(kind, monkeypatch):
    shorten(monkeypatch, steps=60, rows=5000)  # a flow near the mixture that proposes for it
    monkeypatch.setattr(flows, "EPOCHS_TO_START", 3)
    rng = np.random.default_rng(0)
    v, w = data(200)
    noise, extra = SD, {}
    if kind == "missing":
        w[::3, 0] = np.nan
    if kind == "projection":
        R = rng.normal(size=(200, 2, 2))
        w, extra = np.einsum("nij,nj->ni", R, v) + SD * rng.normal(size=w.shape), {"projection": R}
    if kind == "weights":
        extra = {"sample_weight": np.where(w[:, 0] > 0, 1.0, 0.05)}
    if kind == "student-t":
        noise = student_t(SD, 4.0)
    if kind == "by row":
        noise = rng.uniform(0.1, 1.0, size=(200, 2))
    model = Deconvolver(n_members=1, n_jobs=1, random_state=0).fit(w, noise=noise, **extra)
    assert model.weights_["flows"] == pytest.approx(0.95)
    if extra.pop("sample_weight", None) is not None:
        assert (model.sample(1000, 0)[:, 0] > 0).mean() > 0.8  # without weights: half of them
    assert np.isfinite(model.score_samples(v)).all()
    answer = model.posterior(w, noise, n_samples=20, n_proposals=1000, **extra)
    assert answer.samples.shape == (200, 20, 2)
    estimate = model.estimate_observations(w, noise, n_samples=1024, **extra)
    assert np.median(estimate.error) < 0.2
    agree_with_brute_force(model, Observations.from_arrays(w, noise, **extra), estimate, answer)


def agree_with_brute_force(model, data, estimate, answer, rows=8):
    """``log p(w)`` and posterior means by averages over draws from the density, in five errors."""
    v = torch.from_numpy(model.sample(100_000, random_state=0))[:, None].expand(-1, rows, -1)
    weights = data[:rows].log_likelihood(v).exp().numpy()
    wanted, error = weights.mean(0), weights.std(0) / len(v) ** 0.5
    apart = np.abs(estimate.log_p[:rows] - np.log(wanted))
    assert (apart < 5 * np.hypot(error / wanted, estimate.error[:rows]) + 1e-3).all()
    mean = np.einsum("kn,knd->nd", weights, v.numpy()) / weights.sum(0)[:, None]
    size = np.square(weights.sum(0)) / np.square(weights).sum(0)
    error = np.sqrt(1 / size + 1 / answer.effective_sample_size[:rows])[:, None] * answer.sd[:rows]
    assert (np.abs(answer.mean[:rows] - mean) < 5 * error).all()
    assert (np.abs(answer.mean[:rows] - np.roll(mean, 1, 0)) > 5 * error).any()  # the twin


@pytest.mark.usefixtures("flows_always_win")
def test_a_fit_in_doubt_warns(monkeypatch):
    monkeypatch.setattr("deconflow.certificate.LARGEST_GAP", -1.0)
    _, w = data(100)
    with pytest.warns(UntrustedFitWarning) as said:
        Deconvolver(n_jobs=1, random_state=0).fit(w, noise=SD)
    assert any("bound" in str(warning.message) for warning in said)


BAD = {
    "quick": ({"quick": 1}, {}, "quick as True or False; got 1"),
    "members": ({"n_members": 0}, {}, "n_members"),
    "both": ({"quick": True, "n_members": 3}, {}, "no n_members with quick=True"),
    "jobs": ({"n_jobs": 0}, {}, "n_jobs"),
    "checkpoint": ({"checkpoint": "x"}, {}, "integer random_state for a checkpoint"),
    "few rows": ({}, {"w": np.zeros((5, 2))}, "at least 10 rows .*got n_samples = 5"),
    "noise": ({}, {"noise": [-1.0, 1.0]}, "got -1"),
}


@pytest.mark.parametrize(("settings", "call", "message"), BAD.values(), ids=BAD)
def test_bad_input(settings, call, message):
    _, w = data(50)
    model = Deconvolver(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(**{"w": w, "noise": SD, **call})
