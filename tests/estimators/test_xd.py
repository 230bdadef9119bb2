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
