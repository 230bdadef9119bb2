"""Errors that are not quite known, through the front door of every estimator."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from deconflow import XDGMM, noise, observe
from deconflow.core import Run
from deconflow.estimators import ESTIMATORS
from deconflow.reductions import Known, LearnErrors

TINY = {
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


@pytest.mark.parametrize("name", TINY)
def test_every_estimator_learns_them(name):
    w, sd, group = (each[:300] for each in rows())
    free, model = errors(sd, group), ESTIMATORS[name](**TINY[name])
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
    model = ESTIMATORS[name](**TINY[name]).fit(w, noise=free)
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
