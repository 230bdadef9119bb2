"""Location and scale of the true values as functions of covariates, seen through noise."""

import json

import numpy as np
import pytest

from deconflow import Observations
from deconflow.noise import student_t
from deconflow.saving import from_json, to_json
from deconflow.truth import LocationScale

GRID = np.linspace(-1.6, 1.6, 33)[:, None]


def observed(v, sd=0.5, seed=1, **options):
    """Rows of true values ``(N, D)``."""
    w = v + sd * np.random.default_rng(seed).normal(size=v.shape)
    for place in options.pop("missing", ()):
        w[place] = np.nan
    return Observations.from_arrays(w, sd, **options)


def fitted(data, x, continuous=None):
    return LocationScale.fit(
        data, x, np.ones(x.shape[1], bool) if continuous is None else continuous
    )


def rms(difference):
    return np.sqrt(np.square(difference).mean())


def test_a_sine_and_a_changing_width(rng):
    """Errors of the curves are those of some ten coefficients from 2000 rows, about 0.07."""
    x = rng.uniform(-np.sqrt(3), np.sqrt(3), size=(2000, 1))
    v = np.sin(2 * x) + np.exp(0.5 * x) * rng.normal(size=x.shape)
    mean, width = fitted(observed(v), x).at(GRID)
    assert rms(mean - np.sin(2 * GRID)) < 0.12
    np.testing.assert_allclose(width, np.exp(0.5 * GRID), rtol=0.2)
    line = np.polynomial.Polynomial.fit(x[:, 0], v[:, 0], 1)(GRID)  # the twin
    assert rms(line - np.sin(2 * GRID)) > 0.4


def test_without_dependence_curves_are_nearly_constant(rng):
    x, v = rng.normal(size=(1500, 1)), rng.normal(size=(1500, 1))
    mean, width = fitted(observed(v), x).at(GRID)
    # a straight line's end has an error of 1.12 / sqrt(1500) * 1.6 = 0.05
    assert np.abs(mean).max() < 0.15
    assert np.abs(np.log(width)).max() < 0.25


def test_covariates_of_few_values_have_a_line(rng):
    x = rng.integers(4, size=(600, 1)) - 1.0
    curves = fitted(observed(2 * x + 0.5 * rng.normal(size=x.shape)), x)
    assert not curves.splines
    np.testing.assert_allclose(curves.at(np.array([[-1.0], [0.0]]))[0][:, 0], [-2, 0], atol=0.15)


def test_a_value_that_most_rows_have(rng):
    """Quantiles that are the same make no knots of their own."""
    x = np.where(rng.random((800, 1)) < 0.85, 0.0, rng.normal(size=(800, 1)))
    mean, width = fitted(observed(x + 0.1 * rng.normal(size=x.shape)), x).at(GRID)
    assert np.abs(mean - GRID).max() < 0.5
    assert (width < 1).all()


def test_many_covariates_of_which_one_matters(rng):
    x = rng.normal(size=(500, 15))
    v = np.square(x[:, :1]) + 0.3 * rng.normal(size=(500, 1))
    fresh = rng.normal(size=(500, 15))
    mean, _ = fitted(observed(v), x).at(fresh)
    assert rms(mean[:, 0] - np.square(fresh[:, 0])) < 0.5  # the true values' own spread is 1.4


def test_missing_values_and_weights(rng):
    x = rng.normal(size=(800, 1))
    v = np.c_[x, -2 * x] + 0.3 * rng.normal(size=(800, 2))
    places = [(row, row % 2) for row in range(0, 800, 3)]
    v[400:] += 50  # rows without weight
    weights = np.r_[np.ones(400), np.full(400, 1e-9)]
    data = observed(v, missing=places, weights=weights)
    curves = fitted(data, x)
    mean, _ = curves.at(np.array([[-1.0], [1.0]]))
    np.testing.assert_allclose(mean, [[-1, 2], [1, -2]], atol=0.25)
    rows, missing = curves.standardised(data, x), np.isnan(data.measured())
    assert (np.asarray(rows.w)[missing] == 0).all()
    widths = np.log(curves.at(x)[1])
    np.testing.assert_allclose(curves.log_volume(data, x), np.where(missing, 0, widths).sum(1))


def test_standardised_rows_are_as_likely(rng):
    """p(w | v) of a row is that of its standardised row over the volume."""
    x = rng.normal(size=(100, 1))
    v = np.c_[x, x**2] * (1 + 0.2 * rng.normal(size=(100, 2)))
    S = np.array([[0.3, 0.1], [0.1, 0.2]])
    w = v + rng.normal(size=v.shape) @ np.linalg.cholesky(S).T
    data = Observations.from_arrays(w, S)
    curves = fitted(data, x)
    mean, width = curves.at(x)
    z = ((v - mean) / width)[None]
    found = np.asarray(curves.standardised(data, x).log_likelihood(z)[0])
    expected = np.asarray(data.log_likelihood(v[None])[0])
    np.testing.assert_allclose(found - curves.log_volume(data, x), expected, atol=1e-8)


def test_other_laws_have_one_width_for_all(rng):
    x = rng.normal(size=(300, 1))
    v = x + np.exp(0.5 * x) * rng.normal(size=x.shape)
    w = v + 0.3 * rng.standard_t(4, size=v.shape)
    data = Observations.from_arrays(w, student_t([0.3], 4.0))
    assert np.ptp(fitted(data, x).at(GRID)[1]) == 0
    with pytest.raises(ValueError, match=r"Expected Gaussian noise.*got another law. Fit again"):
        fitted(observed(v), x).standardised(data, x)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sd", [0.0, 0.3])
def test_odd_scales_and_constants(constant, sd, scale, rng):
    x = rng.normal(size=(100, 1))
    v = np.ones_like(x) if constant else np.sin(x) + 0.2 * rng.normal(size=x.shape)
    mean, width = fitted(observed(scale * v, scale * sd), x).at(GRID)
    assert (width > 0).all()
    assert np.isfinite(width).all()
    expected = np.ones_like(GRID) if constant else np.sin(GRID)
    np.testing.assert_allclose(mean / scale, expected, atol=0.4)


def test_state(rng):
    x = np.c_[rng.normal(size=(300, 2)), rng.integers(2, size=300)]
    v = np.c_[np.sin(x[:, 0]), x[:, 1] + x[:, 2]]
    curves = fitted(observed(v), x, np.array([True, True, False]))
    arrays = {}
    text = json.dumps(to_json(curves, arrays, "curves"))
    again = from_json(json.loads(text), LocationScale, arrays, "curves")
    np.testing.assert_array_equal(again.at(x), curves.at(x))
    one = curves.marginal(np.array([1]))
    np.testing.assert_allclose(one.at(x)[0][:, 0], curves.at(x)[0][:, 1], atol=1e-12)
