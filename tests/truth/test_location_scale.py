"""Location and scale of the true values as functions of covariates, seen through noise."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from deconflow import Observations
from deconflow.noise import student_t
from deconflow.saving import from_json, to_json
from deconflow.truth import Covariates, Given, LocationScale

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
    data = observed(v, missing=places, weights=np.r_[np.ones(400), np.full(400, 1e-9)])
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


# -- covariates of all kinds become numbers, the same at the fit and after it ---------------------


N = 60
X = np.random.default_rng(0).normal(5.0, 3.0, size=N)
KIND = np.array(["star", "galaxy", "star"] * 20)
SD = np.exp(np.random.default_rng(2).normal(size=(N, 2)))


def rows(n=N, noise=0.3, missing=()):
    w = np.random.default_rng(1).normal(size=(n, 2))
    for place in missing:
        w[place] = np.nan
    return Observations.from_arrays(w, noise)


def fit(given, data=None):
    return Covariates.fit(of(given), rows() if data is None else data, ["a", "b"])


def of(given):
    return Given.of(given, np.empty((N, 2)), N)


TABLES = {
    "pandas": lambda: pd.DataFrame({"x": X, "kind": KIND}),
    "pandas, categorical": lambda: pd.DataFrame({"x": X, "kind": pd.Categorical(KIND)}),
    "pandas, nullable": lambda: pd.DataFrame({"x": X, "kind": KIND}).convert_dtypes(),
    "pandas, other order": lambda: pd.DataFrame({"kind": KIND, "x": X}),
    "polars": lambda: pl.DataFrame({"kind": KIND, "x": X}),
    "lists": lambda: [[x, kind] for x, kind in zip(X.tolist(), KIND.tolist(), strict=True)],
    "objects": lambda: np.array([X, KIND], dtype=object).T,
    "dictionary": lambda: {"kind": KIND, "x": X},
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_any_kind_give_the_same_numbers(kind):
    learned = fit(pd.DataFrame({"x": X, "kind": KIND}))
    found = learned.encode(of(TABLES[kind]()), rows())
    expected = np.c_[(X - X.mean()) / X.std(), KIND == "galaxy"]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert learned.names == ["x", "kind"]
    assert learned.continuous.tolist() == [True, False]
    again = fit(TABLES[kind]()).encode(of(TABLES[kind]()), rows())
    np.testing.assert_allclose(np.sort(again, 1), np.sort(expected, 1), atol=1e-12)


@pytest.mark.parametrize(
    "given",
    [X, X.tolist(), X[:, None], X.astype(np.float32), pd.Series(X, name="x"), pl.Series("x", X),
     np.ma.masked_array(X), X.astype(object), X.astype(str)],
)  # fmt: skip
def test_a_single_covariate(given):
    numbers = fit(given).encode(of(given), rows())
    np.testing.assert_allclose(numbers[:, 0], (X - X.mean()) / X.std(), atol=1e-6)
    for other in (X > 5, (X > 5).astype(np.int8), pd.date_range("2026", None, N)):
        assert np.isfinite(fit(other).encode(of(other), rows())).all()


def test_many_categories_are_indicators_less_one():
    labels = np.array(list("abcd") * 15)
    learned = fit(labels)
    numbers = learned.encode(of(labels), rows())
    assert numbers.shape == (N, 3)
    assert set(numbers.sum(1)) == {0.0, 1.0}
    with pytest.raises(ValueError, match=r"among a, b, c, d, as in the fit; got 'e' in row 2"):
        learned.encode(of(np.where(np.arange(N) == 2, "e", labels)), rows())


def test_errors_are_covariates_by_their_logarithm():
    sd = np.c_[SD[:, 0], np.full(N, 0.5)]
    learned = fit("noise", rows(noise=sd))
    assert learned.names == ["log error of a"]  # the other is the same for all
    logs = np.log(sd[:, 0])
    numbers = learned.encode(of("noise"), rows(noise=sd))[:, 0]
    np.testing.assert_allclose(numbers, (logs - logs.mean()) / logs.std(), atol=1e-9)
    both = fit(("noise", X), rows(noise=sd))
    assert both.names == ["log error of a", "x0"]
    assert both.encode(of(("noise", X)), rows(noise=sd)).shape == (N, 2)
    for wrong in (X, "noise"):
        with pytest.raises(ValueError, match=r"Expected given.*the fit"):
            both.encode(of(wrong), rows(noise=sd))
    with pytest.raises(ValueError, match=r"Expected given with the covariates of the fit"):
        learned.encode(of(("noise", X)), rows(noise=sd))


def test_a_row_without_a_value_has_a_usual_error_whatever_rows_are_beside_it():
    data = rows(noise=SD, missing=[(0, 1), (7, 0)])
    learned = fit("noise", data)
    whole = learned.encode(of("noise"), data)
    assert np.isfinite(whole).all()
    assert whole[0, 1] == 0
    assert whole[7, 0] == 0
    np.testing.assert_array_equal(learned.encode(of("noise"), data[[0]]), whole[[0]])


def test_one_value():
    learned = fit(pd.DataFrame({"x": X, "y": X**2}))
    one = learned.encode_one([1.0, 2.0])
    assert one.shape == (1, 2)
    np.testing.assert_array_equal(learned.encode_one([[1.0, 2.0]]), one)
    for same in (pd.DataFrame({"y": [2.0], "x": [1.0]}), {"y": 2.0, "x": 1.0}):
        np.testing.assert_array_equal(learned.encode_one(same), one)
    single = fit(X)
    for same in (1.0, [1.0], [[1.0]], {"x0": 1.0}, pd.DataFrame({"any": [1.0]})):
        np.testing.assert_array_equal(single.encode_one(same), (1.0 - X.mean()) / X.std())
    for wrong in ([1.0], [[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0, 3.0], "noise", {"x": 1.0}, []):
        with pytest.raises(ValueError, match="Expected "):
            learned.encode_one(wrong)
    with_errors = fit(("noise", X), rows(noise=SD))
    mapping = {"x0": 1.0, "log error of b": -1.0, "log error of a": 0.5}
    np.testing.assert_array_equal(
        with_errors.encode_one(mapping), with_errors.encode_one([0.5, -1.0, 1.0])
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.where(np.arange(N) == 3, np.nan, X), "got none for x0 in row 3"),
        (np.where(np.arange(N) == 3, np.inf, X), "got none for x0 in row 3"),
        (np.ma.masked_array(X, np.arange(N) == 3), "got none for x0 in row 3"),
        (np.ma.masked_array(np.c_[X, X], np.arange(2 * N).reshape(N, 2) == 7), "x1 in row 3"),
        (np.where(np.arange(N) == 3, None, KIND), "got none for x0 in row 3"),
        (pd.DataFrame({"k": pd.array([None, *KIND[1:]], dtype="string")}), "none for k in row 0"),
        (pd.DataFrame({"k": pd.array([None, *range(N - 1)], dtype="Int64")}), "for k in row 0"),
        (pl.DataFrame({"k": [None, *KIND[1:]]}), "none for k in row 0"),
        (pl.DataFrame({"k": [None, *X[1:]]}), "none for k in row 0"),
        (np.full(N, 0.1), "differ by row; got one value in x0"),
        (np.full(N, "a"), "2 to 100 categories in x0; got 1"),
        (X[1:], r"one row for each of 60; got x0 of shape \(59,\)"),
        (X[None, :, None], r"shape \(N,\) or \(N, C\)"),
        ({"x": X, "y": X[1:]}, r"got y of shape \(59,\)"),
        ({"x": np.c_[X, X]}, r"got x of shape \(60, 2\)"),
        ({}, "at least one covariate"),
        ("errors", "or \"noise\"; got 'errors'"),
        ("noise", "Expected errors that differ by row"),
        (1e200 * X, "at most"),
        (pd.DataFrame(index=range(N)), "at least one covariate"),
    ],
)
def test_covariates_that_make_no_sense(given, message):
    with pytest.raises(ValueError, match=message) as caught:
        fit(given)
    assert str(caught.value).startswith("Expected ")


def test_missing_and_other_columns_after_the_fit():
    learned = fit(pd.DataFrame({"x": X, "kind": KIND}))
    for wrong, message in (
        (pd.DataFrame({"x": X, "k": KIND}), "of the fit, x, kind; got the columns x, k"),
        (pd.DataFrame({"x": X, "kind": np.where(X > 5, None, KIND)}), "got none for kind"),
        (pd.DataFrame({"x": KIND, "kind": KIND}), "Expected numbers in x of given"),
        (X, "got the columns x0"),
    ):
        with pytest.raises(ValueError, match=message):
            learned.encode(of(wrong), rows())


def test_no_errors_have_no_logarithm():
    sd = np.full((N, 2), 0.3)
    sd[4, 1] = 0
    with pytest.raises(ValueError, match=r"positive errors.*got 0 in row 4"):
        fit("noise", rows(noise=sd))
