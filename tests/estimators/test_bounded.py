"""Bounds of the truth in every estimator, against brute force."""

import numpy as np
import pytest

from deconflow import XDGMM
from deconflow.estimators import ESTIMATORS

SD = 0.4
TINY = {
    "XDGMM": {"n_components": 2, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 20, "random_state": 0, "n_jobs": 1},
    "FlowDeconvolver": {
        "epochs": 2, "hidden": 8, "n_layers": 1,
        "n_draws": 2, "random_state": 0,
    },
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
}  # fmt: skip
GRID = np.linspace(0, 15, 6001)


def exponential(n=400, seed=0, dim=1):
    rng = np.random.default_rng(seed)
    v = rng.exponential(size=(n, dim))
    return v, v + SD * rng.normal(size=v.shape)


BOUNDED = [name for name, cls in ESTIMATORS.items() if "bounds" in cls().get_params()]


@pytest.fixture(scope="module")
def one():
    _, w = exponential()
    return XDGMM(2, bounds=(0, None), random_state=0).fit(w, noise=SD)


@pytest.fixture(scope="module")
def two():
    _, w = exponential(dim=2)
    model = XDGMM(2, bounds=[(0, None), (0, 12)], random_state=0)
    return model.fit(w, noise=SD)


@pytest.mark.parametrize("name", BOUNDED)
def test_nothing_lies_outside(name):
    _, w = exponential(150)
    model = ESTIMATORS[name](bounds=(0, None), **TINY.get(name, {})).fit(w, noise=SD)
    assert model.known_ == ["The true v0 is at least 0."]
    assert model.sample(500, random_state=0).min() >= 0
    assert np.isneginf(model.score_samples([[-0.01], [-3.0]])).all()
    assert np.isfinite(model.score_samples([[0.0], [0.5]])).all()
    posterior = model.posterior(w[:20], SD, n_samples=20, n_proposals=100)
    assert posterior.samples.min() >= 0
    assert posterior.mean.min() >= 0
    assert posterior.quantile(0.01).min() >= 0
    low = model.posterior([[-1.0]], SD)
    assert 0 <= low.mean[0, 0] < 0.6
    mass = np.trapezoid(np.exp(model.score_samples(GRID[:, None])), GRID)
    assert mass == pytest.approx(1, abs=0.05)  # flows of two epochs have tails beyond the grid


def test_the_excess_at_an_edge_is_less_than_half():
    truth, w = exponential(1500, seed=3)
    excess = {
        bounds: (-truth[:, 0] - model.score_samples(truth)).mean()
        for bounds in (None, (0, None))
        for model in [XDGMM("auto", bounds=bounds, random_state=0).fit(w, noise=SD)]
    }
    assert excess[0, None] < 0.5 * excess[None]


def test_exact_rows_at_the_end(one):
    w = np.array([[0.0], [1e-12], [0.7]])
    np.testing.assert_allclose(one.score_observations(w, 0.0), one.score_samples(w), atol=1e-6)
    np.testing.assert_allclose(one.posterior(w, 0.0).mean, w, atol=1e-9)
    two_sided = XDGMM(1, bounds=(0, 1), random_state=0).fit([[0.0], [1.0], [0.3], [0.6]], noise=0.0)
    ends = np.array([[0.0], [1.0]])
    expected = two_sided.score_samples(ends)
    np.testing.assert_allclose(two_sided.score_observations(ends, 0.0), expected, atol=1e-6)


def test_rows_far_beyond_have_draws_at_the_end(one):
    far = one.posterior([[-100.0], [-1e6]], SD)
    assert (far.samples >= 0).all()
    assert (far.samples.std(1) > 0).all()
    np.testing.assert_allclose(far.samples.mean(1), far.mean, rtol=0.5)


def test_two_columns(two):
    draws = two.sample(2000, random_state=0)
    assert draws.min() >= 0
    assert draws[:, 1].max() <= 12
    edges = np.linspace(0, 12, 151)
    middles = 0.5 * (edges[1:] + edges[:-1])
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(two.score_samples(points))
    cell = (edges[1] - edges[0]) ** 2
    assert density.sum() * cell == pytest.approx(1, abs=5e-3)
    w = np.array([[-0.3, 0.4]])
    joint = density * np.exp(-0.5 * np.square((w - points) / SD).sum(1)) / (2 * np.pi * SD**2)
    found = two.posterior(w, SD, n_proposals=4000)
    np.testing.assert_allclose(found.mean[0], joint @ points / joint.sum(), atol=0.02)
    log_p = two.score_observations(w, SD)[0]
    assert log_p == pytest.approx(np.log(joint.sum() * cell), abs=0.02)
    one = two.density_.marginal([0])
    assert np.isneginf(one.log_prob([[-0.1]])).all()
    expected = density.reshape(150, 150).sum(1) * (edges[1] - edges[0])
    np.testing.assert_allclose(np.exp(one.log_prob(middles[:, None])), expected, atol=5e-3)
    assert two.condition([[1.0]], [0]).samples.min() >= 0


def test_what_was_fitted_counts_not_what_was_set_since():
    _, w = exponential(60)
    model = XDGMM(1, random_state=0).fit(w, noise=SD)
    assert model.set_params(bounds=(0, None)).known_ == []
    before = model.fit(w, noise=SD).score_samples(w[:3])
    with pytest.raises(ValueError, match="hold most of the truth"):
        model.set_params(bounds=(50, None)).fit(w, noise=SD)
    np.testing.assert_array_equal(model.score_samples(w[:3]), before)
