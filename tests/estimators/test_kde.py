import warnings

import classical_toys as toys
import numpy as np
import pytest
import sklearn
from scipy.stats import kstest, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import DeconvolvingKDE, WaveletDeconvolver, noise


@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore:The noise hides the density")
@parametrize_with_checks([DeconvolvingKDE()])
def test_scikit_learn_contract(estimator, check):
    with toys.skip_refused("at most 3 columns"):
        check(estimator)


def normal_rows(n, dim, seed=0):
    """Correlated normal truths, with a full noise covariance for every row."""
    rng = np.random.default_rng(seed)
    mix = np.eye(dim) + 0.4 * np.eye(dim, k=-1)
    v = rng.normal(size=(n, dim)) @ mix.T
    A = 0.4 * rng.normal(size=(n, dim, dim))
    w = v + np.einsum("nij,nj->ni", A, rng.normal(size=(n, dim)))
    return v, w, A @ A.transpose(0, 2, 1), mix @ mix.T


@pytest.mark.parametrize(("dim", "points"), [(1, 20_001), (2, 501), (3, 91)])
def test_integrates_to_one(dim, points):
    _, w, S, _ = normal_rows(300, dim)
    model = DeconvolvingKDE().fit(w, noise=S)
    grid = model.density_.grid
    assert grid.values.min() == 0
    assert grid.values.sum() * grid.cell == pytest.approx(1, abs=1e-12)
    ends = grid.low - 3 * grid.step, grid.low + grid.step * (np.array(grid.values.shape) + 3)
    axes = [np.linspace(a, b, points) for a, b in zip(*ends, strict=True)]
    v = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    volume = np.prod([axis[1] - axis[0] for axis in axes])
    total = sum(np.exp(model.score_samples(part)).sum() for part in np.array_split(v, 10))
    assert total * volume == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_recovers_the_truth_better_than_without_the_noise(law):
    w, law = toys.measure(4000, 0, law)
    model = DeconvolvingKDE().fit(w, noise=law)
    naive = DeconvolvingKDE().fit(w, noise=0.0)
    assert toys.squared_error(model) < 0.6 * toys.squared_error(naive)


def mean_error(n, law, seeds=4, **settings):
    errors = []
    for seed in range(seeds):
        w, given = toys.measure(n, seed, law)
        errors.append(toys.squared_error(DeconvolvingKDE(**settings).fit(w, noise=given)))
    return np.mean(errors)


def test_more_rows_help_and_laplace_noise_is_easier():
    """Fan's rates: a power of n under Laplace noise, of log n under Gaussian noise."""
    small, large = 500, 32_000
    few, many = (mean_error(n, "laplace") for n in (small, large))
    few_gaussian, many_gaussian = (mean_error(n, "gaussian") for n in (small, large))
    assert many < few / 4
    assert many_gaussian < few_gaussian / 1.5
    assert many < 0.6 * many_gaussian
    # the exponent of n, which Fan's theorem puts at 4/9 for a smooth truth under Laplace noise
    exponent = np.log(few / many) / np.log(large / small)
    exponent_gaussian = np.log(few_gaussian / many_gaussian) / np.log(large / small)
    assert exponent > 0.35
    assert exponent > exponent_gaussian + 0.05


def test_the_wrong_law_is_worse():
    w, right = toys.measure(30_000, 0, "laplace")
    error = toys.squared_error(DeconvolvingKDE().fit(w, noise=right))
    wrong = DeconvolvingKDE().fit(w, noise=[2 * toys.SD])
    assert toys.squared_error(wrong) > 3 * error
    too_little = DeconvolvingKDE().fit(w, noise=noise.laplace([toys.SCALE / 3]))
    assert toys.squared_error(too_little) > 3 * error


def test_noise_that_differs_by_row():
    rng = np.random.default_rng(0)
    v = toys.draw(6000, 0)
    sd = np.where(np.arange(6000) % 2, 0.1, 1.0)[:, None]
    w = v + sd * rng.normal(size=v.shape)
    model = DeconvolvingKDE().fit(w, noise=sd)
    error = toys.squared_error(model)
    average = DeconvolvingKDE().fit(w, noise=[np.sqrt(np.mean(sd**2))])
    good_rows = DeconvolvingKDE().fit(w[1::2], noise=[0.1])
    assert error < 0.8 * toys.squared_error(average)
    assert error < 1.3 * toys.squared_error(good_rows)  # very noisy rows do no harm


@pytest.mark.parametrize("dim", [2, 3])
def test_full_covariances_row_by_row(dim):
    v, w, S, truth = normal_rows(1500, dim)
    right = DeconvolvingKDE().fit(w, noise=S)
    naive = DeconvolvingKDE().fit(w, noise=0.0)
    log_p = -0.5 * np.einsum("ni,ij,nj->n", v, np.linalg.inv(truth), v)
    log_p -= 0.5 * np.linalg.slogdet(2 * np.pi * truth)[1]
    p = np.exp(log_p)
    errors = [np.square(np.exp(m.score_samples(v)) - p).mean() for m in (right, naive)]
    assert errors[0] < 0.5 * errors[1]
    assert errors[0] < 0.08 * np.square(p).mean()


def flat_top(t):
    return np.clip(2 - 2 * t, 0, 1)


def test_exact_rows_give_the_plain_kernel_estimator():
    w = toys.draw(200, 0)
    model = DeconvolvingKDE(0.3).fit(w, noise=0.0)
    t = np.linspace(0, 1 / 0.3, 2001)
    x = np.linspace(-2.5, 2.5, 11)
    waves = np.cos(t * (x[:, None, None] - w[None])).mean(1)
    wanted = np.trapezoid(waves * flat_top(0.3 * t), t) / np.pi
    np.testing.assert_allclose(np.exp(model.score_samples(x[:, None])), wanted, atol=4e-3)


def test_against_the_formula():
    w, law = toys.measure(150, 0, "laplace")
    model = DeconvolvingKDE(0.6).fit(w, noise=law)
    t = np.linspace(0, 1 / 0.6, 2001)
    x = np.linspace(-2, 2, 9)
    waves = np.cos(t * (x[:, None, None] - w[None])).mean(1)
    wanted = waves * flat_top(0.6 * t) * (1 + (toys.SCALE * t) ** 2)
    wanted = np.trapezoid(wanted, t) / np.pi
    found = np.exp(model.score_samples(x[:, None]))
    np.testing.assert_allclose(found / found[4], wanted / wanted[4], rtol=0.02, atol=1e-3)


def test_units_change_the_density_by_their_volume():
    _, w, S, _ = normal_rows(200, 2)
    scale, shift = np.array([1000.0, 0.01]), np.array([1e5, -3.0])
    plain = DeconvolvingKDE().fit(w, noise=S)
    other = DeconvolvingKDE().fit(w * scale + shift, noise=S * np.outer(scale, scale))
    found = other.score_samples(w * scale + shift) + np.log(scale).sum()
    np.testing.assert_allclose(found, plain.score_samples(w), atol=1e-5)
    np.testing.assert_allclose(other.bandwidth_, plain.bandwidth_ * scale, rtol=1e-6)


def test_order_of_rows_is_nothing_and_weights_are_repetitions():
    w, law = toys.measure(300, 0)
    order = np.random.default_rng(0).permutation(300)
    sd = np.random.default_rng(1).uniform(0.1, 0.5, (300, 1))
    x = np.linspace(-3, 4, 20)[:, None]
    first, second = (
        DeconvolvingKDE().fit(w[rows], noise=sd[rows]).score_samples(x)
        for rows in (np.arange(300), order)
    )
    np.testing.assert_allclose(first, second, atol=1e-8)
    weights = np.arange(300) % 4
    weighted = DeconvolvingKDE(0.2).fit(w, noise=law, sample_weight=weights)
    repeated = DeconvolvingKDE(0.2).fit(
        np.repeat(w[weights > 0], weights[weights > 0], 0), noise=law
    )
    np.testing.assert_allclose(weighted.score_samples(x), repeated.score_samples(x), atol=1e-8)


def test_draws_have_the_density():
    w, law = toys.measure(2000, 0)
    model = DeconvolvingKDE().fit(w, noise=law)
    v = model.sample(20_000, random_state=0)[:, 0]
    x = np.linspace(-12, 12, 20_001)
    p = np.exp(model.score_samples(x[:, None]))
    cdf = np.cumsum(p) / p.sum()
    assert kstest(v, lambda q: np.interp(q, x, cdf)).pvalue > 0.01
    assert kstest(v + 0.2, lambda q: np.interp(q, x, cdf)).pvalue < 1e-4
    np.testing.assert_array_equal(v, model.sample(20_000, random_state=0)[:, 0])


def test_posterior_of_a_normal_truth():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(20_000, 1)) + 0.5 * rng.normal(size=(20_000, 1))
    model = DeconvolvingKDE().fit(w, noise=[0.5])
    rows, sd = np.array([[-1.0], [0.3], [1.5]]), np.array([[0.7], [1e-4], [0.0]])
    answer = model.posterior(rows, noise=sd, n_samples=4000)
    shrink = 1 / (1 + sd**2)
    np.testing.assert_allclose(answer.mean, shrink * rows, atol=0.06)
    np.testing.assert_allclose(answer.sd, np.sqrt(shrink) * sd, atol=0.03)
    np.testing.assert_allclose(answer.samples.mean(1), answer.mean, atol=0.05)
    np.testing.assert_allclose(answer.samples.std(1), answer.sd, atol=0.03)
    assert (answer.samples[2] == 1.5).all()
    assert answer.samples.shape == (3, 4000, 1)
    assert (answer.effective_sample_size > 10).all()


def test_posterior_is_nearer_to_the_truth_than_the_measurement():
    v, w, S, _ = normal_rows(400, 2)
    model = DeconvolvingKDE().fit(w, noise=S)
    answer = model.posterior(w[:100], noise=S[:100])
    assert np.square(answer.mean - v[:100]).mean() < 0.8 * np.square(w[:100] - v[:100]).mean()


def test_score_is_the_density_of_measurements():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(20_000, 1)) + 0.5 * rng.normal(size=(20_000, 1))
    model = DeconvolvingKDE().fit(w, noise=[0.5])
    for sd in (0.5, 1e-3, 0.0):
        wanted = norm.logpdf(w[:500], scale=np.hypot(1, sd)).mean()
        assert model.score(w[:500], noise=[sd]) == pytest.approx(wanted, abs=0.03)
    each = model.score_observations(w[:20], noise=[0.5])
    assert model.score(w[:20], noise=[0.5]) == pytest.approx(each.mean())
    far = model.score_observations([[50.0]], noise=noise.uniform([0.5]))
    assert np.isfinite(far).all()


def test_save_and_load(tmp_path):
    _, w, S, _ = normal_rows(200, 2)
    model = DeconvolvingKDE().fit(w, noise=S)
    model.save(tmp_path / "model")
    again = DeconvolvingKDE.load(tmp_path / "model")
    np.testing.assert_array_equal(model.score_samples(w), again.score_samples(w))
    np.testing.assert_array_equal(model.bandwidth_, again.bandwidth_)
    np.testing.assert_array_equal(
        model.posterior(w[:5], noise=S[:5]).samples, again.posterior(w[:5], noise=S[:5]).samples
    )


def test_grid_search_routes_noise():
    w, _ = toys.measure(300, 0)
    sd = np.full_like(w, toys.SD)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(DeconvolvingKDE(), {"bandwidth": [0.2, 3.0]}, cv=3)
        search.fit(w, noise=sd)
    assert search.best_params_ == {"bandwidth": 0.2}
    assert clone(search.best_estimator_).bandwidth == 0.2


HARD = {
    "noise far larger than the truth": ({}, [100.0]),
    "noise without measure": ({}, [1e10]),
    "zeros of the characteristic function": ({"bandwidth": 0.05}, noise.uniform([1.5])),
    "no variance": ({}, noise.student_t([0.5], df=1.0)),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_problems_have_finite_answers(name):
    settings, law = HARD[name]
    w, _ = toys.measure(500, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = DeconvolvingKDE(**settings).fit(w, noise=law)
    assert np.isfinite(model.score_samples(w)).all()
    assert np.isfinite(model.score_samples([[1e6]])).all()
    assert np.isfinite(model.sample(100, random_state=0)).all()
    answer = model.posterior(w[:5], noise=law)
    assert np.isfinite(answer.mean).all()
    assert np.isfinite(answer.covariance).all()


def test_too_little_smoothing_is_said():
    w, law = toys.measure(500, 0)
    with pytest.warns(UserWarning, match="The noise hides the density"):
        DeconvolvingKDE(0.05).fit(w, noise=law)
    DeconvolvingKDE().fit(w, noise=law)  # warns of nothing


def test_one_hopeless_row_and_one_far_row():
    w, _ = toys.measure(500, 0)
    sd = np.full_like(w, toys.SD)
    x = np.linspace(-3, 3, 20)[:, None]
    plain = DeconvolvingKDE().fit(w, noise=sd).score_samples(x)
    w[0], sd[0] = 1e9, 1e10  # far, as its noise is
    model = DeconvolvingKDE().fit(w, noise=sd)
    np.testing.assert_allclose(model.score_samples(x), plain, atol=0.15)
    sd[0] = toys.SD
    with pytest.warns(UserWarning, match="1 of the rows are left out: they lie too far out"):
        model = DeconvolvingKDE().fit(w, noise=sd)
    np.testing.assert_allclose(model.score_samples(x), plain, atol=0.15)


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
@pytest.mark.parametrize("name", ODD_ROWS)
@pytest.mark.parametrize("model", [DeconvolvingKDE(), WaveletDeconvolver()])
def test_odd_rows_have_finite_answers(model, name, share):
    w = ODD_ROWS[name]
    law = [share * np.diff(np.quantile(w, [0.1, 0.9]))[0]]
    model = clone(model).fit(w, noise=law)
    assert np.isfinite(model.score_samples(w)).all()
    assert np.isfinite(model.sample(10, random_state=0)).all()
    assert np.isfinite(model.posterior(w, noise=law).mean).all()


def test_noise_with_a_mean_is_taken_off():
    v = toys.draw(5000, 0)
    law = noise.split_normal(lower=[0.9], upper=[0.2])
    w = v + law.bind(5000).sample(1)[0].numpy()
    assert w.mean() - v.mean() > 0.4
    model = DeconvolvingKDE().fit(w, noise=law)
    assert model.sample(20_000, random_state=0).mean() == pytest.approx(v.mean(), abs=0.1)


W = np.random.default_rng(0).normal(size=(30, 2))
MISSING = np.where(np.arange(60).reshape(30, 2) == 7, np.nan, W)


BAD = {
    "zero": ({"bandwidth": 0.0}, {}, "bandwidth as a positive number"),
    "none at all": ({"bandwidth": []}, {}, "bandwidth as a positive number"),
    "nan": ({"bandwidth": float("nan")}, {}, "bandwidth as a positive number"),
    "several": ({"bandwidth": [0.1] * 3}, {}, "bandwidth as one number or 2, one for each column"),
    "tiny": ({"bandwidth": 1e-9}, {}, "a grid can resolve, of at least"),
    "missing": ({}, {"w": MISSING}, "complete rows.*got NaN.*use XDGMM"),
    "infinite": ({}, {"w": np.where(np.isnan(MISSING), np.inf, W)}, "got inf at row 3, column 1"),
    "projection": ({}, {"projection": np.eye(2)}, "no projection.*Use XDGMM"),
    "many columns": ({}, {"w": np.zeros((9, 4)), "noise": 0.1}, "at most 3 columns.*got 4.*XDGMM"),
    "one row": ({}, {"w": W[:1]}, "at least 2 rows.*n_samples = 1"),
    "constant": ({}, {"w": np.c_[W[:, 0], np.ones(30)]}, "differ in every column.*column 1"),
    "weights": ({}, {"sample_weight": np.zeros(30)}, "at least one positive weight"),
    "noise": ({}, {"noise": [0.1, -0.1]}, "standard deviations \\(sd\\) of at least zero"),
}


@pytest.mark.parametrize("bandwidth", ["plug_in", True])
def test_a_bandwidth_is_a_number(bandwidth):
    with pytest.raises(TypeError, match="Expected numbers as bandwidth; got"):
        DeconvolvingKDE(bandwidth).fit(W, noise=0.1)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    settings, arguments, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        DeconvolvingKDE(**settings).fit(**{"w": W, "noise": 0.1} | arguments)


def test_bad_questions_are_refused():
    model = DeconvolvingKDE().fit(W, noise=0.1)
    with pytest.raises(ValueError, match="no projection"):
        model.posterior(W, noise=0.1, projection=np.eye(2))
    with pytest.raises(ValueError, match="complete rows"):
        model.score(MISSING, noise=0.1)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)
    with pytest.raises(ValueError, match="Expected noise"):
        model.posterior(W)
    with pytest.raises(TypeError, match="noise by its name"):
        DeconvolvingKDE().fit(W, np.ones_like(W))
    with pytest.raises(NotFittedError):
        DeconvolvingKDE().score_samples(W)


def test_a_failed_fit_leaves_the_model_as_it_was():
    model = DeconvolvingKDE().fit(W, noise=0.1)
    before = model.score_samples(W)
    with pytest.raises(ValueError, match="at most 3"):
        model.fit(np.zeros((9, 4)), noise=0.1)
    np.testing.assert_array_equal(model.score_samples(W), before)
