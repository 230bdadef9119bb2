"""Noise from draws of posteriors, and from replicates: what fits make of them, what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy
from scipy import stats

from deconflow import XDGMM
from deconflow.noise import FewDrawsWarning, GaussianNoise, from_replicates, from_samples, gaussian
from deconflow.noise.from_replicates import fitted_variance
from deconflow.noise.from_samples import predictive_covariance

NOISE_SD = np.sqrt(np.diagonal(toy.NOISE))


def gaussian_draws(w, sd, n_draws, seed):
    rng = np.random.default_rng(seed)
    return w[:, None] + sd * rng.normal(size=(len(w), n_draws, w.shape[1]))


def scatter(draws):
    rest = draws - draws.mean(1, keepdims=True)
    return np.einsum("nki,nkj->nij", rest, rest)


def excess(w, noise):
    test = toy.draw(20_000, 99)[0]
    model = XDGMM(3, random_state=0, floor=0.1, n_jobs=1).fit(w, noise=noise)
    return float(toy.log_prob(test).mean() - model.score_samples(test).mean())


@pytest.fixture(scope="module")
def measured():
    return toy.draw(4000, 0)[1]


@pytest.fixture(scope="module")
def exact(measured):
    return excess(measured, gaussian(covariance=toy.NOISE))


@pytest.mark.slow
def test_many_draws_of_gaussian_posteriors_give_the_gaussian_answer(measured, exact):
    w, noise = from_samples(gaussian_draws(measured, NOISE_SD, 200, 1))
    assert isinstance(noise, GaussianNoise)
    np.testing.assert_allclose(w, measured, atol=0.5)
    assert excess(w, noise) < exact + 0.02


def test_few_draws_cost_little_and_their_moments_much(measured, exact):
    draws = gaussian_draws(measured, NOISE_SD, 8, 2)
    with pytest.warns(FewDrawsWarning, match=r"4000 of 4000 rows.*fewer than 30.*8 of 8"):
        w, noise = from_samples(draws)
    assert excess(w, noise) < exact + 0.05
    assert excess(w, gaussian(covariance=scatter(draws) / 7)) > exact + 0.1


def test_covariances_that_differ_keep_their_own():
    rng = np.random.default_rng(0)
    sd = np.exp(rng.normal(size=(3000, 1, 1)))
    draws = sd * rng.normal(size=(3000, 20, 1))
    ratio = predictive_covariance(scatter(draws), np.full(3000, 20.0))[:, 0, 0] / sd[:, 0, 0] ** 2
    # 19 degrees of freedom: a standard error of 0.32 in logarithms; pooled, it would be 2
    assert np.log(ratio).std() < 0.4
    assert abs(np.log(ratio).mean()) < 0.15


def test_covariances_that_are_alike_become_one():
    draws = np.random.default_rng(0).normal(size=(3000, 20, 2))
    found = predictive_covariance(scatter(draws), np.full(3000, 20.0))
    np.testing.assert_allclose(found, np.broadcast_to(1.05 * np.eye(2), found.shape), atol=0.1)


def test_covariances_of_equal_size_and_other_orientation_are_not_alike():
    sd = np.where(np.arange(1000)[:, None] % 2, [0.3, 1.0], [1.0, 0.3])
    draws = sd[:, None] * np.random.default_rng(0).normal(size=(1000, 20, 2))
    found = np.diagonal(predictive_covariance(scatter(draws), np.full(1000, 20.0)), 0, 1, 2)
    assert np.abs(np.log(found / sd**2).mean(0)).max() < 0.3


def test_two_humps_of_a_posterior_are_kept():
    rng = np.random.default_rng(0)
    side = 3 * rng.choice([-1.0, 1.0], size=(100, 200, 1))
    _, noise = from_samples(rng.normal(size=(100, 200, 2)) + side * [1.0, 0.0])
    centre, hump = (np.tile([x, 0.0], (100, 1)) for x in (0.0, 3.0))
    gap = noise.log_prob(hump) - noise.log_prob(centre)
    assert (gap > 2).mean() > 0.95  # the true one is 3.8
    assert ((noise.weights > 0).sum(1) == 2).all()


def under_a_prior(n=3000, n_draws=200, seed=0):
    """Truths N(0, 1), errors 1, and draws of posteriors under the prior N(0, 2.5^2)."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=n) * np.sqrt(2)
    spread = 1 / (1 + 1 / 2.5**2)
    return (w[:, None] * spread + np.sqrt(spread) * rng.normal(size=(n, n_draws)))[..., None]


def test_a_prior_is_divided_out_and_forgetting_it_is_wrong():
    draws = under_a_prior()
    found = {}
    log_prior = stats.norm(0, 2.5).logpdf(draws[..., 0])
    for name, prior in {"divided": log_prior, "forgotten": None}.items():
        w, noise = from_samples(draws, prior)
        model = XDGMM(1, random_state=0).fit(w, noise=noise)
        found[name] = model.sample(50_000, random_state=0).std()
    assert abs(found["divided"] - 1) < 0.06  # its error is 0.03
    assert found["forgotten"] < 0.85  # (2 .86^2 - .86)^.5 = .79


def test_lists_of_different_lengths_and_forms_of_the_prior_are_the_same():
    draws = under_a_prior(40, 100)
    prior = stats.norm(0, 2).logpdf
    by_array = from_samples(draws, prior(draws[..., 0]))
    by_function = from_samples(list(draws), lambda v: prior(v[:, 0]))
    for one, other in zip(by_array, by_function, strict=True):
        one, other = (x if isinstance(x, np.ndarray) else x.variance() for x in (one, other))
        np.testing.assert_allclose(one, other)
    shorter = [row[: 60 + i] for i, row in enumerate(draws)]
    w, noise = from_samples(shorter)
    np.testing.assert_allclose(w, [row.mean(0) for row in shorter])
    assert len(noise) == 40
    assert noise[3:7].kept.weights.shape == (4, 64)
    assert (noise.kept.weights[0] > 0).sum() == 60


@pytest.fixture(scope="module")
def covered():
    """Certificates of truths as wide as the errors, and of truths that are far narrower."""

    def certificate(truth_sd):
        w = np.sqrt(truth_sd**2 + 1) * np.random.default_rng(0).normal(size=(1000, 1))
        w, noise = from_samples(gaussian_draws(w, 1.0, 50, 1))
        return XDGMM(1, random_state=0, n_jobs=1).fit(w, noise=noise).certify(w, noise=noise)

    return certificate(1.0), certificate(0.02)


def test_samples_that_do_not_cover_the_density_are_told(covered):
    wide, narrow = covered
    assert narrow.finding("coverage").p == 0
    assert "of 50 posterior samples lie where the fitted density is" in narrow.in_words()
    assert wide.finding("coverage").p == 1
    assert "too few in 0." in wide.in_words()
    assert "CAUTION: in" not in wide.in_words()


def test_other_noise_knows_of_no_samples():
    w = np.random.default_rng(0).normal(size=(300, 1))
    assert XDGMM(1).fit(w, noise=0.3).certify(w, noise=0.3).finding("coverage") is None


def some(n=20, k=30, dim=2):
    return np.random.default_rng(0).normal(size=(n, k, dim))


def with_value(values, cell, value):
    values = values.copy()
    values[cell] = value
    return values


FLAT = np.zeros((20, 30))
BAD = {
    "two axes": (lambda: from_samples(some()[:, :, 0]), r"\(N, K, D\).*got \(20, 30\).*None\]"),
    "no rows": (lambda: from_samples([]), "one row or more"),
    "other D": (lambda: from_samples([*some(), some()[0][:, :1]]), "2 columns.*got 1 in row 20"),
    "one axis in a row": (lambda: from_samples([*some(), some()[0, :, 0]]),
                          r"\(K, D\); got \(30,\) in row 20"),
    "NaN": (lambda: from_samples(with_value(some(), (3, 4, 1), np.nan)), "NaN or inf in row 3"),
    "text": (lambda: from_samples([["a"]]), "numbers in draws of row 0.*'a'"),
    "few": (lambda: from_samples([*some(), some()[0][:3]]), "at least 4 draws.*got 3 in row 20"),
    "vanishing prior": (lambda: from_samples(some(), with_value(FLAT, (7, 2), -np.inf)),
                        "positive at every draw.*-inf in row 7"),
    "prior NaN": (lambda: from_samples(some(), with_value(FLAT, (7, 2), np.nan)),
                  "finite values of log_prior.*row 7"),
    "prior of other length": (lambda: from_samples(some(), np.zeros((20, 29))),
                              "log_prior of 30 draws in row 0; got 29"),
    "prior of other rows": (lambda: from_samples(some(), np.zeros((19, 30))),
                            "log_prior of 20 rows.*got 19"),
    "prior of other shape": (lambda: from_samples(some(), np.zeros(20)),
                             r"log_prior of shape \(N, K\).*got \(20,\)"),
    "unequal weights": (lambda: from_samples(some(), np.where(np.arange(600).reshape(20, 30) % 30,
                                                              9.0, 0.0)),
                        "4 draws that count.*got 1.0 of 30 in row 0.*wider prior"),
    "equal draws": (lambda: from_samples(with_value(some(), (5, slice(None), 1), 2.0)),
                    "got equal ones at row 5, column 1"),
    "draws on a line": (lambda: from_samples(np.repeat(some(dim=1), 2, -1)), "line.*row 0"),
}  # fmt: skip


def test_tables_of_rows_have_their_columns_in_one_order():
    draws = np.random.default_rng(0).normal(size=(4, 60, 2))
    tables = [pd.DataFrame(row, columns=["x", "y"]) for row in draws]
    from_samples(tables)
    tables[3] = tables[3][["y", "x"]]
    with pytest.raises(ValueError, match="with the columns x, y, as in row 0; got y, x in row 3"):
        from_samples(tables)


# -- noise from replicates: against closed forms, by what a fit recovers, and on blood pressure ---


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


BAD_REPLICATES = {
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


@pytest.mark.parametrize(
    ("make", "words"),
    [*BAD.values(), *BAD_REPLICATES.values()],
    ids=[*BAD, *BAD_REPLICATES],
)
def test_bad_input(make, words):
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
