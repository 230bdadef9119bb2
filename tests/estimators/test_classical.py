"""Kernels and wavelets together: what both must do, and hard rows."""

import classical_toys as toys
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import DeconvolvingKDE, WaveletDeconvolver, noise

MODELS = {"kde": DeconvolvingKDE, "wavelet": WaveletDeconvolver}
both = pytest.mark.parametrize("name", MODELS)


@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore:The noise hides the density")
@parametrize_with_checks([DeconvolvingKDE(), WaveletDeconvolver()])
def test_scikit_learn_contract(estimator, check):
    few = "one column" if isinstance(estimator, WaveletDeconvolver) else "at most 3 columns"
    with toys.skip_refused(few):
        check(estimator)


@both
@pytest.mark.parametrize(("law", "n"), [("gaussian", 4000), ("laplace", 16_000)])
def test_recovers_the_truth_better_than_without_the_noise(name, law, n):
    w, law = toys.measure(n, 0, law)
    model = MODELS[name]().fit(w, noise=law)
    naive = MODELS[name]().fit(w, noise=0.0)
    share = {"kde": 0.6, "wavelet": 0.7}[name]
    assert toys.squared_error(model) < share * toys.squared_error(naive)


@both
def test_noise_that_differs_by_row(name):
    rng = np.random.default_rng(0)
    v = toys.draw(6000, 0)
    sd = np.where(np.arange(6000) % 2, 0.1, 1.0)[:, None]
    w = v + sd * rng.normal(size=v.shape)
    error = toys.squared_error(MODELS[name]().fit(w, noise=sd))
    average = MODELS[name]().fit(w, noise=[np.sqrt(np.mean(sd**2))])
    good_rows = MODELS[name]().fit(w[1::2], noise=[0.1])
    assert error < 0.8 * toys.squared_error(average)
    assert error < 1.3 * toys.squared_error(good_rows)  # very noisy rows do no harm


ODD_ROWS = {
    "two rows": np.array([[0.0], [1.0]]),
    "duplicates": np.r_[np.zeros(50), 1.0][:, None],
    "far from zero": 1e9 + toys.draw(50, 0),
    "tiny": 1e-12 * toys.draw(50, 0),
    "huge": 1e12 * toys.draw(50, 0),
    "one far row": np.r_[toys.draw(50, 0), [[1e6]]],
}


@pytest.mark.filterwarnings("ignore:.*lie too far out")
@pytest.mark.filterwarnings("ignore:The noise hides the density")
@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("rows", ODD_ROWS)
@both
def test_odd_rows_have_finite_answers(name, rows, share):
    w = ODD_ROWS[rows]
    law = [share * np.diff(np.quantile(w, [0.1, 0.9]))[0]]
    model = MODELS[name]().fit(w, noise=law)
    assert np.isfinite(model.score_samples(w)).all()
    assert np.isfinite(model.sample(10, random_state=0)).all()
    assert np.isfinite(model.posterior(w, noise=law).mean).all()


@both
def test_rows_that_tell_nothing_do_not_widen_the_density(name):
    rng = np.random.default_rng(0)
    sd = np.repeat([0.2, 1000.0], 500)[:, None]
    w = np.where(sd < 1, rng.normal(size=sd.shape), 0.0) + sd * rng.normal(size=sd.shape)
    at_zero = np.exp(MODELS[name]().fit(w, noise=sd).score_samples([[0.0]]))[0]
    assert at_zero == pytest.approx(norm.pdf(0), abs=0.1)


# -- wavelet --------------------------------------------------------------------------------------


def test_a_spike_on_a_wide_density_gets_wavelets_of_its_own():
    """What thresholding is for: without its wavelets the estimate is worse."""
    rng = np.random.default_rng(0)
    spike = rng.uniform(size=10_000) < 0.03
    v = np.where(spike, rng.normal(1, 0.05, 10_000), rng.normal(0, 2, 10_000))[:, None]
    w = v + rng.laplace(0, 0.1, v.shape)
    law = noise.laplace([0.1])

    def truth(x):
        return 0.03 * norm.pdf(x, 1, 0.05) + 0.97 * norm.pdf(x, 0, 2)

    model = WaveletDeconvolver().fit(w, noise=law)
    assert 0 < model.n_wavelets_ < 10
    linear = WaveletDeconvolver(level=model.level_).fit(w, noise=law)
    assert linear.n_wavelets_ == 0
    assert toys.squared_error(model, truth) < 0.7 * toys.squared_error(linear, truth)


def test_a_given_level_is_not_exceeded():
    w, law = toys.measure(500, 0)
    assert WaveletDeconvolver(level=3).fit(w, noise=law).level_ <= 3
    assert WaveletDeconvolver(level=1).fit(w, noise=law).level_ == 1


def test_a_hidden_density_is_said():
    w, _ = toys.measure(500, 0)
    with pytest.warns(UserWarning, match="The noise hides the density"):
        WaveletDeconvolver().fit(w, noise=[100.0])
