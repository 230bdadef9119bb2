"""Densities of the truth given covariates."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

from deconflow import XDGMM, noise, observe
from deconflow.core import Run
from deconflow.estimators import ESTIMATORS
from deconflow.reductions import Known, LearnErrors

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
    assert stats.kstest(model.p_values(w, SD, given=x), "uniform").pvalue > 1e-3
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


# -- errors that are not quite known, through the front door of every estimator -------------------


QUICK = {
    "XDGMM": {"n_components": 1, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 20, "random_state": 0, "n_jobs": 1},
    "FlowDeconvolver": {
        "epochs": 2, "hidden": 8, "n_layers": 1,
        "n_draws": 2, "random_state": 0,
    },
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
    "LogSplineDeconvolver": {},
    "DeconvolvingKDE": {},
    "WaveletDeconvolver": {},
}  # fmt: skip
N = 800


def rows(dim=1):
    rng = np.random.default_rng(0)
    sd = np.exp(rng.uniform(np.log(0.1), np.log(1), (N, dim)))
    group = np.tile(["north", "south"], N // 2)
    v = rng.normal(size=(N, dim))
    w = v + 2 * sd * rng.normal(size=sd.shape)
    return w + np.where(group == "north", 0.5, -0.5)[:, None], sd, group


def errors(sd, group):
    return noise.gaussian(sd=sd, scale="fit", groups=group)


@pytest.fixture(scope="module")
def fitted():
    w, sd, group = rows()
    return XDGMM(1, random_state=0).fit(w, noise=errors(sd, group))


@pytest.mark.parametrize("name", QUICK)
def test_every_estimator_learns_them(name):
    w, sd, group = (each[:300] for each in rows())
    free, model = errors(sd, group), ESTIMATORS[name](**QUICK[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits this short warn of themselves
        model.fit(w, noise=free)
    known = model.errors_
    assert known.scale[0] == pytest.approx(2, abs=4 * known.scale_error[0])
    assert known.shifts[:, 0] == pytest.approx([0.5, -0.5], abs=0.3)


@pytest.mark.parametrize("name", ["XDGMM", "DeconvolvingKDE"])
def test_a_fit_goes_on_with_what_was_learned(name):
    """It gives what it gives for rows that have been put right by hand."""
    w, sd, group = rows()
    free = errors(sd, group)
    model = ESTIMATORS[name](**QUICK[name]).fit(w, noise=free)
    known = model.errors_
    moved = w - np.where(group == "north", *known.shifts[:, 0])[:, None]
    plain = clone(model).fit(moved, noise=sd * known.scale)
    assert plain.errors_ is None
    expected = plain.score_observations(moved[:50], sd[:50] * known.scale)
    np.testing.assert_allclose(model.score_observations(w[:50], free[:50]), expected, rtol=1e-9)


def test_the_certificate_says_what_was_learned(fitted):
    w, sd, group = rows()
    found = fitted.certify(w, errors(sd, group))
    assert "scale of w0 2.0" in found.figures()["learned errors"]
    assert found.finding("factor").p > 0.01  # errors as they were said would be refused here
    assert fitted.known_[0].startswith("Best-fitting factors on the stated errors: w0 2.0")
    as_said = XDGMM(1, random_state=0).fit(w, noise=sd).certify(w, sd)
    assert as_said.finding("learned") is None
    assert not as_said.trusted


def test_what_can_hardly_be_told_is_a_caution():
    rng = np.random.default_rng(0)
    sd = np.exp(rng.uniform(np.log(0.3), np.log(0.4), (400, 1)))
    w = rng.normal(size=(400, 1)) + sd * rng.normal(size=sd.shape)
    free = noise.gaussian(sd=sd, scale="fit")
    found = XDGMM(1, random_state=0).fit(w, noise=free).certify(w, free)
    assert any("hardly determine the scale of w0" in warning for warning in found.warnings)


def test_replicates_are_kept_together():
    w, sd, _ = rows()
    which = np.repeat(np.arange(N // 2), 2)
    free = noise.gaussian(sd=sd, scale="fit", replicates=which)
    data, _ = LearnErrors(Known()).prepare(observe(w, free), Run(), None)
    assert (data.group_codes() == which).all()
    own = np.arange(N)
    data, _ = LearnErrors(Known()).prepare(observe(w, free, groups=own), Run(), None)
    assert data.group_codes() is None  # as the caller says


def test_shared_errors_and_correlations_become_laws():
    free = noise.gaussian(sd=[0.3, 0.4], scale="fit", correlation="fit", replicates=[0, 0, 1])
    assert len(free) == 3
    assert free.shape == (3, 2)
    assert free[1:].replicates.tolist() == [0, 1]
    assert "learned=scale, correlation" in repr(free)
    rng = np.random.default_rng(1)
    which = np.repeat(np.arange(300), 2)
    C = np.array([[1.0, 0.7], [0.7, 1.0]])
    e = rng.multivariate_normal([0, 0], C, 600) * [0.3, 0.4]
    w = rng.normal(size=(300, 2))[which] + e
    free = noise.gaussian(sd=[0.3, 0.4], scale="fit", correlation="fit", replicates=which)
    model = XDGMM(1, random_state=0).fit(w, noise=free)
    law = model.errors_.law(free.said)
    assert law.shared
    expected = C * np.outer([0.3, 0.4], [0.3, 0.4])
    assert law.covariance()[0] == pytest.approx(expected, rel=0.2)


REFUSED = {
    "scale as a number": ({"scale": 2.0}, 'Expected scale as "fit" or None; got 2.0'),
    "nothing to learn": ({"replicates": [0, 0]}, "Expected something to learn"),
    "one column": ({"correlation": "fit"}, "at least 2 columns"),
    "labels of other rows": ({"scale": "fit", "groups": [1, 2, 3]}, "each of 2 rows; got 3"),
    "one label": ({"groups": "A"}, "a label for each row; got 'A'"),
    "several labels": ({"groups": [[1, 2], [3]]}, "one label for each row"),
    "said already": (
        {"sd": None, "covariance": np.eye(2), "correlation": "fit"},
        "got covariances, which say it already",
    ),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_calls(arguments, words):
    with pytest.raises((ValueError, TypeError), match=r"^Expected") as refused:
        noise.gaussian(**{"sd": [[0.1], [0.2]], **arguments})
    assert words in str(refused.value)


def test_other_errors_than_those_of_the_fit_are_refused(fitted):
    w, sd, group = rows()
    questions = {
        "errors that are taken as they are": sd,
        'scale="fit", groups=labels.; got noise.gaussian.sd=..., scale="fit".': noise.gaussian(
            sd=sd, scale="fit"
        ),
        "'north', 'south'; got 'east' in row 3": errors(sd, [*group[:3], "east", *group[4:]]),
        "of the noise of shape .800,.": errors([0.1], group[:7]),
    }
    for words, given in questions.items():
        with pytest.raises(ValueError, match=words):
            fitted.posterior(w, given)


@pytest.mark.parametrize(
    "damage", [{"scale": [-1.0]}, {"jitter": [np.nan]}, {"shifts": [[0.0]]}], ids=str
)
def test_damaged_values_are_not_taken(fitted, damage):
    ((name, value),) = damage.items()
    with pytest.raises(ValueError, match=f"{name} is not"):
        replace(fitted.errors_, **{name: np.array(value)}).validate()
