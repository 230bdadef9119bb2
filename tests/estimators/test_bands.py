"""Bands: exact by their formula, calibrated where theory knows the answer, clear when wrong."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from deconflow import XDGMM, GaussianMixture
from deconflow.estimators import MixtureFit, Replicates
from deconflow.xd import ladder

FOLDS, ROWS, NOISE = 5, 300, 0.5
POINTS = np.linspace(-3.0, 3.0, 61)
T = student.ppf(0.95, FOLDS - 1)


def gaussian_fit(mean, variance):
    return MixtureFit(
        [GaussianMixture(np.ones(1), np.array([[mean]]), np.array([[[variance]]]))], ["x"]
    )


def deconvolved(w):
    """The maximum-likelihood Gaussian under shared noise: its moments are known without EM."""
    return gaussian_fit(w.mean(), w.var() - NOISE**2)


def with_folds(w):
    """The same, with replicates that leave out one fold each."""
    density, fold = deconvolved(w), np.arange(len(w)) % FOLDS
    density.replicates = Replicates([deconvolved(w[fold != f]) for f in range(FOLDS)])
    return density


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(600, 2)) + 3.0 * (rng.random(600) < 0.4)[:, None]
    return pd.DataFrame(v + 0.3 * rng.normal(size=v.shape), columns=["x", "y"])


@pytest.fixture(scope="module")
def model(table):
    return XDGMM("auto", random_state=0).fit(table, noise=[0.3, 0.3])


def test_the_median_of_one_gaussian_has_the_interval_of_the_jackknife(monkeypatch):
    """For one component and shared noise the fits are means of rows, and the formula is exact."""
    rng = np.random.default_rng(1)
    w = 5.0 + rng.normal(size=(ROWS, 1)) * np.sqrt(1 + NOISE**2)
    monkeypatch.setattr(ladder, "COMPONENTS_TO_TRY", (1,))
    model = XDGMM("auto", random_state=0).fit(w, noise=[NOISE])
    means = np.array([mixture.mean[0] for mixture in model.mixtures_])
    expected = T * np.sqrt((FOLDS - 1) / FOLDS * np.square(means - means.mean()).sum())
    band = model.density_.band(quantiles=0.5)
    assert band.value[0] == pytest.approx(w.mean(), abs=1e-3)  # of the integral over a grid
    assert 0.5 * (band.upper - band.lower)[0] == pytest.approx(expected, rel=0.01)


def test_bands_of_a_gaussian_cover_what_they_claim_and_the_range_of_members_does_not():
    """400 data sets: a replication's coverage scatters by .3, so four errors are .06."""
    rng, truth = np.random.default_rng(2), norm.pdf(POINTS)
    weights, covered, ranged, medians, squares = truth / truth.sum(), [], [], [], []
    for _ in range(400):
        density = with_folds(rng.normal(size=ROWS) * np.sqrt(1 + NOISE**2))
        band = density.band(POINTS)
        covered.append(weights @ ((band.lower <= truth) & (truth <= band.upper)))
        members = density.replicates.densities
        curves = [np.exp(each.log_prob(POINTS[:, None])) for each in members]
        ranged.append(
            weights @ ((np.min(curves, axis=0) <= truth) & (truth <= np.max(curves, axis=0)))
        )
        means = np.array([each.mixture.means[0, 0] for each in members])
        half = density.replicates.half_width(
            density.mixture.mean, lambda each: each.mixture.mean, 0.9
        )[0]
        squares.append((half / T) ** 2)
        medians.append(abs(means.mean()) <= half)
    assert abs(np.mean(covered) - 0.9) < 0.06
    assert np.mean(ranged) < 0.6
    assert abs(np.mean(medians) - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 400)
    # theory: the variance of the mean; of a chi-square of 4 degrees in 400 runs, four errors
    theory = (1 + NOISE**2) / ROWS
    assert np.mean(squares) == pytest.approx(theory, rel=4 * np.sqrt(2 / 4 / 400))


def test_alternatives_add_their_spread():
    density = with_folds(np.random.default_rng(3).normal(size=ROWS))
    plain = density.band(POINTS)
    others = [(0.75, gaussian_fit(0.1, 1.0)), (0.25, gaussian_fit(-0.2, 0.5))]
    density.replicates = Replicates(density.replicates.densities, "folds", others)
    wide = density.band(POINTS)
    spread = sum(
        share * (np.exp(0.5 * other.log_prob(POINTS[:, None])) - np.sqrt(plain.value)) ** 2
        for share, other in others
    )
    upper = [np.sqrt(band.upper) - np.sqrt(band.value) for band in (plain, wide)]
    np.testing.assert_allclose(upper[1] ** 2, upper[0] ** 2 + T**2 * spread, rtol=1e-9)


def test_draws_of_a_posterior_vary_as_they_are():
    means = np.random.default_rng(4).normal(size=2000) * 0.1
    density = gaussian_fit(0.0, 1.0)
    density.replicates = Replicates([gaussian_fit(mean, 1.0) for mean in means], "draws")
    half = density.replicates.half_width(np.zeros(1), lambda each: each.mixture.mean, 0.9)
    assert half[0] == pytest.approx(1.645 * 0.1, rel=4 / np.sqrt(2 * 2000))


def test_a_higher_level_is_wider_and_all_hold_the_value(model):
    narrow, wide = (model.density_.band("x", level=level) for level in (0.5, 0.95))
    assert (narrow.upper - narrow.lower < wide.upper - wide.lower).all()
    assert (narrow.lower >= 0).all()
    assert ((narrow.lower <= narrow.value) & (narrow.value <= narrow.upper)).all()


def test_columns_points_and_tables_are_the_same_question(model, table):
    band = model.density_.band("y")
    assert band.points.shape == band.value.shape == (200,)
    assert np.trapezoid(band.value, band.points) == pytest.approx(1.0, abs=0.005)
    same = model.density_.band(band.points, column=1)
    part = model.density_.marginal(["y"]).band(band.points)
    for other in (same, part, model.density_.band(column="y")):
        for name in ("points", "value", "lower", "upper"):
            np.testing.assert_allclose(getattr(other, name), getattr(band, name), rtol=1e-12)
    joint = model.density_.band(table[:7])
    np.testing.assert_allclose(joint.value, np.exp(model.score_samples(table[:7])))
    assert joint.points.shape == (7, 2)
    assert list(joint.to_frame().columns) == ["x", "y", "value", "lower", "upper"]
    swapped = model.density_.marginal(["y", "x"]).band(table[["y", "x"]][:7])
    np.testing.assert_allclose(swapped.upper, joint.upper)


def test_quantiles_are_those_of_the_mixture(model):
    band = model.density_.band("x", quantiles=[0.1, 0.5, 0.9])
    exact = [model.density_.marginal("x").mixture.quantile(share)[0] for share in (0.1, 0.5, 0.9)]
    np.testing.assert_allclose(band.value, exact, atol=2e-3)
    assert (band.lower < exact).all()
    assert (exact < band.upper).all()
    assert list(band.to_frame()["share of x"]) == [0.1, 0.5, 0.9]


BAD = {
    "nothing": (lambda m: m.band(), r"points \(N, 2\) or one of the columns x, y; got neither"),
    "no such column": (lambda m: m.band("z"), "columns among x, y.*got 'z'"),
    "two columns": (lambda m: m.band(column=["x", "y"]), r"one column.*marginal\(columns\)\.band"),
    "column twice": (lambda m: m.band("x", column="y"), "points as numbers beside column='y'"),
    "one axis": (lambda m: m.band([1.0, 2.0]), r"shape \(N, 2\), for x, y; got \(2,\)"),
    "NaN": (lambda m: m.band([np.nan], column="x"), "finite points.*for x; got NaN or inf"),
    "other names": (lambda m: m.band(pd.DataFrame([[1, 2]], columns=["y", "x"])), "columns x, y"),
    "text": (lambda m: m.band(["a"], column="x"), "numbers in points"),
    "level": (lambda m: m.band("x", level=90), r"level in \(0, 1\); got 90"),
    "share": (lambda m: m.band("x", quantiles=[0.5, 1.0]), "between 0.001 and 0.999"),
    "quantiles of points": (lambda m: m.band([[1.0, 2.0]], quantiles=0.5), "a column alone"),
    "kind": (lambda m: Replicates(m.averaged(), "rows"), "kind to be one of"),
    "one replicate": (lambda m: Replicates([m]), "at least 2 replicates.*got 1"),
    "alternatives": (
        lambda m: Replicates([m] * 2, "folds", [(0.5, m)]), "1 shares.*sum one"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name, model):
    call, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call(model.density_)
