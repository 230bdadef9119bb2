"""Noise from replicates: against closed forms, by what a fit recovers, and on blood pressure."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from deconflow import XDGMM
from deconflow.noise import GaussianNoise, from_replicates, gaussian
from deconflow.noise.from_replicates import fitted_variance

FRAMINGHAM = Path(__file__).parents[3] / "shared" / "data" / "framingham.csv"


def replicates(n=400, r=3, dim=2, seed=0, sd=0.5):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, 1, dim))
    return v[:, 0], v + sd * rng.normal(size=(n, r, dim))


def with_nan(values, *cells):
    values = values.copy()
    for cell in cells:
        values[cell] = np.nan
    return values


def test_pooled_is_the_covariance_within_rows_over_their_number():
    _, x = replicates()
    w, noise = from_replicates(x)
    rest = (x - x.mean(1, keepdims=True)).reshape(-1, 2)
    np.testing.assert_allclose(w, x.mean(1))
    assert noise.shared
    assert isinstance(noise, GaussianNoise)
    np.testing.assert_allclose(noise.covariance()[0], rest.T @ rest / 800 / 3)


def test_pooled_with_missing_replicates():
    _, x = replicates()
    x = with_nan(x, (0, 1), (0, 2), (1, 0, 1), (2, slice(None), 0))
    w, noise = from_replicates(x)
    one = noise.covariance()[5] * 3  # of a single replicate
    np.testing.assert_allclose(w[0], x[0, 0])
    np.testing.assert_allclose(noise.covariance()[0], one)
    # row 1: column 0 three times, column 1 twice, twice together
    np.testing.assert_allclose(noise.covariance()[1], one * [[1 / 3, 2 / 6], [2 / 6, 1 / 2]])
    assert np.isnan(w[2, 0])
    assert np.isfinite(w[2, 1])
    XDGMM(1).fit(w, noise=noise)  # and the missing value is no trouble


def test_pooled_has_no_bias_from_replicates_that_are_missing_in_part():
    rng = np.random.default_rng(0)
    x = 0.5 * rng.normal(size=(20_000, 3, 2))
    x[rng.uniform(size=x.shape) < 0.3] = np.nan
    x = x[~np.isnan(x).all((1, 2))]
    noise = from_replicates(x)[1]
    full = (~np.isnan(x)).all((1, 2))
    # 6,000 degrees of freedom: a relative error of 0.018
    np.testing.assert_allclose(noise.variance()[full][0] * 3, 0.25, rtol=0.06)


def test_rows_have_students_law_of_their_own():
    _, x = replicates(n=50, r=4)
    x = with_nan(x, (7, 0))
    _, noise = from_replicates(x, "rows")
    residual = np.linspace(-1, 1, 5)[:, None, None] * np.ones((50, 2))
    count = (~np.isnan(x)).sum(1)
    scale = np.nanstd(x, 1, ddof=1) / np.sqrt(count)
    expected = stats.t(count - 1, scale=scale).logpdf(residual).sum(-1)
    np.testing.assert_allclose(noise.log_prob(residual), expected)


def test_rows_cover_the_truth_and_gaussians_of_the_same_size_do_not():
    v, x = replicates(n=20_000, r=3, dim=1)
    w, noise = from_replicates(x, "rows")
    scale = noise.scale
    inside = np.abs(w - v) < stats.t(2).ppf(0.95) * scale
    assert abs(inside.mean() - 0.9) < 0.01  # its error is 0.002
    assert (np.abs(w - v) < stats.norm.ppf(0.95) * scale).mean() < 0.8


def test_variance_function_is_recovered_where_logarithms_are_biased():
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 3, 20_000)
    squares = (0.2 * x) ** 2 * rng.chisquare(1, len(x))
    grid = np.linspace(1.1, 2.9, 10)
    found = fitted_variance(x, squares, np.ones(len(x), int))(grid)
    np.testing.assert_allclose(found, (0.2 * grid) ** 2, rtol=0.06)  # 4 terms: error about 0.02
    slope, start = np.polyfit(np.log(x), np.log(squares), 1)
    assert (np.exp(start + slope * np.log(grid)) < 0.4 * (0.2 * grid) ** 2).all()


def test_variance_function_of_few_rows_is_constant():
    x = np.arange(5.0)
    found = fitted_variance(x, np.arange(1.0, 6.0), np.array([1, 1, 0, 1, 2]))(x)
    np.testing.assert_allclose(found, (1 + 2 + 4 + 5) / 5)


def test_equal_errors_give_the_same_noise_by_means_as_pooled():
    _, x = replicates(n=3000, dim=1)
    w, noise = from_replicates(x, "mean")
    middle = np.abs(w[:, 0]) < 2
    # four terms of 6,000 degrees of freedom: variances known to about 4 %
    np.testing.assert_allclose(noise.variance()[middle, 0], 0.25 / 3, rtol=0.12)


def test_errors_that_grow_with_the_truth():
    """Pooled errors are too large for small truths, and the density has a gap there."""
    rng = np.random.default_rng(1)
    law = stats.gamma(4)
    v, test = law.rvs(3000, random_state=rng), law.rvs(20_000, random_state=rng)
    x = v[:, None, None] * (1 + 0.3 * rng.normal(size=(3000, 3, 1)))
    excess = {}
    for how in ("pooled", "mean"):
        w, noise = from_replicates(x, how)
        model = XDGMM(3, random_state=0, n_jobs=1).fit(w, noise=noise)
        excess[how] = law.logpdf(test).mean() - model.score_samples(test[:, None]).mean()
        if how == "mean":
            mean, sd = v.mean(), v.std()
            draws = model.sample(20_000, random_state=0)
            assert abs(draws.mean() / mean - 1) < 0.03
            assert abs(draws.std() / sd - 1) < 0.07
    assert 4 * excess["mean"] < 0.08 < excess["pooled"]


@pytest.mark.skipif(not FRAMINGHAM.exists(), reason="the data of RECORDS 5 are not here")
def test_blood_pressure():
    table = np.genfromtxt(FRAMINGHAM, delimiter=",", names=True)
    exams = [(table[f"SBP{e}1"] + table[f"SBP{e}2"]) / 2 for e in (2, 3)]
    x = np.log(np.stack(exams, 1) - 50)[:, :, None]
    variance = np.mean(np.square(x[:, 0] - x[:, 1])) / 4
    w = x.mean(1)

    def truth_sd(w, noise):
        model = XDGMM("auto", random_state=0, n_jobs=1).fit(w, noise=noise)
        return model.sample(200_000, random_state=0).std()

    known = truth_sd(w, gaussian(sd=[np.sqrt(variance)]))
    components = np.sqrt(w.var(ddof=1) - variance)
    for how in ("pooled", "mean"):
        assert abs(truth_sd(*from_replicates(x, how)) / known - 1) < 0.02
    assert abs(known / components - 1) < 0.02
    assert w.std() / known > 1.05  # the errors matter


def one(n=20, r=2):
    return replicates(n, r, 1)[1]


def with_row(values, row, value):
    values = values.copy()
    values[row] = value
    return values


BAD = {
    "one column": (lambda: from_replicates(one()[:, :, 0]), r"\(N, R, D\).*got \(20, 2\).*None\]"),
    "infinite": (lambda: from_replicates(with_row(one(), 3, np.inf)),
                 r"finite.*got inf in row 3, replicate 0"),
    "empty row": (lambda: from_replicates(with_nan(one(), 4)), "got none in row 4"),
    "one replicate": (lambda: from_replicates(one(r=1)), "at least 1 replicate.*got 0"),
    "one replicate, mean": (lambda: from_replicates(one(r=1), "mean"), "got none in column 0"),
    "one in a row": (lambda: from_replicates(with_nan(one(), (5, 1)), "rows"),
                     'two replicates or more.*got 1 at row 5, column 0.*"pooled"'),
    "equal": (lambda: from_replicates(np.ones((5, 2, 1))), "differ.*column 0"),
    "equal in a row": (lambda: from_replicates(with_row(one(), 2, 1.0), "rows"),
                       "differ.*row 2, column 0"),
    "how": (lambda: from_replicates(one(), "median"), "how.*'median'"),
    "text": (lambda: from_replicates([[["a"]]]), "numbers in values.*'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    make, words = BAD[name]
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_single_replicates_are_allowed_where_others_say_the_error():
    x = with_nan(one(200), (5, 1), (6, 0))
    for how in ("pooled", "mean"):
        w, noise = from_replicates(x, how)
        assert len(noise) == len(w) == 200
        assert noise.variance()[5] > 1.5 * noise.variance()[7]


@pytest.mark.parametrize(
    ("covariance", "how", "message"),
    [
        (np.eye(3), "pooled", r"Expected covariance of shape \(1, 1\); got \(3, 3\)"),
        ([[-1.0]], "pooled", "without negative eigenvalues"),
        ([[np.nan]], "pooled", "Expected a finite, symmetric covariance"),
        ([[1.0]], "rows", "only beside how=\"pooled\"; got how='rows'"),
    ],
)
def test_a_covariance_of_other_rows_is_checked(covariance, how, message):
    values = np.random.default_rng(0).normal(size=(20, 3, 1))
    with pytest.raises(ValueError, match=message):
        from_replicates(values, how=how, covariance=covariance)


@pytest.mark.parametrize("how", ["pooled", "mean", "rows"])
def test_equal_replicates_do_not_differ_by_rounding(how):
    """The mean of three equal numbers is not always that number."""
    values = np.repeat(np.random.default_rng(0).normal(size=(50, 1, 1)), 3, axis=1)
    with pytest.raises(ValueError, match=r"Expected (replicates|rows).* that differ"):
        from_replicates(values, how=how)
