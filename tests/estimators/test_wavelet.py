import warnings

import classical_toys as toys
import numpy as np
import pytest
import sklearn
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import WaveletDeconvolver, noise


@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore:The noise hides the density")
@parametrize_with_checks([WaveletDeconvolver()])
def test_scikit_learn_contract(estimator, check):
    with toys.skip_refused("one column"):
        check(estimator)


@pytest.mark.parametrize(("law", "n"), [("gaussian", 4000), ("laplace", 16_000)])
def test_recovers_the_truth_better_than_without_the_noise(law, n):
    w, law = toys.measure(n, 0, law)
    model = WaveletDeconvolver().fit(w, noise=law)
    naive = WaveletDeconvolver().fit(w, noise=0.0)
    assert toys.squared_error(model) < 0.7 * toys.squared_error(naive)


def test_integrates_to_one():
    w, law = toys.measure(500, 0)
    model = WaveletDeconvolver().fit(w, noise=law)
    grid = model.density_.grid
    assert grid.values.min() == 0
    assert grid.values.sum() * grid.cell == pytest.approx(1, abs=1e-12)
    x = np.linspace(-20, 20, 40_001)
    total = np.exp(model.score_samples(x[:, None])).sum() * 0.001
    assert total == pytest.approx(1, abs=1e-4)


def mean_error(n, law):
    errors = []
    for seed in range(4):
        w, given = toys.measure(n, seed, law)
        errors.append(toys.squared_error(WaveletDeconvolver().fit(w, noise=given)))
    return np.mean(errors)


@pytest.mark.slow
def test_more_rows_help_and_laplace_noise_is_easier():
    few, many = (mean_error(n, "laplace") for n in (500, 20_000))
    assert many < few / 4
    assert many < 0.8 * mean_error(20_000, "gaussian")


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


def test_the_wrong_law_is_worse():
    w, right = toys.measure(20_000, 0, "laplace")
    error = toys.squared_error(WaveletDeconvolver().fit(w, noise=right))
    wrong = WaveletDeconvolver().fit(w, noise=[2 * toys.SD])
    assert toys.squared_error(wrong) > 3 * error


def test_noise_that_differs_by_row():
    rng = np.random.default_rng(0)
    v = toys.draw(6000, 0)
    sd = np.where(np.arange(6000) % 2, 0.1, 1.0)[:, None]
    w = v + sd * rng.normal(size=v.shape)
    error = toys.squared_error(WaveletDeconvolver().fit(w, noise=sd))
    average = WaveletDeconvolver().fit(w, noise=[np.sqrt(np.mean(sd**2))])
    good_rows = WaveletDeconvolver().fit(w[1::2], noise=[0.1])
    assert error < 0.8 * toys.squared_error(average)
    assert error < 1.3 * toys.squared_error(good_rows)


def test_a_given_level_is_not_exceeded():
    w, law = toys.measure(500, 0)
    assert WaveletDeconvolver(level=3).fit(w, noise=law).level_ <= 3
    assert WaveletDeconvolver(level=1).fit(w, noise=law).level_ == 1


def test_questions_after_the_fit(tmp_path):
    w, law = toys.measure(2000, 0)
    model = WaveletDeconvolver().fit(w, noise=law)
    v = toys.draw(2000, 0)
    answer = model.posterior(w[:200], noise=law)
    assert np.square(answer.mean - v[:200]).mean() < 0.95 * np.square(w[:200] - v[:200]).mean()
    assert model.sample(5000, random_state=0).mean() == pytest.approx(v.mean(), abs=0.15)
    assert model.score(w, noise=law) > model.score(w + 1, noise=law)
    model.save(tmp_path / "model")
    again = WaveletDeconvolver.load(tmp_path / "model")
    np.testing.assert_array_equal(model.score_samples(v), again.score_samples(v))
    assert (again.level_, again.n_wavelets_) == (model.level_, model.n_wavelets_)


def test_grid_search_routes_noise():
    w, _ = toys.measure(600, 0)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(WaveletDeconvolver(), {"level": [1, 4]}, cv=3)
        search.fit(w, noise=np.full_like(w, toys.SD))
    assert search.best_params_ == {"level": 4}


@pytest.mark.parametrize("law", [[100.0], noise.uniform([1.5]), noise.student_t([0.5], df=1.0)])
def test_hard_problems_have_finite_answers(law):
    w, _ = toys.measure(500, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = WaveletDeconvolver().fit(w, noise=law)
    assert np.isfinite(model.score_samples(w)).all()
    assert np.isfinite(model.sample(100, random_state=0)).all()
    assert np.isfinite(model.posterior(w[:5], noise=law).covariance).all()


def test_a_hidden_density_is_said():
    w, _ = toys.measure(500, 0)
    with pytest.warns(UserWarning, match="The noise hides the density"):
        WaveletDeconvolver().fit(w, noise=[100.0])


W = toys.draw(30, 0)
BAD = {
    "level": ({"level": 0}, {}, "level as a whole number of at least 1"),
    "fine level": ({"level": 11}, {}, "level of at most 10; got 11"),
    "missing": ({}, {"w": np.r_[W, [[np.nan], [0.0]]]}, "only NaN or masked cells in row 30"),
    "two columns": ({}, {"w": np.c_[W, W]}, "one column.*got 2.*XDGMM"),
    "projection": ({}, {"projection": np.eye(1)}, "no projection.*Use XDGMM"),
    "constant": ({}, {"w": np.ones((9, 1))}, "differ in every column"),
    "one row": ({}, {"w": W[:1]}, "n_samples = 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    settings, arguments, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        WaveletDeconvolver(**settings).fit(**{"w": W, "noise": 0.1} | arguments)


def test_an_unfitted_model_says_so():
    with pytest.raises(NotFittedError):
        WaveletDeconvolver().sample()
