"""Limits in fits: what was not detected, or saturated, tells of the truth all the same."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from benchmarks.measured_limits import SLOPE, measure
from deconflow import (
    XDGMM,
    BayesianXDGMM,
    Deconvolver,
    FlowDeconvolver,
)

MEAN, SD, ERROR = 2.0, 1.5, 0.2
LIMIT = MEAN + SD * norm.ppf(0.3)


def table(n=1000, seed=0, side=-1):
    """Rows of one column, 30 % of them limits to a side; their flags."""
    rng = np.random.default_rng(seed)
    w = MEAN + SD * rng.normal(size=(n, 1)) + ERROR * rng.normal(size=(n, 1))
    limit = MEAN + side * (MEAN - LIMIT)
    flags = np.where(side * (w - limit) > 0, side, 0)
    return np.where(flags != 0, limit, w), flags


def figures(model):
    """Middle and width of the truth."""
    low, middle, high = np.quantile(model.sample(20_000, random_state=0), [0.16, 0.5, 0.84])
    return np.array([middle, (high - low) / 2])


@pytest.mark.parametrize(
    ("model", "error", "tolerance"),
    [
        (XDGMM(1), ERROR, 0.15),
        (XDGMM(1), 0.001, 0.15),  # the edge of a limit is blurred to follow its reach
        (BayesianXDGMM(n_sweeps=100, n_chains=1, random_state=0), ERROR, 0.15),
        (
            FlowDeconvolver(
                "gaussian_mixture", base_components=1, epochs=30, learning_rate=5e-2,
                batch_size=250, hidden=16, random_state=0,
            ),
            ERROR,
            0.2,
        ),
        (Deconvolver(quick=True, random_state=0), ERROR, 0.2),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_a_gaussian_is_recovered(model, error, tolerance):
    """Middle and width have errors of about .05; limits taken for values make it .5 too narrow."""
    w, flags = table()
    found = figures(model.fit(w, noise=error, limits=flags))
    np.testing.assert_allclose(found, [MEAN, SD], atol=tolerance)
    naive = figures(XDGMM(1).fit(w, noise=error))
    assert naive[1] < SD - 2 * tolerance


def test_limits_in_two_columns():
    """Errors of means and covariances are below .07; rows that have both kinds are among them."""
    rng = np.random.default_rng(3)
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    w = rng.multivariate_normal([1, 2], covariance, 2000) + rng.normal(size=(2000, 2)) * [0.2, 0.3]
    flags = np.column_stack([np.where(w[:, 0] < 0.5, -1, 0), np.where(w[:, 1] > 3, 1, 0)])
    w = np.where(flags != 0, [0.5, 3.0], w)
    assert (flags != 0).all(1).sum() > 30
    model = XDGMM(1).fit(w, noise=[0.2, 0.3], limits=flags)
    np.testing.assert_allclose(model.means_, [[1, 2]], atol=0.2)
    np.testing.assert_allclose(model.covariances_[0], covariance, atol=0.25)
    naive = XDGMM(1).fit(w, noise=[0.2, 0.3]).covariances_[0]
    assert np.abs(naive - covariance).max() > 0.7


def test_a_line_with_79_of_100_not_detected():
    """A small part of ``benchmarks/measured_limits.py``: 8 tables, whose mean slope is off by .05.

    Rows without limits have slopes near .13: these intervals miss.
    """
    slopes, held, naive = [], 0, []
    for seed in range(8):
        w, flags = measure(seed)
        noise = [0.05, 0.1]
        model = XDGMM(1).fit(w, noise=noise, limits=flags, names=["x", "y"])
        slopes.append(model.regress("y", on="x").slope[0])
        seen = flags[:, 1] == 0
        naive.append(XDGMM(1).fit(w[seen], noise=noise).regress(1, on=0).slope[0])
        if seed < 3:
            found = model.regress("y", on="x", w=w, noise=noise, limits=flags, n_refits=20)
            low, high = found.interval(0.9)
            held += bool(low[0] <= SLOPE <= high[0])
    assert abs(np.mean(slopes) - SLOPE) < 0.15
    assert np.mean(naive) < SLOPE - 0.25
    assert held >= 2


def test_checks_see_completed_rows():
    w, flags = table(600)
    model = XDGMM(1).fit(w, noise=ERROR, limits=flags)
    assert not model.certify(w, ERROR, limits=flags).cautions
    p = model.p_values(w, ERROR, limits=flags)
    assert abs(p.mean() - 0.5) < 5 / np.sqrt(12 * len(p))
    # Limits taken for values are a heap that no density of one Gaussian has.
    assert XDGMM(1).fit(w, noise=ERROR).certify(w, ERROR).cautions


def test_atoms_below_a_limit():
    """Of 600 rows 40 % are at zero, all of them limits: the share has an error of .02."""
    rng = np.random.default_rng(0)
    v = np.where(rng.random((600, 1)) < 0.4, 0.0, rng.normal(3, 1, (600, 1)))
    w = v + 0.3 * rng.normal(size=v.shape)
    flags = np.where(w < 1.2, -1, 0)
    model = XDGMM(1, atoms=[[0.0]]).fit(np.maximum(w, 1.2), noise=0.3, limits=flags)
    assert model.atom_weights_[0] == pytest.approx(0.4, abs=0.08)
    assert model.density_.inner.mixture.means[0, 0] == pytest.approx(3, abs=0.2)


def test_tables_find_their_columns():
    w, flags = measure(0)
    frame = pd.DataFrame(w, columns=["x", "y"])
    wanted = XDGMM(1).fit(w, noise=[0.05, 0.1], limits=flags).covariances_
    for limits in (
        pd.DataFrame({"y_limit": flags[:, 1]}),
        pd.DataFrame(flags[:, ::-1], columns=["y", "x"]),
    ):
        found = XDGMM(1).fit(frame, noise=[0.05, 0.1], limits=limits).covariances_
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(ValueError, match=r"columns of limits for x, y, .* got 'z_limit'"):
        XDGMM(1).fit(frame, noise=0.1, limits=pd.DataFrame({"z_limit": flags[:, 1]}))
    with pytest.raises(ValueError, match="limits with the index of w"):
        XDGMM(1).fit(frame, noise=0.1, limits=pd.DataFrame({"y": flags[:, 1]}).iloc[::-1])
