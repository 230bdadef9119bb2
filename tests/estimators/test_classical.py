"""Kernels and wavelets together: what both must do, and hard rows."""

import warnings

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


@both
@pytest.mark.parametrize(
    "law", [[100.0], [1e10], noise.uniform([1.5]), noise.student_t([0.5], df=1.0)]
)
def test_hard_problems_have_finite_answers(name, law):
    w, _ = toys.measure(500, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = MODELS[name]().fit(w, noise=law)
    assert np.isfinite(model.score_samples(w)).all()
    assert np.isfinite(model.score_samples([[1e6]])).all()
    assert np.isfinite(model.sample(100, random_state=0)).all()
    answer = model.posterior(w[:5], noise=law)
    assert np.isfinite(answer.mean).all()
    assert np.isfinite(answer.covariance).all()


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


W = toys.draw(30, 0)
BAD = {
    "missing": ({"w": np.r_[W, [[np.nan]]]}, "only NaN or masked cells in row 30"),
    "infinite": ({"w": np.r_[W, [[np.inf]]]}, "got inf at row 30, column 0"),
    "many columns": ({"w": np.ones((9, 4))}, "column.* in w.*got 4. Use XDGMM"),
    "projection": ({"projection": np.eye(1)}, "no projection.*Use XDGMM"),
    "constant": ({"w": np.ones((9, 1))}, "differ in every column"),
    "one row": ({"w": W[:1]}, "at least 2 rows.*n_samples = 1"),
    "weights": ({"sample_weight": np.zeros(30)}, "at least one positive weight"),
    "noise": ({"noise": [-0.1]}, "standard deviations .* of at least zero"),
}


@both
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(name, case):
    arguments, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        MODELS[name]().fit(**{"w": W, "noise": 0.1} | arguments)
