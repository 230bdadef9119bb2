"""What users do to a model that a test of its features would not."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch.distributions import Beta, Exponential

from deconflow import FlowDeconvolver
from deconflow.fitting import NonFiniteError
from deconflow.noise import from_law, uniform


def tiny(**changes):
    settings = dict(n_layers=1, hidden=8, n_draws=4, epochs=2)
    return FlowDeconvolver(**{**settings, "random_state": 0, **changes})


@pytest.fixture
def w(rng):
    return rng.normal(size=(150, 2))


SD = np.array([0.3, 0.5])


@pytest.mark.parametrize(
    ("unit", "offset"),
    [(1.0, 1e7), (1e-30, 0.0), (1e30, 0.0), (1e-3, 5e4), (np.array([100.0, 1e-3]), [5.0, -7.0])],
)
def test_units_and_offsets_cost_no_precision(unit, offset, w):
    plain = tiny().fit(w, noise=SD)
    moved = tiny().fit(unit * w + offset, noise=unit * SD)
    samples = (moved.sample(500, random_state=1) - offset) / unit
    np.testing.assert_allclose(samples, plain.sample(500, random_state=1), atol=1e-4, rtol=1e-4)
    scores = moved.score_samples(unit * w + offset) + np.log(unit * np.ones(2)).sum()
    np.testing.assert_allclose(scores, plain.score_samples(w), atol=1e-3)
    one = plain.posterior(w, SD, n_proposals=50)
    two = moved.posterior(unit * w + offset, unit * SD, n_proposals=50)
    np.testing.assert_allclose((two.mean - offset) / unit, one.mean, atol=1e-3)
    np.testing.assert_allclose(two.sd / unit, one.sd, rtol=1e-3)


@pytest.mark.parametrize("size", [1e6, 1e10])
def test_a_hopeless_row_does_not_blur_the_others(size, w):
    sd = np.tile(SD, (150, 1))
    clean = tiny(epochs=1).fit(w, noise=sd).sample(2000, random_state=0).std(0)
    w[0], sd[0] = size, size
    found = tiny(epochs=1).fit(w, noise=sd).sample(2000, random_state=0).std(0)
    np.testing.assert_allclose(found, clean, rtol=0.1)


@pytest.mark.parametrize("objective", ["elbo", "iw"])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_noise_on_a_half_line_knows_no_units(unit, objective, w, rng):
    noisy = unit * (w + rng.exponential(0.3, size=w.shape))
    noise = from_law(Exponential, rate=np.full(w.shape, 1 / (0.3 * unit)))
    model = tiny(objective=objective).fit(noisy, noise=noise)
    score = model.score(noisy, noise=noise) + 2 * np.log(unit)
    assert -4 < score < -2.5  # a standard normal truth has about -3.1


WIDE = np.ones((150, 2))
BOUNDED = {
    "narrow": uniform(1e-7 * WIDE),
    "usual": uniform(1e-3 * WIDE),
    "wide": uniform(WIDE),
    "beta": from_law(Beta, concentration1=2 * WIDE, concentration0=2 * WIDE),
}


@pytest.mark.parametrize("noise", BOUNDED.values(), ids=BOUNDED)
def test_noise_on_an_interval(noise, w):
    model = tiny(objective="elbo").fit(w, noise=noise)
    assert np.isfinite(model.score(w, noise=noise))


def test_broken_settings_end_in_an_error_and_no_model(w):
    model = tiny(learning_rate=1e30)
    with pytest.raises(NonFiniteError, match="learning_rate"):
        model.fit(w, noise=SD)
    with pytest.raises(NotFittedError):
        model.score(w, noise=SD)


def test_a_failed_refit_leaves_the_model_as_it_was(w, monkeypatch):
    model = tiny().fit(w, noise=SD)
    before = model.score(w, noise=SD)
    with pytest.raises(ValueError, match="base_components"):
        model.set_params(base_components=2).fit(100 * w, noise=SD)
    assert model.score(w, noise=SD) == before

    monkeypatch.setattr("deconflow.estimators.flow.fit", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.set_params(base_components=1).fit(w[:, :1], noise=0.1)
    assert model.score(w, noise=SD) == before


def test_rows_without_weight_are_left_out(w):
    weights = np.zeros(150)
    weights[:20] = 1
    one = tiny().fit(w, noise=SD, sample_weight=weights).score_samples(w)
    two = tiny().fit(w[:20], noise=SD).score_samples(w)
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_loading_draws_no_random_numbers_and_knows_the_fitted_sizes(w, tmp_path):
    model = tiny().fit(w, noise=SD)
    model.set_params(hidden=32).save(tmp_path / "model")
    before = torch.get_rng_state()
    loaded = FlowDeconvolver.load(tmp_path / "model")
    assert torch.equal(before, torch.get_rng_state())
    assert loaded.hidden == 8
    np.testing.assert_array_equal(loaded.score_samples(w), model.score_samples(w))
