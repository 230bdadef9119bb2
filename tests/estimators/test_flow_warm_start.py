"""Fits that go on from the last one, and networks that are made but not trained."""

import numpy as np
import pytest

from deconflow import FlowDeconvolver

SMALL = {"hidden": 8, "n_layers": 1, "posterior_layers": 1, "epochs": 2, "random_state": 0}


@pytest.fixture
def w(rng):
    return rng.normal(size=(120, 2)) * [1.0, 2.0]


def test_a_warm_fit_goes_on(w):
    model = FlowDeconvolver(**SMALL, warm_start=True).fit(w, noise=0.3)
    units, first = model.standardiser_, model.score_samples(w)
    before = model.density_.density
    model.fit(w + 5.0, noise=0.3)
    assert model.standardiser_ is units
    assert model.density_.density is not before  # a copy: a fit that fails must leave the old one
    assert not np.allclose(model.score_samples(w), first)
    cold = FlowDeconvolver(**SMALL).fit(w, noise=0.3)
    again = cold.score_samples(w)
    assert np.allclose(cold.fit(w, noise=0.3).score_samples(w), again)
    assert np.allclose(again, first)


def test_a_warm_fit_that_fails_leaves_the_last(w):
    model = FlowDeconvolver(**SMALL, warm_start=True).fit(w, noise=0.3)
    before = model.score_samples(w)
    with pytest.raises(ValueError, match="Expected a truth of 2 dimensions for warm_start"):
        model.fit(np.c_[w, w], noise=0.3)
    assert np.array_equal(model.score_samples(w), before)


def test_an_exact_posterior_still_belongs_to_its_mixture(w):
    options = {"base_components": 2, "posterior_family": "exact", "objective": "elbo"}
    model = FlowDeconvolver("gaussian_mixture", **SMALL, **options, warm_start=True)
    model.fit(w, noise=0.3).fit(w, noise=0.3)
    assert model.posterior_._shared[0] is model.density_.density


def test_networks_without_training(w, tmp_path):
    model = FlowDeconvolver(**SMALL).initialise(w, noise=0.3)
    assert len(model.history_) == 0
    assert np.isfinite(model.score_samples(w)).all()
    model.save(tmp_path / "m")
    loaded = FlowDeconvolver.load(tmp_path / "m")
    assert np.array_equal(loaded.score_samples(w), model.score_samples(w))
    with pytest.raises(ValueError, match="Expected finite values in w"):
        model.initialise(w * np.inf, noise=0.3)
