"""FlowDeconvolver with covariates: a flow whose networks see them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from deconflow import FlowDeconvolver
from deconflow.densities import ARCHITECTURES
from deconflow.estimators.flow import OBJECTIVES
from deconflow.observations import Observations
from deconflow.trust.table import make_table

SMALL = {"hidden": 32, "n_draws": 5, "batch_size": 128, "learning_rate": 5e-3, "random_state": 0}
TINY = {**SMALL, "hidden": 8, "n_layers": 1, "epochs": 1}


def shares(x):
    return 1 / (1 + np.exp(-4 * x))


def table(n, seed):
    """Two modes whose shares depend on x, with mean 0 and sd 1 for every x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    mean = 2 * shares(x) - 1
    raw = np.where(rng.random(n) < shares(x), 1.0, -1.0) + 0.25 * rng.normal(size=n)
    v = ((raw - mean) / np.sqrt(1 - mean**2 + 0.25**2))[:, None]
    noise = rng.uniform(0.2, 0.4, v.shape)
    return x[:, None], v, v + noise * rng.normal(size=v.shape), noise


@pytest.fixture(scope="module")
def fitted():
    x, _, w, noise = table(1200, 0)
    return FlowDeconvolver(epochs=25, **SMALL).fit(w, noise=noise, given=x)


def without_context(model, w, noise, x):
    """The same flow, fitted to what the same curves leave, and what it says of other rows."""
    curves = model._knowledge.curves
    rows = curves.standardised(model._observe(w, noise, None, given=x))
    plain = FlowDeconvolver(epochs=25, **SMALL).fit(rows.w.numpy(), noise=rows.noise)

    def log_prob(v, x):
        location, scale = curves.at(model._encode(x, len(v)))
        return plain.score_samples((v - location) / scale) - np.log(scale).sum(1)

    return log_prob


def test_the_shape_depends_on_covariates(fitted):
    x, _, w, noise = table(1200, 0)
    other_x, other_v, _, _ = table(1000, 1)
    gain = fitted.score_samples(other_v, given=other_x)
    gain = gain - without_context(fitted, w, noise, x)(other_v, other_x)
    assert gain.mean() > 0.3
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))


@pytest.mark.slow
def test_a_shape_that_does_not_depend_on_covariates_gains_nothing():
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(1200, 1)), rng.normal(size=(1200, 1))
    w = v + 0.3 * rng.normal(size=v.shape)
    model = FlowDeconvolver(epochs=25, **SMALL).fit(w, noise=[0.3], given=x)
    points, elsewhere = rng.normal(size=(1000, 1)), rng.normal(size=(1000, 1))
    gain = model.score_samples(points, given=elsewhere)
    gain = gain - without_context(model, w, np.full(w.shape, 0.3), x)(points, elsewhere)
    assert abs(gain.mean()) < 0.05


def test_draws_follow_their_covariates(fitted):
    low, high = (fitted.sample(2000, 0, given=[[at]])[:, 0] for at in (-0.7, 0.7))
    for drawn in (low, high):
        assert abs(drawn.mean()) < 0.2
    # Many low ones, a tail above; the other way round elsewhere. Without context they are alike.
    assert np.median(high) - np.median(low) > 0.2
    same = fitted.sample(2000, 1, given=[[-0.7]])[:, 0]
    assert abs(np.median(same) - np.median(low)) < 0.1
    assert fitted.sample(5, 0).shape == (5, 1)


def test_scores_integrate_to_one(fitted):
    grid = np.linspace(-8, 8, 2001)[:, None]
    for at in (-0.7, 0.0, 0.7):
        mass = np.exp(fitted.score_samples(grid, given=[[at]])).sum() * 16 / 2000
        assert mass == pytest.approx(1, abs=0.01)
    assert np.exp(fitted.score_samples(grid)).sum() * 16 / 2000 == pytest.approx(1, abs=0.01)


def test_rows_integrate_over_the_density(fitted):
    x, _, w, noise = table(30, 2)
    grid = np.linspace(-8, 8, 2001)
    points = np.repeat(grid[:, None], len(x), axis=0)
    log_p = fitted.score_samples(points, given=np.tile(x, (len(grid), 1))).reshape(-1, len(x))
    kernel = np.exp(-0.5 * ((w - grid) / noise) ** 2) / noise / np.sqrt(2 * np.pi)
    joint = np.exp(log_p) * kernel.T * 16 / 2000
    scores = fitted.score_observations(w, noise, given=x, n_samples=2000)
    assert np.allclose(scores, np.log(joint.sum(0)), atol=0.06)
    means = (joint * grid[:, None]).sum(0) / joint.sum(0)
    posterior = fitted.posterior(w, noise, given=x, n_samples=20)
    assert np.allclose(posterior.mean[:, 0], means, atol=0.06)
    assert posterior.samples.shape == (30, 20, 1)


def test_a_saved_model_answers_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = FlowDeconvolver.load(tmp_path / "model")
    x, v, w, noise = table(50, 2)
    for ask in (
        lambda m: m.score_samples(v, given=x),
        lambda m: m.score_samples(v),
        lambda m: m.score_observations(w, noise, given=x),
        lambda m: m.posterior(w, noise, given=x).mean,
        lambda m: m.sample(50, 0, given=x),
        lambda m: m.sample(50, 0),
        lambda m: m.p_values(w, noise, given=x),
    ):
        assert np.array_equal(ask(fitted), ask(again))


def test_p_values_are_uniform_given_covariates(fitted):
    x, _, w, noise = table(1000, 3)
    p = fitted.p_values(w, noise, given=x)
    assert abs(np.mean(p < 0.5) - 0.5) < 0.08
    assert np.mean(p < 0.05) < 0.12


def test_the_certificate_leaves_a_right_fit_alone(fitted):
    x, _, w, noise = table(1200, 0)
    certificate = fitted.certify(w, noise, given=x)
    assert certificate.fitted == pytest.approx(fitted.score(w, noise=noise, given=x), abs=0.05)
    assert certificate.trusted


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_the_certificate_finds_wrong_noise_where_all_depends_on_covariates(right):
    x, v, _, noise = table(2000, 5)
    v, rng = 2 * x + np.exp(x) * v, np.random.default_rng(9)
    drawn = rng.normal(size=v.shape) if right else rng.exponential(size=v.shape) - 1
    w, noise = v + 0.4 * drawn, np.full(v.shape, 0.4)
    model = FlowDeconvolver(epochs=15, **SMALL).fit(w, noise=noise, given=x)
    certificate = model.certify(w, noise, given=x)
    assert certificate.trusted == right
    assert ("skewness" in [each.check for each in certificate.cautions]) != right


def test_companions_of_a_row_have_its_covariates():
    x, _, w, _ = table(200, 0)
    data = Observations.from_arrays(w, [1e-6])
    rows = make_table(
        replace(data, given=torch.from_numpy(x)), lambda n, seed: np.full((n, 1), np.nan),
        ["w"], None, 0, averaged=False, sample_given=lambda given, seed: given,
    )  # fmt: skip
    companions = rows.units.from_standard(torch.from_numpy(rows.rows.w[:, 1:])).numpy()
    assert np.allclose(companions[..., 0], x, atol=1e-4)


@pytest.mark.parametrize("flow", ARCHITECTURES)
@pytest.mark.parametrize("columns", [1, 2])
def test_every_flow_takes_covariates(flow, columns):
    x, _, w, noise = table(200, 0)
    w, noise = np.tile(w, columns), np.tile(noise, columns)
    x = np.column_stack([x, x**2])
    model = FlowDeconvolver(flow, **TINY).fit(w, noise=noise, given=x)
    # Of what the curves leave, which is the same for all covariates if the flow does not look.
    z, x = w[:20], model._encode(x, len(x))
    here, there = (model._own_density.log_prob_given(z, x[k : k + 20]) for k in (0, 20))
    assert np.isfinite(here).all()
    assert not np.allclose(here, there)
    assert model._own_density.sample_given(x[:7], 0).shape == (7, columns)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_teaches_by_covariates(objective):
    x, _, w, noise = table(200, 0)
    model = FlowDeconvolver(objective=objective, **TINY).fit(w, noise=noise, given=x)
    layer = model._own_density.density.flow.base.network.context
    fresh = FlowDeconvolver(objective=objective, **{**TINY, "learning_rate": 1e-30})
    fresh.fit(w, noise=noise, given=x)
    start = fresh._own_density.density.flow.base.network.context
    assert not torch.equal(layer.weight, start.weight)


def test_a_mixture_network_as_posterior_sees_covariates():
    x, _, w, noise = table(200, 0)
    options = {"posterior_family": "mixture", "objective": "coupled"}
    model = FlowDeconvolver(**options, **TINY).fit(w, noise=noise, given=x)
    assert model.posterior_.n_features == 4  # w, its error, that it was seen, and x


def test_marginals_are_given_covariates():
    x, _, w, noise = table(300, 0)
    w, noise = np.tile(w, 2), np.tile(noise, 2)
    model = FlowDeconvolver(**TINY).fit(w, noise=noise, given=x)
    part, x = model.marginal([1]), model._encode(x, len(x))
    assert part.sample_given(x[:5], 0).shape == (5, 1)
    grid = np.linspace(-8, 8, 101)[:, None]
    log_p = part.log_prob_given(grid, np.repeat(x[:1], 101, axis=0))
    assert np.exp(log_p).sum() * 0.16 == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_bounds_hold_given_covariates():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(800, 1))
    v = rng.exponential(np.exp(x))
    w = v + 0.3 * rng.normal(size=v.shape)
    model = FlowDeconvolver(epochs=15, bounds=(0, None), **SMALL).fit(w, noise=[0.3], given=x)
    low, high = (model.sample(2000, 0, given=[[at]]) for at in (-0.8, 0.8))
    assert min(low.min(), high.min()) >= 0
    assert high.mean() > 1.5 * low.mean()
    grid = np.linspace(0, 40, 4001)[:, None]
    for at in (-0.8, 0.8):
        mass = np.exp(model.score_samples(grid, given=[[at]])).sum() * 0.01
        assert mass == pytest.approx(1, abs=0.03)
    assert np.isneginf(model.score_samples([[-0.1]], given=[[0.0]])).all()
    posterior = model.posterior(w[:20], [0.3], given=x[:20])
    assert posterior.samples.min() >= 0
    assert np.isfinite(model.score(w[:20], noise=[0.3], given=x[:20]))


def test_a_plain_mixture_says_that_it_takes_none():
    x, _, w, noise = table(100, 0)
    with pytest.raises(ValueError, match=r"'mixture', 'spline'.*got 'gaussian_mixture'"):
        FlowDeconvolver("gaussian_mixture", **TINY).fit(w, noise=noise, given=x)
