"""What smaller or larger errors would change: closed forms, cold refits, other noise."""

import json
import re
from importlib import import_module

import numpy as np
import pytest

from deconflow import XDGMM, LogSplineDeconvolver, Sensitivity
from deconflow.noise import student_t

N = 1000


@pytest.fixture(scope="module")
def gauss():
    rng = np.random.default_rng(0)
    sd = np.array([0.6, 0.4])
    return rng.normal(1.0, [1.0, 0.5], (N, 2)) + sd * rng.normal(size=(N, 2)), sd


@pytest.fixture(scope="module")
def clumps():
    rng = np.random.default_rng(1)
    v = np.concatenate([rng.normal(-2, 0.4, (N // 2, 2)), rng.normal(1, 0.7, (N // 2, 2))])
    sd = rng.uniform(0.2, 0.8, (N, 2))
    return v + sd * rng.normal(size=v.shape), sd


def test_one_gaussian_has_a_closed_form(gauss):
    w, sd = gauss
    found = XDGMM(1).fit(w, noise=sd).sensitivity(w, noise=sd)
    covariance = np.cov(w.T, bias=True)
    for i, factor in enumerate(found.factors):
        truth = covariance - np.diag(np.square(factor * sd))
        spread = np.sqrt(np.diag(truth))
        assert np.allclose(found.sd[i], spread, rtol=1e-3)
        assert np.allclose(found.mean[i], w.mean(0), atol=1e-3)
        assert np.allclose(found.correlation[i, 0, 1], truth[0, 1] / spread.prod(), atol=2e-3)
        assert np.allclose(found.quantiles[i, 2], w.mean(0) + 1.2816 * spread, rtol=1e-2)
    assert found.factors == (0.8, 1.0, 1.2)


def test_errors_too_large_for_the_rows_leave_no_spread(gauss):
    w, _ = gauss
    sd = w.std(0) * [0.9, 0.3]
    found = XDGMM(1).fit(w, noise=sd).sensitivity(w, noise=sd)
    assert found.sd[2, 0] < 0.4 * found.sd[1, 0]
    assert np.isfinite(found.quantiles).all()


def test_exact_rows_do_not_depend_on_errors(gauss):
    w, _ = gauss
    found = XDGMM(1).fit(w, noise=0.0).sensitivity(w, noise=0.0)
    assert np.allclose(found.sd, found.sd[1])
    assert np.allclose(found.quantiles, found.quantiles[1])


@pytest.mark.parametrize("model", [XDGMM(2, random_state=0), LogSplineDeconvolver()])
def test_warm_differences_are_those_of_cold_fits(clumps, model):
    w, sd = (each[:, :1] for each in clumps)
    found = model.fit(w, noise=sd).sensitivity(w, noise=sd)
    own = model.sample(20_000, random_state=0)
    assert np.allclose(found.sd[1], own.std(0), rtol=0.02)
    for i, factor in ((0, 0.8), (2, 1.2)):
        cold = model.fit(w, noise=factor * sd).sample(20_000, random_state=0)
        assert np.allclose(found.sd[i], cold.std(0), rtol=0.02)
        assert np.allclose(found.quantiles[i, ::2], np.quantile(cold, [0.1, 0.9], 0), atol=0.1)


def test_averages_missing_values_and_other_laws(clumps):
    w, sd = clumps
    holes = w.copy()
    holes[::4, 1] = np.nan
    law = student_t(sd, df=5)
    model = XDGMM(2, n_average=3, random_state=0).fit(holes, noise=law)
    found = model.sensitivity(holes, noise=law, sample_weight=np.r_[0.0, np.ones(N - 1)])
    assert found.n_rows == N - 1
    assert (np.diff(found.sd, axis=0) < 0).all()
    assert (np.diff(found.quantiles, axis=1) > 0).all()


def test_projections(gauss):
    w, sd = gauss
    R = np.array([[1.0, 1.0], [1.0, -1.0]])
    found = XDGMM(1).fit(w, noise=sd, projection=R).sensitivity(w, noise=sd, projection=R)
    assert (np.diff(found.sd, axis=0) < 0).all()


def test_many_rows_are_thinned(gauss, monkeypatch):
    w, sd = gauss
    home = import_module("deconflow.evaluation.sensitivity")  # its function has the same name
    monkeypatch.setattr(home, "MOST_ROWS", 200)
    found = XDGMM(1).fit(w, noise=sd).sensitivity(w, noise=sd)
    assert found.n_rows == 200


def test_words_and_json(gauss):
    w, sd = gauss
    found = XDGMM(1).fit(w, noise=sd).sensitivity(w, noise=sd)
    again = Sensitivity.from_dict(json.loads(json.dumps(found.as_dict())))
    assert again.in_words() == found.in_words()
    lines = found.in_words().splitlines()
    assert len(lines) == 1 + 2 * 5 + 1
    assert lines[-1].startswith("v0, v1")
    spread = next(line for line in lines if "spread" in line)
    assert re.fullmatch(r"v0 +spread +0\.98\d+ +\+0\.06\d* +-0\.0[789]\d*", spread)


def test_bad_input(gauss):
    w, sd = gauss
    with pytest.raises(Exception, match="not fitted"):
        XDGMM(1).sensitivity(w, noise=sd)
    with pytest.raises(ValueError, match="Expected noise"):
        XDGMM(1).fit(w, noise=sd).sensitivity(w)
