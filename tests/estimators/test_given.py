"""Densities of the truth given covariates."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deconflow import XDGMM
from deconflow.estimators import ESTIMATORS

SD = 0.4
TINY = {
    "XDGMM": {"n_components": 1, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 20, "random_state": 0, "n_jobs": 1},
    "FlowDeconvolver": {
        "epochs": 2, "hidden": 8, "n_layers": 1,
        "n_draws": 2, "random_state": 0,
    },
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
}  # fmt: skip


def parabola(n=400, seed=0):
    """The truth is the square of a covariate, up to 0.1; and its measurement."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=n)
    v = (x**2 + 0.1 * rng.normal(size=n))[:, None]
    return x, v, v + SD * rng.normal(size=v.shape)


def error(found, v):
    return np.sqrt(np.square(found - v).mean())


@pytest.fixture(scope="module")
def model():
    x, _, w = parabola()
    return XDGMM(1, random_state=0).fit(w, noise=SD, given=x)


@pytest.mark.parametrize("name", TINY)
def test_covariates_help_in_all_estimators(name):
    """Without them no answer is better than the noise, 0.4, and a parabola is 0.1 wide."""
    x, v, w = parabola()
    fitted = ESTIMATORS[name](**TINY[name]).fit(w, noise=SD, given=x)
    found = error(fitted.posterior(w, SD, given=x).mean, v)
    plain = XDGMM(2, random_state=0).fit(w, noise=SD)
    assert error(plain.posterior(w, SD).mean, v) > 0.3
    assert found < 0.22
    assert np.isfinite(fitted.score_observations(w, SD, given=x)).all()
    near = fitted.density_.given(1.5).sample(400, random_state=0)
    assert near.mean() == pytest.approx(2.25, abs=0.25)
    assert fitted.sample(50, random_state=0).shape == (50, 1)
    assert fitted.known_ == ["Location and spread of the true values are curves of x0."]


def test_errors_that_predict_the_truth():
    rng = np.random.default_rng(0)
    sd = rng.uniform(0.3, 1.5, size=(500, 1))
    v = sd**2 + 0.05 * rng.normal(size=sd.shape)
    w = v + sd * rng.normal(size=sd.shape)
    fitted = XDGMM(1, random_state=0).fit(w, noise=sd, given="noise")
    plain = XDGMM(1, random_state=0).fit(w, noise=sd)
    found = error(fitted.posterior(w, sd, given="noise").mean, v)
    assert found < 0.5 * error(plain.posterior(w, sd).mean, v)
    both = XDGMM(1, random_state=0).fit(w, noise=sd, given=("noise", sd.ravel() ** 2))
    assert error(both.posterior(w, sd, given=("noise", sd.ravel() ** 2)).mean, v) < 2 * found


def test_densities_integrate_to_one(model):
    grid = np.linspace(-4, 9, 4001)
    for x in (-1.5, 0.0, 1.0, 1.9):
        density = np.exp(model.density_.given(x).log_prob(grid[:, None]))
        assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)
        assert np.trapezoid(density * grid, grid) == pytest.approx(x**2, abs=0.25)
        given = np.full(len(grid), x)
        seen = np.exp(model.score_observations(grid[:, None], SD, given=given))
        assert np.trapezoid(seen, grid) == pytest.approx(1, abs=1e-3)
    mixed = np.exp(model.score_samples(grid[:, None]))
    assert np.trapezoid(mixed, grid) == pytest.approx(1, abs=1e-3)


def test_other_questions(model):
    x, _, w = parabola()
    p = model.p_values(w, SD, given=x)
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    turned = model.p_values(w, SD, given=np.random.default_rng(0).permutation(x))  # the twin
    assert (turned < 0.01).mean() > 0.2
    findings = {f.check: f.p for f in model.certify(w, SD, given=x).findings}
    assert findings["columns"] is None or findings["columns"] > 1e-3


def test_frames_and_their_index():
    x, _, w = parabola(100)
    table = pd.DataFrame({"x": x, "kind": np.where(x > 0, "a", "b")})
    fitted = XDGMM(1, random_state=0).fit(pd.DataFrame({"v": w[:, 0]}), noise=SD, given=table)
    same = fitted.posterior(pd.DataFrame({"v": w[:, 0]}), SD, given=table[["kind", "x"]]).mean
    other = fitted.posterior(pd.DataFrame({"v": w[:, 0]}), SD, given=table).mean
    np.testing.assert_array_equal(same, other)
    with pytest.raises(ValueError, match="Expected given with the index of w"):
        fitted.fit(pd.DataFrame({"v": w[:, 0]}), noise=SD, given=table.set_index(table.index + 5))


def test_one_value_of_the_covariates():
    """It may be a mapping or a row of a table, and rows need none of their own."""
    x, _, w = parabola()
    table = pd.DataFrame({"x": x, "kind": np.where(x > 0, "a", "b")})
    fitted = XDGMM(1, random_state=0).fit(np.c_[w, w], noise=[SD, SD], given=table)
    one = fitted.density_.given(table.iloc[0])
    same = fitted.density_.given(dict(table.iloc[0]))
    np.testing.assert_array_equal(same.log_prob([[2.0, 2.0]]), one.log_prob([[2.0, 2.0]]))
    rows = fitted._rows(w[:3].repeat(2, 1), [SD, SD], {"given": table.iloc[[0] * 3]})
    alone = replace(rows, given=None)
    np.testing.assert_array_equal(
        one.log_marginal(alone).log_p, fitted.density_.log_marginal(rows).log_p
    )
    np.testing.assert_array_equal(one.posterior(alone).mean, fitted.density_.posterior(rows).mean)
    middle = one.marginal([1]).quantile(0.5)
    assert middle == pytest.approx(np.median(one.sample(4000, 0)[:, 1]), abs=0.05)
    with pytest.raises(ValueError, match="Expected "):
        fitted.density_.given(table)
    with pytest.raises(ValueError, match="Expected given"):
        fitted.condition([[1.0]], [0])


def test_covariates_tell_rows_at_an_atom_from_others():
    """Where x is large the rest is far from zero: rows near zero there are at the atom."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=600)
    v = np.where(rng.random(600) < 0.3, 0.0, 1.5 + 1.4 * x + 0.1 * rng.normal(size=600))[:, None]
    w = v + SD * rng.normal(size=v.shape)
    fitted = XDGMM(1, atoms=[0.0], random_state=0).fit(w, noise=SD, given=x)
    assert fitted.atom_weights_[0] == pytest.approx(0.3, abs=0.08)
    findings = {f.check: f.p for f in fitted.certify(w, SD, given=x).findings}
    # Atoms are not where z is: rows are compared as they are likely of the rest.
    assert min(findings[name] for name in ("model", "columns", "joint")) > 1e-3
    drawn = fitted.density_.given(0.9).sample(2000, random_state=0)
    rest = drawn[drawn != 0]
    # memberships without covariates leave atoms in the rest: 2.4 and 0.7
    assert rest.mean() == pytest.approx(2.76, abs=0.15)
    assert rest.std() < 0.4
