"""Sums over fitted rows: with the fit allowed for, they vary as they should."""

import numpy as np
import pytest
from scipy.stats import kstest

from deconflow.trust.table import Comparison

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


def test_row_weights_count():
    values = np.random.default_rng(3).normal(size=(60, 8))
    weights = np.r_[np.full(30, 2.0), np.zeros(30)]
    heavy = Comparison(0 * values[..., None], weights).sums((values**2)[..., None])
    alone = Comparison(0 * values[:30, :, None], np.ones(30)).sums((values[:30] ** 2)[..., None])
    np.testing.assert_allclose(heavy.z, alone.z)
