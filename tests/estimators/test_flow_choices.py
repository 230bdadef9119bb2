"""Every objective with every posterior that goes with it."""

import itertools
import pickle

import numpy as np
import pytest
import toy

from deconflow import FlowDeconvolver
from deconflow.engines.flow import OBJECTIVES
from deconflow.estimators.flow import NEED_DERIVATIVES, POSTERIORS

TINY = dict(
    n_layers=1, hidden=8, n_draws=3, epochs=2, batch_size=64, random_state=0,
)  # fmt: skip


def tiny(objective, posterior_family, **changes):
    settings = {**TINY, "objective": objective, "posterior_family": posterior_family}
    if posterior_family == "exact":
        settings |= {"flow": "gaussian_mixture", "base_components": 3}
    return FlowDeconvolver(**{**settings, **changes})


CHOICES = [
    (objective, family)
    for objective, family in itertools.product(OBJECTIVES, POSTERIORS)
    if family != "mixture" or objective not in NEED_DERIVATIVES
]
every_choice = pytest.mark.parametrize(("objective", "family"), CHOICES)


@pytest.fixture
def problem(rng):
    w = rng.normal(size=(120, 2))
    w[::5, 0] = np.nan
    return w, rng.uniform(0.2, 0.6, size=(120, 2))


@every_choice
def test_fit_save_and_load(objective, family, problem, tmp_path):
    w, sd = problem
    model = tiny(objective, family).fit(w, noise=sd)
    assert model.history_.skipped_steps == 0
    assert model.posterior(w, noise=sd, n_samples=3).samples.shape == (120, 3, 2)
    model.save(tmp_path / "model")
    loaded = FlowDeconvolver.load(tmp_path / "model")
    copied = pickle.loads(pickle.dumps(model))
    v = np.nan_to_num(w)
    for other in (loaded, copied):
        np.testing.assert_array_equal(other.score_samples(v), model.score_samples(v))
        assert other.score(w, noise=sd) == model.score(w, noise=sd)
    again = tiny(objective, family).fit(w, noise=sd)
    np.testing.assert_array_equal(again.score_samples(v), model.score_samples(v))


@pytest.mark.parametrize("family", POSTERIORS)
def test_projections(family, problem, rng):
    w, sd = problem
    R = rng.normal(size=(120, 2, 3))
    model = tiny("coupled", family).fit(w, noise=sd, projection=R)
    assert model.sample(3).shape == (3, 3)
    assert model.posterior(w, noise=sd, projection=R).mean.shape == (120, 3)
    assert np.isfinite(model.score(w, noise=sd, projection=R))


@pytest.mark.slow
def test_the_mixture_by_exact_elbo_reaches_the_likelihood_of_the_truth():
    """The paper's second table, in small: tight bounds, so the toy's own likelihood."""
    _, w = toy.draw(4000, 0)
    sd = np.sqrt(np.diag(toy.NOISE))
    model = FlowDeconvolver(
        "gaussian_mixture",
        objective="elbo",
        posterior_family="exact",
        base_components=3,
        n_draws=10,
        epochs=15,
        batch_size=100,
        learning_rate=3e-2,
        random_state=0,
    ).fit(w, noise=sd)
    truth = float(toy.log_prob(w, toy.NOISE).mean())
    # On its own rows a fit of 17 parameters is 17 / (2 n) = 0.002 above the truth in the mean.
    assert model.score(w, noise=sd) == pytest.approx(truth, abs=0.01)
    assert model.history_.validation[0] < model.history_.validation[-1]
    # The bound of the exact posterior is the likelihood: one draw says as much as a hundred.
    one, many = (model.score(w, noise=sd, n_samples=n) for n in (1, 100))
    assert one == pytest.approx(many, abs=1e-4)
