"""What users do to a mixture that a test of its features would not."""

import numpy as np
import pytest

from deconflow import XDGMM


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
