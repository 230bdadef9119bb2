import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import XDGMM, GaussianMixture, noise

MEANS = np.array([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]])
SDS = np.array([[0.3, 1.0], [1.0, 0.3], [1.0, 0.3]])
NOISE = np.sqrt([0.1, 1.0])


def toy(n, seed=0):
    """The paper's mixture of three Gaussians: truth and measurement."""
    rng = np.random.default_rng(seed)
    which = rng.integers(3, size=n)
    v = MEANS[which] + SDS[which] * rng.normal(size=(n, 2))
    return v, v + NOISE * rng.normal(size=(n, 2))


@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [XDGMM(), XDGMM(2, method="minibatch", random_state=0)],
    expected_failed_checks=lambda model: (
        {"check_sample_weight_equivalence_on_dense_data": "repeated rows fall in other batches"}
        if model.method == "minibatch"
        else {}
    ),
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", ["anderson", "em", "minibatch"])
def test_the_toy_is_recovered(method):
    v, w = toy(40_000)
    model = XDGMM(3, method=method, floor=0.05, random_state=0, tol=1e-7).fit(w, noise=NOISE)
    assert model.converged_
    found = model.means_[np.argsort(model.means_ @ [1.0, 0.1])]
    wanted = MEANS[np.argsort(MEANS @ [1.0, 0.1])]
    np.testing.assert_allclose(found, wanted, atol=0.15)
    np.testing.assert_allclose(model.weights_, 1 / 3, atol=0.03)
    truth = XDGMM(3).fit(w[:3], noise=NOISE)  # a shell for the true mixture
    truth.weights_, truth.means_ = np.full(3, 1 / 3), MEANS
    truth.covariances_ = SDS[:, :, None] ** 2 * np.eye(2)
    assert truth.score_samples(v).mean() - model.score_samples(v).mean() < 0.02
    # the negative twin: without the noise the density is far too wide
    blind = XDGMM(3, random_state=0).fit(w, noise=0.0)
    assert truth.score_samples(v).mean() - blind.score_samples(v).mean() > 0.1


def test_acceleration_reaches_the_same_place_in_fewer_steps():
    _, w = toy(5000)
    slow = XDGMM(3, method="em", tol=1e-10, max_iter=5000, random_state=0).fit(w, noise=NOISE)
    fast = XDGMM(3, method="anderson", tol=1e-10, max_iter=5000, random_state=0).fit(w, noise=NOISE)
    assert fast.lower_bound_ >= slow.lower_bound_ - 1e-8
    assert fast.n_iter_ < 0.5 * slow.n_iter_
    assert np.diff(fast.lower_bounds_).min() >= -1e-13


def test_same_seed_same_fit_and_another_start_differs():
    _, w = toy(2000)
    fits = [
        XDGMM(5, init="random", max_iter=20, tol=0.0, random_state=seed).fit(w, noise=NOISE)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0].means_, fits[1].means_)
    assert not np.allclose(fits[0].means_, fits[2].means_)


test_same_seed_same_fit_and_another_start_differs = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)(test_same_seed_same_fit_and_another_start_differs)


def test_more_starts_are_never_worse():
    _, w = toy(2000)
    one, many = (
        XDGMM(4, n_init=n, init="random", random_state=0).fit(w, noise=NOISE) for n in (1, 5)
    )
    assert many.lower_bound_ >= one.lower_bound_


def test_a_fit_continues_from_another():
    _, w = toy(3000)
    with pytest.warns(ConvergenceWarning):
        first = XDGMM(3, method="em", max_iter=5, random_state=0).fit(w, noise=NOISE)
    model = XDGMM(3, method="em", init=first.mixture_).fit(w, noise=NOISE)
    assert model.lower_bounds_[0] >= first.lower_bound_


def test_probabilities_densities_and_criteria_agree():
    _, w = toy(500)
    model = XDGMM(3, random_state=0).fit(w, noise=NOISE)
    proba = model.predict_proba(w, noise=NOISE)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(w, noise=NOISE), proba.argmax(1))
    total = model.score_observations(w, noise=NOISE).sum()
    assert model.score(w, noise=NOISE) == pytest.approx(total / 500)
    assert model.bic(w, noise=NOISE) == pytest.approx(17 * np.log(500) - 2 * total)
    assert model.aic(w, noise=NOISE) == pytest.approx(34 - 2 * total)
    np.testing.assert_allclose(
        model.convolve(NOISE).log_prob(w), model.score_observations(w, noise=NOISE), rtol=1e-10
    )
    np.testing.assert_allclose(
        model.score_samples(w), model.score_observations(w, noise=0.0), rtol=1e-10
    )


def test_draws_have_the_density():
    _, w = toy(2000)
    model = XDGMM(3, random_state=0).fit(w, noise=NOISE)
    v = model.sample(200_000, random_state=0)
    mixture = model.mixture_
    np.testing.assert_allclose(v.mean(0), mixture.mean, atol=0.02)  # 5 standard errors
    np.testing.assert_allclose(np.cov(v.T), mixture.covariance, atol=0.05)


def test_fixed_parameters():
    _, w = toy(1000)
    model = XDGMM(
        3,
        init={"means": MEANS, "weights": [0.5, 0.25, 0.25]},
        fixed={"means": True, "weights": [True, False, False]},
        random_state=0,
    ).fit(w, noise=NOISE)
    np.testing.assert_array_equal(model.means_, MEANS)
    assert model.weights_[0] == pytest.approx(0.5)
    assert model.weights_.sum() == pytest.approx(1.0)


def test_row_weights_count_rows():
    _, w = toy(400)
    weights = np.random.default_rng(0).integers(0, 4, 400)
    start = GaussianMixture(np.full(3, 1 / 3), MEANS, np.stack([np.eye(2)] * 3))
    arguments = {"init": start, "method": "em", "max_iter": 20, "tol": 0.0}
    weighted = XDGMM(3, **arguments).fit(w, noise=NOISE, sample_weight=weights)
    repeated = XDGMM(3, **arguments).fit(np.repeat(w, weights, axis=0), noise=NOISE)
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-9, atol=1e-9)


def test_missing_values_and_projections_recover_the_truth():
    v, w = toy(20_000)
    hidden = w.copy()
    rng = np.random.default_rng(1)
    hidden[rng.uniform(size=len(w)) < 0.3, 0] = np.nan
    model = XDGMM(3, init={"means": MEANS}, random_state=0).fit(hidden, noise=NOISE)
    np.testing.assert_allclose(model.means_, MEANS, atol=0.15)
    angle = rng.uniform(0, np.pi, len(v))
    R = np.stack([np.cos(angle), np.sin(angle)], -1)[:, None]
    line = np.einsum("nij,nj->ni", R, v) + 0.2 * rng.normal(size=(len(v), 1))
    start = {"means": MEANS, "covariances": np.stack([np.eye(2)] * 3)}
    model = XDGMM(3, init=start, random_state=0).fit(line, noise=[0.2], projection=R)
    np.testing.assert_allclose(model.means_, MEANS, atol=0.15)
    np.testing.assert_allclose(model.covariances_, SDS[:, :, None] ** 2 * np.eye(2), atol=0.15)


def test_posterior_is_analytic_for_one_gaussian():
    model = XDGMM(1).fit(np.random.default_rng(0).normal(size=(500, 2)), noise=0.1)
    S = np.array([[0.5, 0.1], [0.1, 0.3]])
    m, V = model.means_[0], model.covariances_[0]
    w = np.array([[1.0, -2.0], [0.0, 3.0], [0.5, 0.5]])
    answer = model.posterior(w, noise=S)
    covariance = np.linalg.inv(np.linalg.inv(V) + np.linalg.inv(S))
    mean = (np.linalg.solve(V, m) + np.linalg.solve(S, w.T).T) @ covariance
    np.testing.assert_allclose(answer.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(answer.covariance, np.stack([covariance] * 3), rtol=1e-10)
    draws = answer.sample(40_000, random_state=0)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws[0].T), covariance, atol=0.02)


def test_posterior_weights_are_probabilities_of_components():
    _, w = toy(300)
    model = XDGMM(3, random_state=0).fit(w, noise=NOISE)
    w[::3, 1] = np.nan
    answer = model.posterior(w, noise=NOISE)
    np.testing.assert_allclose(
        answer.mixture.weights, model.predict_proba(w, noise=NOISE), atol=1e-10
    )


def test_condition_is_joint_over_marginal():
    _, w = toy(3000)
    model = XDGMM(3, random_state=0).fit(w, noise=NOISE)
    x, y = np.array([[-1.0], [0.0], [0.7]]), np.array([0.3, 0.1, -1.5])
    answer = model.condition(x, [0]).mixture
    sd = np.sqrt(answer.covariances[:, :, 0, 0])
    parts = np.exp(-0.5 * ((y[:, None] - answer.means[:, :, 0]) / sd) ** 2) / sd
    log_p = np.log((answer.weights * parts).sum(1) / np.sqrt(2 * np.pi))
    joint = model.score_samples(np.column_stack([x[:, 0], y]))
    np.testing.assert_allclose(log_p, joint - model.marginal([0]).log_prob(x), rtol=1e-9)
    noisy = model.condition(x, [0], noise=[1e4])
    np.testing.assert_allclose(noisy.mean, np.full((3, 1), model.mixture_.mean[1]), atol=1e-3)


def test_condition_with_noise_is_the_posterior_with_the_rest_missing():
    _, w = toy(1000)
    model = XDGMM(3, random_state=0).fit(w, noise=NOISE)
    rows = w[:20].copy()
    rows[:, 1] = np.nan
    np.testing.assert_allclose(
        model.condition(w[:20, :1], [0], noise=NOISE[:1]).mean[:, 0],
        model.posterior(rows, noise=NOISE).mean[:, 1],
        rtol=1e-9,
    )


def test_an_average_is_made_of_fits_without_a_fold(tmp_path):
    _, w = toy(600)
    model = XDGMM("auto", random_state=0).fit(w, noise=NOISE)
    model.save(tmp_path / "model")
    table = model.selection_
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["share"][table["n_components"] == 1].sum() == 0
    for each in (model, XDGMM.load(tmp_path / "model")):
        assert [part.n_components for part in each.mixtures_] == list(each.component_counts_)
        assert len(each.mixtures_) == 5
        assert all(part.weights.sum() == pytest.approx(1.0) for part in each.mixtures_)
        assert np.bincount(each.component_counts_).argmax() == each.n_components_
        assert each.describe() == model.describe()
        assert each.describe().startswith("Average of Gaussian mixtures with ")
        np.testing.assert_array_equal(each.band(0).upper, model.band(0).upper)
    assert (model.band(0).upper > model.band(0).value).all()


def test_a_single_fit_is_described():
    _, w = toy(200)
    two, one = (XDGMM(k, random_state=0).fit(w, noise=NOISE) for k in (2, 1))
    assert two.describe() == "Gaussian mixture with 2 components."
    assert one.describe() == "Gaussian mixture with 1 component."


LAWS = {
    "student_t": (noise.student_t(scale=NOISE, df=3.0), "standard_t"),
    "laplace": (noise.laplace(scale=NOISE), "laplace"),
    "uniform": (noise.uniform(half_width=2 * NOISE), "uniform"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_noise_that_is_not_gaussian(name):
    """The density is found with the true law, and is not with Gaussian noise of that scale."""
    law, draw = LAWS[name]
    v, _ = toy(15_000)
    rng = np.random.default_rng(1)
    size = {"standard_t": {"df": 3}, "laplace": {}, "uniform": {"low": -2, "high": 2}}[draw]
    w = v + NOISE * getattr(rng, draw)(size=v.shape, **size)
    model = XDGMM(3, floor=0.02, random_state=0).fit(w, noise=law)
    oracle = XDGMM(3, random_state=0).fit(v, noise=0.0)
    gap = oracle.score_samples(v).mean() - model.score_samples(v).mean()
    assert gap < 0.03
    if name != "uniform":
        blind = XDGMM(3, random_state=0).fit(w, noise=NOISE)
        assert oracle.score_samples(v).mean() - blind.score_samples(v).mean() > gap + 0.05


def test_noise_law_of_its_own_in_every_row():
    v, _ = toy(4000)
    rng = np.random.default_rng(1)
    scale = rng.uniform(0.5, 1.5, v.shape) * NOISE
    w = v + scale * rng.standard_t(3, size=v.shape)
    model = XDGMM(3, init={"means": MEANS}, random_state=0).fit(
        w, noise=noise.student_t(scale=scale, df=3.0)
    )
    np.testing.assert_allclose(model.means_, MEANS, atol=0.2)
    answer = model.posterior(w[:50], noise=noise.student_t(scale=scale[:50], df=3.0))
    assert np.abs(answer.mean - v[:50]).mean() < np.abs(w[:50] - v[:50]).mean()


def test_save_and_load(tmp_path):
    _, w = toy(500)
    model = XDGMM(3, floor=0.1, init={"means": MEANS}, random_state=0).fit(w, noise=NOISE)
    model.save(tmp_path / "model")
    again = XDGMM.load(tmp_path / "model")
    np.testing.assert_array_equal(model.covariances_, again.covariances_)
    np.testing.assert_array_equal(model.score_samples(w), again.score_samples(w))
    assert again.floor == 0.1
    assert again.lower_bound_ == model.lower_bound_


def test_grid_search_routes_noise():
    _, w = toy(600)
    sds = np.broadcast_to(NOISE, w.shape)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(XDGMM(random_state=0, floor=0.05), {"n_components": [1, 3]}, cv=3)
        search.fit(w, noise=sds)
    assert search.best_params_ == {"n_components": 3}
    assert clone(search.best_estimator_).n_components == 3


BAD = {
    "method": ({"method": "newton"}, "method to be one of"),
    "minibatch": ({"method": {"minibatch": {"rate": 0.1}}}, "an option of minibatches to be one"),
    "epochs": ({"method": {"minibatch": {"epochs": 0}}}, "epochs as a whole number of at least 1"),
    "other": ({"method": {"em": {}}}, 'method as a name, or as {"minibatch"'),
    "init": ({"init": "zeros"}, "init to be one of"),
    "part": ({"init": {"mean": [[0.0, 0.0]]}}, "a part in init to be one of"),
    "count": ({"n_components": 0}, "n_components as a whole number of at least 1; got 0"),
    "counts": ({"n_components": [1, 2]}, r"whole number of at least 1; got \[1, 2\]"),
    "tol": ({"tol": -1.0}, r"tol in \[0, inf\); got -1.0"),
    "floor": ({"floor": np.nan}, r"floor in \[0, inf\); got nan"),
    "floors": ({"floor": [0.1, 0.2]}, r"floor in \[0, inf\); got \[0.1, 0.2\]"),
    "means": ({"n_components": 2, "init": {"means": np.zeros((3, 2))}}, r"means.* \(2, 2\)"),
    "covariances": ({"init": {"covariances": [[[1, 2], [2, 1]]]}}, "positive semi-definite"),
    "weights": ({"init": {"weights": [-1.0]}}, r'init\["weights"\] of at least 0'),
    "flags": (
        {"n_components": 2, "fixed": {"means": [True] * 3}},
        r'fixed\["means"\] as a boolean',
    ),
    "fixed": ({"fixed": {"mean": True}}, "a part in fixed to be one of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused(name):
    settings, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        XDGMM(**settings).fit(toy(20)[1], noise=NOISE)


@pytest.mark.parametrize("question", ["score_samples", "posterior", "sample", "predict"])
def test_an_unfitted_model_says_so(question):
    arguments = {"sample": [3]}.get(question, [np.zeros((2, 2))])
    more = {"noise": 0.1} if question in ("posterior", "predict") else {}
    with pytest.raises(NotFittedError):
        getattr(XDGMM(), question)(*arguments, **more)


def test_bad_questions_are_refused():
    model = XDGMM(1).fit(toy(20)[1], noise=NOISE)
    with pytest.raises(ValueError, match="among v0, v1, or numbers between 0 and 1; got 2"):
        model.marginal([2])
    with pytest.raises(ValueError, match="each of the columns once"):
        model.condition([[1.0, 1.0]], [0, 0])


def test_laplace_noise_in_six_columns():
    """The truth's spread comes back; taken as Gaussian of unit scale, it would be twice as wide."""
    rng = np.random.default_rng(0)
    sd = np.linspace(0.8, 1.3, 6)
    w = sd * rng.normal(size=(4000, 6)) + rng.laplace(scale=0.7, size=(4000, 6))
    model = XDGMM(1).fit(w, noise=noise.laplace(np.full(6, 0.7)))
    found = np.sqrt(np.diag(model.covariances_[0]))
    np.testing.assert_allclose(found, sd, rtol=0.08)  # four errors of 4,000 rows
    assert (w.std(0) > 1.2 * sd).all()


def test_new_parameters_do_not_change_a_fitted_model():
    w = np.random.default_rng(0).normal(size=(120, 1))
    model = XDGMM("auto", random_state=0).fit(w, noise=[0.4])
    words, band = model.describe(), model.band([[0.0]])
    model.set_params(n_components=3)
    assert model.describe() == words
    np.testing.assert_array_equal(model.band([[0.0]]).lower, band.lower)
