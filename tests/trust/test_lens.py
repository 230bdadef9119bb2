"""Derivatives of log p(w), row by row, against finite differences of a density written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, norm

from deconflow import GaussianMixture, Observations, noise
from deconflow.trust.lens import Rows, below, log_p, view
from deconflow.trust.table import Comparison

MIXTURE = GaussianMixture(
    np.array([0.3, 0.7]),
    np.array([[-1.0, 0.5], [1.0, 0.0]]),
    np.array([[[0.5, 0.2], [0.2, 0.4]], [[0.3, 0.0], [0.0, 0.8]]]),
)
STEP = 1e-5


def data(law=None, missing=False, projection=None):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(6, 2))
    if missing:
        w[0, 0] = w[3, 1] = np.nan
    sd = rng.uniform(0.2, 0.9, size=(6, 2))
    return Observations.from_arrays(w, noise.gaussian(sd=sd) if law is None else law(sd),
                                    projection=projection)  # fmt: skip


def rows_of(observations, companions=2):
    rng = np.random.default_rng(1)
    values = [observations.measured()] + [rng.normal(size=(6, 2)) for _ in range(companions)]
    return Rows.of(observations, values)


CASES = {
    "diagonal": data(),
    "t": data(lambda sd: noise.student_t(sd, 4.0)),
    "asymmetric": data(lambda sd: noise.split_normal(sd, 2 * sd)),
    "missing": data(missing=True),
    "projected": data(projection=np.random.default_rng(2).normal(size=(6, 2, 2))),
}


def changed(component, part, i, j=None):
    """The mixture with one number changed by a step, symmetric entries together."""
    values = {name: getattr(MIXTURE, name).copy() for name in ("weights", "means", "covariances")}
    if part == "weights":
        values["weights"][component] += STEP
    elif part == "means":
        values["means"][component, i] += STEP
    else:
        values["covariances"][component, i, j] += STEP
        values["covariances"][component, j, i] += STEP * (i != j)
    return GaussianMixture(**values)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_derivatives(case):
    rows = rows_of(CASES[case])
    seen = view(MIXTURE, rows)
    base = log_p(MIXTURE, rows)
    np.testing.assert_allclose(seen.log_p, base, rtol=1e-12)
    scores = seen.scores
    means, covariances = scores[..., 2:6], scores[..., 6:]
    for k in range(2):
        found = (log_p(changed(k, "weights", 0), rows) - base) / STEP
        np.testing.assert_allclose(scores[..., k] / MIXTURE.weights[k], found, rtol=1e-3, atol=1e-3)
        for d in range(2):
            found = (log_p(changed(k, "means", d), rows) - base) / STEP
            np.testing.assert_allclose(means[..., 2 * k + d], found, rtol=1e-3, atol=2e-3)
        for n, (i, j) in enumerate([(0, 0), (1, 0), (1, 1)]):
            found = (log_p(changed(k, "covariances", i, j), rows) - base) / STEP
            half = 0.5 if i == j else 1.0  # both entries of a pair were changed
            np.testing.assert_allclose(
                half * covariances[..., 3 * k + n], found, rtol=1e-3, atol=1e-2
            )


@pytest.mark.parametrize("case", ["diagonal", "t", "asymmetric", "projected"])
def test_the_size_of_the_noise(case):
    """The derivative by the logarithm of a factor on the noise, whatever its law."""
    rows = rows_of(CASES[case])
    for d in range(2):
        factors = np.where(np.arange(2) == d, np.exp(STEP), 1.0)
        found = (log_p(MIXTURE, rows.stretched(factors)) - log_p(MIXTURE, rows)) / STEP
        by_size = view(MIXTURE, rows).by_size[..., d]
        np.testing.assert_allclose(by_size, found, rtol=1e-3, atol=1e-3)


def test_the_covariance_of_the_noise():
    rows = rows_of(CASES["diagonal"])
    covariances = rows.covariances.copy()
    covariances[..., 0, 1] += STEP
    covariances[..., 1, 0] += STEP
    found = (log_p(MIXTURE, replace(rows, covariances=covariances)) - log_p(MIXTURE, rows)) / STEP
    np.testing.assert_allclose(view(MIXTURE, rows).by_covariance[..., 0, 1], found, rtol=1e-3,
                               atol=1e-3)  # fmt: skip


def test_log_p_is_that_of_the_measured_values():
    """Against densities of scipy; a missing value says nothing."""
    rows = rows_of(CASES["missing"], companions=0)
    w, sd = CASES["missing"].measured(), CASES["missing"].noise.factor
    both = log_p(MIXTURE, rows)[:, 0]
    expected = np.log(sum(
        a * multivariate_normal.pdf(w[1], m, V + np.diag(sd[1] ** 2))
        for a, m, V in zip(MIXTURE.weights, MIXTURE.means, MIXTURE.covariances, strict=True)
    ))  # fmt: skip
    assert both[1] == pytest.approx(expected, rel=1e-10)
    other = rows.w.copy()
    other[0, 0, 0] = 100.0  # a cell that was not measured
    np.testing.assert_allclose(log_p(MIXTURE, replace(rows, w=other)), log_p(MIXTURE, rows))


def test_probability_of_smaller_values():
    rows = rows_of(CASES["diagonal"], companions=0)
    w, sd = CASES["diagonal"].measured(), CASES["diagonal"].noise.factor
    spread = np.sqrt(MIXTURE.covariances[:, 0, 0] + sd[:, :1] ** 2)
    expected = norm.cdf((w[:, :1] - MIXTURE.means[:, 0]) / spread) @ MIXTURE.weights
    np.testing.assert_allclose(below(MIXTURE, rows)[:, 0, 0], expected, rtol=1e-12)


def test_the_expected_hermite_polynomial_of_the_noise():
    """By draws from the posterior of the noise of one row, for one Gaussian."""
    one = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    observations = Observations.from_arrays([[1.5]], noise.gaussian(sd=[[0.8]]))
    seen = view(one, Rows.of(observations, [observations.measured()]))
    gain, left = 0.64 / 1.64, 0.64 / 1.64
    n = np.random.default_rng(0).normal(1.5 * gain, np.sqrt(left), 10**6) / 0.8
    assert seen.skewness[0, 0, 0] == pytest.approx((n**3 - 3 * n).mean(), abs=0.01)


# -- sums over fitted rows: with the fit allowed for, they vary as they should --------------------


ROWS, DRAWS, TABLES = 400, 10, 300


def z_values(allowing, seed=0):
    """Z of the mean fourth power in tables of a normal law with fitted mean and variance."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(TABLES):
        real = rng.normal(size=ROWS)
        mean, sd = real.mean(), real.std()
        values = np.column_stack([real, rng.normal(mean, sd, size=(ROWS, DRAWS))])
        white = (values - mean) / sd
        scores = np.stack([white, white**2 - 1], axis=-1)
        comparison = Comparison(scores if allowing else 0 * scores, np.ones(ROWS))
        found.append(comparison.sums((white**4)[..., None]).z[0])
    return np.array(found)


def test_the_fit_is_allowed_for():
    """Of 300 right fits, z is standard normal; without the correction it is far too small.

    The standard deviation of 300 normal numbers is within 12 % of one, at three of its errors.
    """
    z = z_values(allowing=True)
    assert z.std() == pytest.approx(1, abs=0.15)
    assert kstest(z, "norm").pvalue > 1e-3
    assert z_values(allowing=False).std() < 0.75


def test_how_exactly_the_parameters_were_fitted_does_not_matter():
    """Companions of a slightly wrong model: the scores take up the difference."""
    rng = np.random.default_rng(1)
    off = 3 / np.sqrt(ROWS)  # three errors of the mean
    found = []
    for _ in range(100):
        values = rng.normal(size=(ROWS, DRAWS + 1))
        values[:, 1:] += off
        white = values - off
        scores = np.stack([white, white**2 - 1], axis=-1)
        sums = Comparison(scores, np.ones(ROWS)).sums((white**3)[..., None])
        plain = Comparison(0 * scores, np.ones(ROWS)).sums((white**3)[..., None])
        found.append((sums.z[0], plain.z[0]))
    corrected, uncorrected = np.array(found).T
    assert abs(corrected.mean()) < 0.5
    assert abs(uncorrected.mean()) > 1.5


def test_what_the_fit_takes_up_is_not_judged():
    values = np.random.default_rng(0).normal(size=(50, 5))
    comparison = Comparison(values[..., None], np.ones(50))
    assert np.isnan(comparison.sums(3 * values[..., None]).z[0])
    assert comparison.sums(3 * values[..., None]).together() == (1.0, 0.0)


def test_several_functions_at_once():
    """P-values of five polynomials are uniform for right rows, and small for shifted ones."""
    rng = np.random.default_rng(2)
    right, wrong = [], []
    for _ in range(TABLES):
        values = rng.normal(size=(ROWS, DRAWS + 1))
        comparison = Comparison(values[..., None], np.ones(ROWS))
        powers = np.stack([values**k for k in (2, 3, 4)], axis=-1)
        right.append(comparison.sums(powers).together()[0])
        powers[:, 0] = np.stack([(1.2 * values[:, 0]) ** k for k in (2, 3, 4)], axis=-1)
        wrong.append(comparison.sums(powers).together()[0])
    assert 0.02 < np.mean(np.array(right) < 0.05) < 0.09
    assert np.median(wrong) < 1e-3


@pytest.mark.parametrize("odd", [0.0, 1e6])
def test_no_row_decides(odd):
    """A row moves a sum by about half its standard deviation at most; its own figure is kept."""
    values = np.random.default_rng(4).normal(size=(ROWS, DRAWS + 1))
    comparison = Comparison(0 * values[..., None], np.ones(ROWS))
    before = comparison.sums(values[..., None]).z[0]
    values[0, 0] = odd
    after = comparison.sums(values[..., None])
    assert abs(after.z[0] - before) < 0.7
    assert (abs(after.unbounded[0] - before) > 1000) == (odd > 0)


def test_row_weights_count():
    values = np.random.default_rng(3).normal(size=(60, 8))
    weights = np.r_[np.full(30, 2.0), np.zeros(30)]
    heavy = Comparison(0 * values[..., None], weights).sums((values**2)[..., None])
    alone = Comparison(0 * values[:30, :, None], np.ones(30)).sums((values[:30] ** 2)[..., None])
    np.testing.assert_allclose(heavy.z, alone.z)
