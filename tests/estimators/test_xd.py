import numpy as np
import pytest
import toy
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import XDGMM, noise

MEANS, COVARIANCES = toy.MEANS, toy.COVARIANCES
NOISE = np.sqrt(np.diag(toy.NOISE))


@pytest.fixture(scope="module")
def measured():
    """Return 1000 measurements of the paper's mixture, and a fit to them."""
    _, w = toy.draw(1000, 0)
    return w, XDGMM(3, random_state=0).fit(w, noise=NOISE)


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
    v, w = toy.draw(40_000, 0)
    model = XDGMM(3, method=method, floor=0.05, random_state=0, tol=1e-7).fit(w, noise=NOISE)
    assert model.converged_
    found = model.means_[np.argsort(model.means_ @ [1.0, 0.1])]
    wanted = MEANS[np.argsort(MEANS @ [1.0, 0.1])]
    np.testing.assert_allclose(found, wanted, atol=0.15)
    np.testing.assert_allclose(model.weights_, 1 / 3, atol=0.03)
    best = toy.log_prob(v).mean()
    assert best - model.score_samples(v).mean() < 0.02
    # the negative twin: without the noise the density is far too wide
    blind = XDGMM(3, random_state=0).fit(w, noise=0.0)
    assert best - blind.score_samples(v).mean() > 0.1


def test_acceleration_reaches_the_same_place_in_fewer_steps():
    _, w = toy.draw(2000, 0)
    slow = XDGMM(3, method="em", tol=1e-10, max_iter=5000, random_state=0).fit(w, noise=NOISE)
    fast = XDGMM(3, method="anderson", tol=1e-10, max_iter=5000, random_state=0).fit(w, noise=NOISE)
    assert fast.lower_bound_ >= slow.lower_bound_ - 1e-8
    assert fast.n_iter_ < 0.5 * slow.n_iter_
    assert np.diff(fast.lower_bounds_).min() >= -1e-13


def test_more_starts_are_never_worse():
    _, w = toy.draw(2000, 0)
    one, many = (
        XDGMM(4, n_init=n, init="random", random_state=0).fit(w, noise=NOISE) for n in (1, 5)
    )
    assert many.lower_bound_ > one.lower_bound_  # equal, if starts did not differ


def test_a_fit_continues_from_another():
    _, w = toy.draw(3000, 0)
    with pytest.warns(ConvergenceWarning):
        first = XDGMM(3, method="em", max_iter=5, random_state=0).fit(w, noise=NOISE)
    model = XDGMM(3, method="em", init=first.mixture_).fit(w, noise=NOISE)
    assert model.lower_bounds_[0] >= first.lower_bound_


def test_probabilities_densities_and_criteria_agree(measured):
    w, model = measured
    proba = model.predict_proba(w, noise=NOISE)
    np.testing.assert_allclose(proba.sum(1), 1.0)
    np.testing.assert_array_equal(model.predict(w, noise=NOISE), proba.argmax(1))
    total = model.score_observations(w, noise=NOISE).sum()
    assert model.score(w, noise=NOISE) == pytest.approx(total / 1000)
    assert model.bic(w, noise=NOISE) == pytest.approx(17 * np.log(1000) - 2 * total)
    assert model.aic(w, noise=NOISE) == pytest.approx(34 - 2 * total)
    np.testing.assert_allclose(
        model.mixture_.convolve(NOISE).log_prob(w),
        model.score_observations(w, noise=NOISE),
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        model.score_samples(w), model.score_observations(w, noise=0.0), rtol=1e-10
    )


def test_missing_values_and_projections_recover_the_truth():
    v, w = toy.draw(20_000, 0)
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
    np.testing.assert_allclose(model.covariances_, COVARIANCES, atol=0.15)


def test_an_average_is_made_of_fits_without_a_fold(tmp_path):
    _, w = toy.draw(600, 0)
    model = XDGMM("auto", random_state=0).fit(w, noise=NOISE)
    model.save(tmp_path / "model")
    for each in (model, XDGMM.load(tmp_path / "model")):
        assert [part.n_components for part in each.mixtures_] == list(each.component_counts_)
        assert len(each.mixtures_) == 5
        assert all(part.weights.sum() == pytest.approx(1.0) for part in each.mixtures_)
        assert np.bincount(each.component_counts_).argmax() == each.n_components_
        assert each.describe().startswith("Average of Gaussian mixtures with ")
        np.testing.assert_array_equal(each.selection_["chosen"], model.selection_["chosen"])
    model.set_params(n_components=1).fit(w, noise=NOISE)
    assert not hasattr(model, "selection_")  # what was tried is forgotten


def test_noise_law_of_its_own_in_every_row():
    v, _ = toy.draw(4000, 0)
    rng = np.random.default_rng(1)
    scale = rng.uniform(0.5, 1.5, v.shape) * NOISE
    w = v + scale * rng.standard_t(3, size=v.shape)
    model = XDGMM(3, init={"means": MEANS}, random_state=0).fit(
        w, noise=noise.student_t(scale=scale, df=3.0)
    )
    np.testing.assert_allclose(model.means_, MEANS, atol=0.2)
    answer = model.posterior(w[:50], noise=noise.student_t(scale=scale[:50], df=3.0))
    assert np.abs(answer.mean - v[:50]).mean() < np.abs(w[:50] - v[:50]).mean()


# -- what users do to a mixture that a test of its features would not -----------------------------


@pytest.fixture
def data(rng):
    w = rng.normal(size=(150, 2))
    return w, rng.uniform(0.1, 0.4, size=(150, 2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_without_weight_never_make_nan(data):
    w, sd = data
    weights = np.r_[np.zeros(50), np.ones(100)]
    for size in (50, 149):
        method = {"minibatch": {"batch_size": size, "epochs": 3}}
        model = XDGMM(2, method=method, random_state=0).fit(w, noise=sd, sample_weight=weights)
        assert np.isfinite(model.means_).all()


def test_far_clusters_keep_their_width(rng):
    x = np.r_[rng.normal(size=1000), 1e6 + rng.normal(size=1000)][:, None]
    free = XDGMM(2, random_state=0).fit(x, noise=[0.1]).covariances_.ravel()
    np.testing.assert_allclose(free, 1, atol=0.2)
    given = dict(init={"covariances": np.ones((2, 1, 1))}, fixed={"covariances": True})
    fixed = XDGMM(2, random_state=0, **given).fit(x, noise=[0.1]).covariances_.ravel()
    np.testing.assert_allclose(fixed, 1, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["anderson", "em", "minibatch"])
def test_given_parameters_stay_given(method, data):
    w, sd = data
    start = {"means": np.array([[-1.0, 0.0], [1.0, 0.5], [0.0, 1.0]]), "weights": [0.5, 0.25, 0.25]}
    fixed = {"means": True, "weights": [True, False, False]}
    model = XDGMM(3, method=method, init=start, fixed=fixed, random_state=0).fit(w, noise=sd)
    np.testing.assert_allclose(model.means_, start["means"], atol=1e-9)
    assert model.weights_[0] == pytest.approx(0.5)
    assert model.weights_.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_given_start_is_saved(data, tmp_path, as_dict):
    w, sd = data
    model = XDGMM(2, tol=1e-4, random_state=0).fit(w, noise=sd)
    start = {"means": model.means_} if as_dict else model.mixture_
    again = XDGMM(2, tol=1e-4, init=start, fixed={"means": [True, False]}, random_state=0).fit(
        w, noise=sd
    )
    again.save(tmp_path / "model")
    loaded = XDGMM.load(tmp_path / "model")
    assert loaded.fixed == {"means": [True, False]}
    np.testing.assert_array_equal(loaded.init["means"], model.means_)
    assert loaded.lower_bound_ == again.lower_bound_
    np.testing.assert_array_equal(loaded.fit(w, noise=sd).means_, again.means_)


def test_exact_copies_of_a_column_are_named(data):
    w, _ = data
    twice = np.c_[w, w.sum(1)]
    R = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="the same combination twice"):
        XDGMM(1).fit(twice, noise=0.0, projection=R)


def start(dtype=float):
    return [np.ones(2, dtype) / 2, np.array([[-1, 0], [1, 0]], dtype), np.stack([np.eye(2)] * 2)]


def two_clumps(rng, huge, honest=True):
    """Rows about two places 4 apart; every seventh, and some cells, have noise of a huge sd."""
    v = rng.normal(size=(600, 2)) * [1, 0.5] + 4 * rng.integers(2, size=(600, 1))
    sd = rng.uniform(0.2, 0.6, size=v.shape)
    sd[::7] = huge
    sd[1::7, 0] = huge
    w = v + sd * rng.normal(size=v.shape)
    return w, sd if honest else np.minimum(sd, 0.6)


@pytest.mark.parametrize("cells", [slice(None), slice(0, 1)], ids=["rows", "one column"])
@pytest.mark.parametrize("huge", [30, 1e6, 1e100])
@pytest.mark.parametrize("settings", [{}, {"floor": 0.1}, {"init": "random"}], ids=str)
def test_huge_noise_in_nine_of_ten_rows_changes_nothing(rng, huge, cells, settings):
    v = rng.normal(size=(1500, 2)) * [1, 0.5] + 4 * rng.integers(2, size=(1500, 1))
    sd = rng.uniform(0.2, 0.6, size=v.shape)
    good = np.arange(len(v)) % 10 == 0
    sd[~good, cells] = huge
    w = v + sd * rng.normal(size=v.shape)
    without = XDGMM(2, random_state=0, **settings).fit(w[good], noise=sd[good])
    model = XDGMM(2, random_state=0, **settings).fit(w, noise=sd)
    assert model.score(v, noise=0.0) > without.score(v, noise=0.0) - 0.02


def test_rows_of_huge_noise_that_nobody_told_of_do_change_the_fit(rng):
    w, sd = two_clumps(rng, 300, honest=False)
    assert XDGMM(2, random_state=0).fit(w, noise=sd).weights_.min() < 0.3
