"""Regression of the truth: closed forms, brute force, errors that hold, curves in their bands."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from deconflow import (
    XDGMM,
    BayesianXDGMM,
    Deconvolver,
    DeconvolvingKDE,
    LogSplineDeconvolver,
)

N, SLOPE = 1000, 2.0


def line(n, seed, dim=1):
    """Rows of x and y = 1 + 2 x, with scatter 0.5 and errors of their own."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim))
    y = 1 + SLOPE * x[:, 0] - x[:, 1:].sum(1) + 0.5 * rng.normal(size=n)
    sd = rng.uniform(0.2, 1.0, (n, dim + 1))
    return np.column_stack([x, y]) + sd * rng.normal(size=(n, dim + 1)), sd


def least_squares(w):
    return np.polyfit(w[:, 0], w[:, 1], 1)[0]


@pytest.fixture(scope="module")
def straight():
    w, sd = line(N, 1)
    return XDGMM(1).fit(w, noise=sd, names=["x", "y"]), w, sd


@pytest.fixture(scope="module")
def clumps():
    """A mixture of three, far from any line."""
    rng = np.random.default_rng(1)
    v = np.concatenate([rng.normal(c, 0.4, (300, 2)) for c in ((-2, 0), (0, 2), (2, 0))])
    sd = rng.uniform(0.1, 0.4, v.shape)
    w = v + sd * rng.normal(size=v.shape)
    return XDGMM(3, floor=0.1, random_state=0).fit(w, noise=sd, names=["x", "y"]), w, sd


# -- closed forms -------------------------------------------------------------------------------


def test_one_gaussian_is_the_textbooks():
    w, sd = line(N, 3, dim=2)
    model = XDGMM(1).fit(w, noise=sd, names=["a", "b", "y"])
    mean, covariance = model.means_[0], model.covariances_[0]
    found = model.regress("y", on=["b", "a"])
    b = np.linalg.solve(covariance[:2, :2], covariance[:2, 2])[::-1]
    np.testing.assert_allclose(found.slope, b)
    assert found.intercept == pytest.approx(mean[2] - b @ mean[[1, 0]])
    scatter = np.sqrt(covariance[2, 2] - b @ covariance[[1, 0], 2])
    assert found.scatter == pytest.approx(scatter)
    x = np.array([[0.3, -1.0], [2.0, 5.0]])
    np.testing.assert_allclose(found.predict(x), found.intercept + x @ b)
    np.testing.assert_allclose(found.intrinsic_sd(x), scatter)
    np.testing.assert_allclose(
        found.quantile([0.16, 0.5], x), found.predict(x) + scatter * norm.ppf([[0.16], [0.5]])
    )
    assert (found.target, found.on, found.columns) == ("y", ["b", "a"], [2, 1, 0])
    swapped = found.predict(pd.DataFrame(x, columns=["b", "a"]))
    np.testing.assert_array_equal(swapped, found.predict(x))


def brute_force(model, x, shares):
    """Mean, spread and quantiles of y at x, by sums of the joint density."""
    y = np.linspace(-6, 8, 4001)
    p = np.exp(model.score_samples(np.column_stack([np.full_like(y, x), y])))
    p /= p.sum()
    mean = p @ y
    return mean, np.sqrt(p @ np.square(y - mean)), np.interp(shares, np.cumsum(p), y)


def test_a_mixture_is_a_slice_of_its_density(clumps):
    model, _, _ = clumps
    found, shares = model.regress("y", "x"), [0.1, 0.5, 0.9]
    for i, x in enumerate(points := np.array([-2.0, -0.9, 0.1, 3.0])):
        mean, sd, quantiles = brute_force(model, x, shares)
        assert found.predict(points)[i] == pytest.approx(mean, abs=1e-6)
        assert found.intrinsic_sd(points)[i] == pytest.approx(sd, abs=1e-6)
        np.testing.assert_allclose(found.quantile(shares, points)[:, i], quantiles, atol=4e-3)
    assert found.quantile(0.5, points).shape == (4,)
    mixture = model.mixture_
    slope = mixture.covariance[0, 1] / mixture.covariance[0, 0]
    np.testing.assert_allclose(found.slope, [slope])


# -- errors -------------------------------------------------------------------------------------


def test_the_slope_is_found_where_least_squares_fails(straight):
    model, w, sd = straight
    found = model.regress("y", on="x", w=w, noise=sd)
    low, high = found.interval(0.99)
    assert low[0] < SLOPE < high[0]
    assert abs(found.intercept - 1) < 3 * found.intercept_error
    assert abs(found.scatter - 0.5) < 3 * found.scatter_error
    assert not low[0] < least_squares(w) < high[0]  # the twin: 1.4
    narrow = found.interval(0.5)
    assert low[0] < narrow[0][0] < narrow[1][0] < high[0]


@pytest.mark.slow
def test_errors_are_those_of_other_tables():
    """Of 20 tables: their spread is known to 16 %, so the ratio lies within 0.6 and 1.5.

    Five refits know an error to 35 %, so the mean of 20 is known to 8 %.
    """
    slopes, errors = [], []
    for seed in range(20):
        w, sd = line(300, seed)
        found = XDGMM(1).fit(w, noise=sd).regress(1, on=0, w=w, noise=sd, n_refits=5)
        slopes.append(found.slope[0])
        errors.append(found.slope_error[0])
    spread = np.std(slopes, ddof=1)
    assert 0.6 < np.mean(errors) / spread < 1.5
    assert abs(np.mean(slopes) - SLOPE) < 4 * spread / np.sqrt(20)
    w, sd = line(60, 0)  # the twin: a fifth of the rows, twice the error
    few = XDGMM(1).fit(w, noise=sd).regress(1, on=0, w=w, noise=sd, n_refits=20)
    assert few.slope_error[0] / spread > 1.4


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (XDGMM("auto", random_state=0), "5 fits without a fold"),
        (LogSplineDeconvolver(), "draws of the density"),
        (BayesianXDGMM(2, n_sweeps=60, n_snapshots=4, random_state=0), "8 draws"),
        pytest.param(
            Deconvolver(quick=True, random_state=0, n_jobs=1),
            "fits without a fold",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_of_replicates_need_no_rows(model, words):
    w, sd = line(500, 0)
    found = model.fit(w, noise=sd).regress(1, on=0)
    assert words in found.summary()
    assert 0.01 < found.slope_error[0] < 0.3
    assert abs(found.slope[0] - SLOPE) < 5 * found.slope_error[0] + 0.1
    low, high = found.interval()
    assert low < found.slope < high
    assert (found.band([0.0, 1.0]).lower < found.predict([0.0, 1.0])).all()


def test_a_model_that_is_no_mixture_is_refitted_by_one():
    w, sd = line(500, 0)
    found = DeconvolvingKDE().fit(w, noise=sd).regress(1, on=0, w=w, noise=sd, n_refits=20)
    assert "Gaussian mixture in the model's place" in found.summary()
    own = XDGMM(1).fit(w, noise=sd).regress(1, on=0, w=w, noise=sd, n_refits=20)
    assert found.slope_error[0] == pytest.approx(own.slope_error[0], rel=0.2)
    assert found.scatter_error == pytest.approx(own.scatter_error, rel=0.3)


# -- rows ---------------------------------------------------------------------------------------


def test_rows_without_weight_count_for_nothing():
    w, sd = line(500, 0)
    more, bars = np.concatenate([w, w[:, ::-1] * 9]), np.concatenate([sd, sd])
    weights = np.repeat([2.0, 0.0], 500)
    found = XDGMM(1).fit(more, noise=bars, sample_weight=weights)
    found = found.regress(1, on=0, w=more, noise=bars, sample_weight=weights, n_refits=5)
    alone = XDGMM(1).fit(w, noise=sd).regress(1, on=0, w=w, noise=sd, n_refits=5)
    np.testing.assert_allclose(found.slope, alone.slope)
    np.testing.assert_allclose(found.slope_error, alone.slope_error)


def test_exact_rows_give_least_squares():
    w, _ = line(500, 0)
    found = XDGMM(1).fit(w, noise=0.0).regress(1, on=0, w=w, noise=0.0)
    assert found.slope[0] == pytest.approx(least_squares(w))
    x, y = (w - w.mean(0)).T
    error = np.std(y - found.slope[0] * x) / np.sqrt(x @ x)
    assert found.slope_error[0] == pytest.approx(error, rel=0.35)  # of 50 refits: 10 % each


# -- words --------------------------------------------------------------------------------------


def test_words(straight):
    model, w, sd = straight
    bare = model.regress("y", on="x")
    assert bare.slope_error is bare.intercept_error is bare.scatter_error is None
    assert "no standard errors: give the rows" in bare.summary()
    found = model.regress("y", on=["x"], w=w, noise=sd, n_refits=7)
    lines = found.summary().splitlines()
    assert lines[0] == "y on x: the best linear relation of the truth"
    assert [each.split()[0] for each in lines[1:4]] == ["slope", "intercept", "scatter"]
    assert lines[1].endswith(f"{found.slope[0]:.3f} +- {found.slope_error[0]:.3f}")
    assert lines[-1] == "standard errors from 7 refits to reweighted rows"
    assert list(found.band().to_frame()) == ["x", "value", "lower", "upper"]


BAD = {
    "no such target": (lambda m, w, sd: m.regress("z", "x"), "Expected target among x, y.*got 'z'"),
    "no such column": (lambda m, w, sd: m.regress("y", ["q"]), "columns in on among x, y.*got 'q'"),
    "the target itself": (lambda m, w, sd: m.regress("y", ["x", 1]), "not the target; got 'y'"),
    "no columns": (lambda m, w, sd: m.regress("y", []), r"one or more columns in on; got \[\]"),
    "two targets": (lambda m, w, sd: m.regress(["x", "y"], "x"), "one column as target"),
    "one refit": (lambda m, w, sd: m.regress("y", "x", n_refits=1), "n_refits.*at least 2; got 1"),
    "no rows": (lambda m, w, sd: m.regress("y", "x", noise=sd), "Expected w with noise"),
    "no noise": (lambda m, w, sd: m.regress("y", "x", w=w), "Expected noise"),
    "no errors": (lambda m, w, sd: m.regress("y", "x").band(), "with standard errors; got one wit"),
    "no interval": (lambda m, w, sd: m.regress("y", "x").interval(), "with standard errors"),
    "shape": (lambda m, w, sd: m.regress("y", "x").predict([[1.0, 2.0]]), r"x of shape \(N,\)"),
    "NaN": (lambda m, w, sd: m.regress("y", "x").predict([np.nan]), "values in x.*got NaN or inf"),
    "share": (lambda m, w, sd: m.regress("y", "x").quantile(1.0, [0.0]), "q between 0 and 1"),
    "level": (lambda m, w, sd: m.regress("y", "x").interval(2), "level"),
    "points": (lambda m, w, sd: m.regress("y", "x").grid(1), "n as a whole number of at least 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls(straight, case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        call(*straight)
    assert "\n" not in str(caught.value)


def test_copies_do_not_make_a_slope_more_certain():
    rng = np.random.default_rng(0)
    x = rng.normal(size=150)
    v = np.column_stack([x, 1 + 2 * x + 0.5 * rng.normal(size=150)])
    w = v + 0.3 * rng.normal(size=v.shape)
    once = XDGMM(1).fit(w, noise=[0.3, 0.3])
    right = once.regress(1, [0], w=w, noise=[0.3, 0.3]).slope_error[0]
    copies, groups = np.repeat(w, 9, axis=0), np.repeat(np.arange(150), 9)
    model = XDGMM(1).fit(copies, noise=[0.3, 0.3], groups=groups)
    found = model.regress(1, [0], w=copies, noise=[0.3, 0.3]).slope_error[0]
    assert found == pytest.approx(right, rel=0.3)
