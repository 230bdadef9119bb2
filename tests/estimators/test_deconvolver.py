"""Deconvolver: candidates, their weights, and what users do with the answer."""

import warnings
from unittest.mock import Mock

import numpy as np
import pytest
from short_fits import let_flows_win, shorten
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import Deconvolver, UntrustedFitWarning
from deconflow.auto import flows
from deconflow.auto.fit import KINDS


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
        patch.setattr(flows, "weigh", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            broken.fit(w, noise=SD)
    assert not hasattr(broken, "density_")
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "flows0.ckpt",
        "flows1.ckpt",
    ]
    np.testing.assert_array_equal(broken.fit(w, noise=SD).score_samples(v), whole)


@pytest.mark.usefixtures("flows_always_win")
def test_a_fit_in_doubt_warns(monkeypatch):
    monkeypatch.setattr("deconflow.certificate.LARGEST_GAP", -1.0)
    _, w = data(100)
    with pytest.warns(UntrustedFitWarning) as said:
        Deconvolver(n_jobs=1, random_state=0).fit(w, noise=SD)
    assert any("bound" in str(warning.message) for warning in said)
