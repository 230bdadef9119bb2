"""What users do to a model that a test of its features would not."""

import numpy as np
import pytest
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


def test_rows_without_weight_are_left_out(w):
    weights = np.zeros(150)
    weights[:20] = 1
    one = tiny().fit(w, noise=SD, sample_weight=weights).score_samples(w)
    two = tiny().fit(w[:20], noise=SD).score_samples(w)
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)
