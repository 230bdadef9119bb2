"""Location and scale of the truth as functions of covariates, seen through noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from deconflow import Observations
from deconflow.noise import student_t
from deconflow.truth import LocationScale


def observed(v, x, sd=0.5, seed=1, **options):
    """Rows of truths ``(N, D)``, with numbers of their covariates."""
    rng = np.random.default_rng(seed)
    w = v + sd * rng.normal(size=v.shape)
    for place in options.pop("missing", ()):
        w[place] = np.nan
    return beside(np.atleast_2d(x.T).T, Observations.from_arrays(w, sd, **options))


def beside(x, data):
    return replace(data, given=torch.from_numpy(x))


def fitted(data, continuous=None):
    count = data.given.shape[1]
    return LocationScale.fit(data, np.ones(count, bool) if continuous is None else continuous)


GRID = np.linspace(-1.6, 1.6, 33)[:, None]


def test_a_sine_and_a_changing_width(rng):
    """Errors of the curves are those of some ten coefficients from 2000 rows, about 0.07."""
    x = rng.uniform(-np.sqrt(3), np.sqrt(3), size=(2000, 1))
    v = np.sin(2 * x) + np.exp(0.5 * x) * rng.normal(size=x.shape)
    mean, width = fitted(observed(v, x)).at(GRID)
    assert np.sqrt(np.square(mean - np.sin(2 * GRID)).mean()) < 0.12
    np.testing.assert_allclose(width, np.exp(0.5 * GRID), rtol=0.2)
    line = np.polynomial.Polynomial.fit(x[:, 0], v[:, 0], 1)(GRID)  # the twin
    assert np.sqrt(np.square(line - np.sin(2 * GRID)).mean()) > 0.4


def test_without_dependence_curves_are_nearly_constant(rng):
    x, v = rng.normal(size=(1500, 1)), rng.normal(size=(1500, 1))
    mean, width = fitted(observed(v, x)).at(GRID)
    # a straight line's end has an error of 1.12 / sqrt(1500) * 1.6 = 0.05
    assert np.abs(mean).max() < 0.15
    assert np.abs(np.log(width)).max() < 0.25


@pytest.mark.parametrize("values", [2, 3, 4])
def test_covariates_of_few_values_have_a_line(values, rng):
    x = rng.integers(values, size=(600, 1)) - 1.0
    v = 2 * x + 0.5 * rng.normal(size=x.shape)
    curves = fitted(observed(v, x))
    assert not curves.splines
    mean, _ = curves.at(np.array([[-1.0], [0.0]]))
    np.testing.assert_allclose(mean[:, 0], [-2, 0], atol=0.15)


def test_a_value_that_most_rows_have(rng):
    """Quantiles that are the same make no knots of their own."""
    x = np.where(rng.random((800, 1)) < 0.85, 0.0, rng.normal(size=(800, 1)))
    mean, width = fitted(observed(x + 0.1 * rng.normal(size=x.shape), x)).at(GRID)
    assert np.isfinite(mean).all()
    assert np.abs(mean - GRID).max() < 0.5
    assert (width < 1).all()


def test_many_covariates_of_which_one_matters(rng):
    x = rng.normal(size=(500, 15))
    v = np.square(x[:, :1]) + 0.3 * rng.normal(size=(500, 1))
    fresh = rng.normal(size=(500, 15))
    mean, _ = fitted(observed(v, x)).at(fresh)
    error = np.sqrt(np.square(mean[:, 0] - np.square(fresh[:, 0])).mean())
    assert error < 0.5  # the truth's own spread is 1.4
    line = np.linalg.lstsq(np.c_[np.ones(500), x], v[:, 0], rcond=None)[0]  # the twin
    wrong = np.c_[np.ones(500), fresh] @ line
    assert np.sqrt(np.square(wrong - np.square(fresh[:, 0])).mean()) > 1.2


def test_missing_values_and_weights(rng):
    x = rng.normal(size=(800, 1))
    v = np.c_[x, -2 * x] + 0.3 * rng.normal(size=(800, 2))
    places = [(row, row % 2) for row in range(0, 800, 3)]
    wrong = v.copy()
    wrong[400:] += 50  # rows without weight
    weights = np.r_[np.ones(400), np.full(400, 1e-9)]
    data = observed(wrong, x, missing=places, weights=weights)
    curves = fitted(data)
    mean, _ = curves.at(np.array([[-1.0], [1.0]]))
    np.testing.assert_allclose(mean, [[-1, 2], [1, -2]], atol=0.25)
    rows = curves.standardised(data)
    assert (rows.w[~rows.observed] == 0).all()
    volume = curves.log_volume(data)
    widths = np.log(curves.at(data.given.numpy())[1])
    np.testing.assert_allclose(volume, np.where(data.observed.numpy(), widths, 0).sum(1))


def test_standardised_rows_are_as_likely(rng):
    """p(w | v) of a row is that of its standardised row over the volume."""
    x = rng.normal(size=(100, 1))
    v = np.c_[x, x**2] * (1 + 0.2 * rng.normal(size=(100, 2)))
    S = np.array([[0.3, 0.1], [0.1, 0.2]])
    w = v + rng.normal(size=v.shape) @ np.linalg.cholesky(S).T
    data = beside(x, Observations.from_arrays(w, S))
    curves = fitted(data)
    mean, width = curves.at(x)
    found = curves.standardised(data).log_likelihood(torch.from_numpy((v - mean) / width)[None])[0]
    expected = data.log_likelihood(torch.from_numpy(v)[None])[0]
    np.testing.assert_allclose(found.numpy() - curves.log_volume(data), expected, atol=1e-8)


def test_other_laws_have_one_width_for_all(rng):
    x = rng.normal(size=(300, 1))
    v = x + np.exp(0.5 * x) * rng.normal(size=x.shape)
    law = student_t([0.3], 4.0)
    data = beside(x, Observations.from_arrays(v + 0.3 * rng.standard_t(4, size=v.shape), law))
    curves = fitted(data)
    assert np.ptp(curves.at(GRID)[1]) == 0
    gaussian = fitted(observed(v, x))
    with pytest.raises(ValueError, match=r"Expected Gaussian noise.*got another law. Fit again"):
        gaussian.standardised(data)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("case", ["plain", "constant", "exact", "constant, exact"])
def test_odd_scales_and_constants(case, scale, rng):
    x = rng.normal(size=(100, 1))
    v = np.ones_like(x) if "constant" in case else np.sin(x) + 0.2 * rng.normal(size=x.shape)
    w = v if case != "plain" else v + 0.3 * rng.normal(size=x.shape)
    data = beside(x, Observations.from_arrays(scale * w, scale * (0.0 if "exact" in case else 0.3)))
    mean, width = fitted(data).at(GRID)
    assert np.isfinite(mean).all()
    assert (width > 0).all()
    assert np.isfinite(width).all()
    truth = np.ones_like(GRID) if "constant" in case else np.sin(GRID)
    np.testing.assert_allclose(mean / scale, truth, atol=0.4)


def test_a_column_that_is_seen_once(rng):
    x = rng.normal(size=(50, 1))
    v = np.c_[x, x]
    data = observed(v, x, missing=[(row, 1) for row in range(1, 50)])
    mean, width = fitted(data).at(GRID)
    assert np.isfinite(mean).all()
    assert np.isfinite(width).all()


def test_state(rng):
    x = np.c_[rng.normal(size=(300, 2)), rng.integers(2, size=300)]
    v = np.c_[np.sin(x[:, 0]), x[:, 1] + x[:, 2]]
    curves = fitted(observed(v, x), np.array([True, True, False]))
    again = LocationScale.from_state(curves.state())
    for found, expected in zip(again.at(x), curves.at(x), strict=True):
        np.testing.assert_array_equal(found, expected)
    one = curves.marginal(np.array([1]))
    np.testing.assert_allclose(one.at(x)[0][:, 0], curves.at(x)[0][:, 1], atol=1e-12)
