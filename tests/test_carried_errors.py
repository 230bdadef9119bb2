"""Values that carry their errors: the same fit as from values and noise."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from astropy import units as u
from astropy.table import QTable
from astropy.uncertainty import Distribution
from uncertainties import correlated_values, ufloat, unumpy

from deconflow import XDGMM, Observations
from deconflow.noise import from_samples, gaussian

RNG = np.random.default_rng(0)
SD = RNG.uniform(0.1, 0.5, (60, 2))
W = RNG.normal(size=(60, 2)) + SD * RNG.normal(size=(60, 2))
CELLS = unumpy.uarray(W, SD)
NAMES = ["x", "y"]
INDEX = np.arange(60) + 7


@pytest.fixture(scope="module")
def plain():
    return XDGMM(1).fit(W, noise=SD)


UNCERTAIN = {
    "array": CELLS,
    "lists": CELLS.tolist(),
    "pandas": pd.DataFrame(CELLS, columns=NAMES, index=INDEX),
    "polars": pl.DataFrame({"x": CELLS[:, 0].tolist(), "y": CELLS[:, 1].tolist()},
                           schema={"x": pl.Object, "y": pl.Object}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCERTAIN)
def test_numbers_of_uncertainties_fit_as_values_and_noise(name, plain):
    w = UNCERTAIN[name]
    model = XDGMM(1).fit(w)
    np.testing.assert_array_equal(model.covariances_, plain.covariances_)
    assert not np.allclose(model.covariances_, XDGMM(1).fit(W, noise=0.0).covariances_)  # twin
    answer = model.posterior(w)
    np.testing.assert_array_equal(answer.mean, plain.posterior(W, noise=SD).mean)
    assert answer.names == (NAMES if name in ("pandas", "polars") else ["v0", "v1"])
    assert model.score(w) == plain.score(W, noise=SD)
    if name == "pandas":
        assert list(answer.to_frame().index) == list(INDEX)


def test_correlations_of_a_row_are_used():
    covariances = np.array([[[0.2, 0.1], [0.1, 0.3]]] * 30 + [[[0.1, 0.0], [0.0, 0.2]]] * 30)
    rows = [correlated_values(w, c) for w, c in zip(W, covariances, strict=True)]
    data = Observations.from_arrays(np.array(rows), None)
    np.testing.assert_allclose(data.noise.covariance(), covariances, atol=1e-15)
    model = XDGMM(1).fit(np.array(rows))
    wanted = XDGMM(1).fit(W, noise=gaussian(covariance=covariances))
    np.testing.assert_allclose(model.covariances_, wanted.covariances_, rtol=1e-9)


def test_missing_values_may_be_anything_empty():
    cells, w = CELLS.copy(), W.copy()
    cells[0, 0], cells[1, 1], cells[2, 0] = np.nan, None, ufloat(np.nan, 0.1)
    cells[3, 1] = pd.NA
    w[[0, 1, 2, 3], [0, 1, 0, 1]] = np.nan
    np.testing.assert_array_equal(
        XDGMM(1).fit(cells).covariances_, XDGMM(1).fit(w, noise=SD).covariances_
    )


SHARED = ufloat(0.0, 0.1)
BAD = {
    "noise beside": (lambda: XDGMM(1).fit(CELLS, noise=SD), r"no noise with.*w.*Leave out noise"),
    "plain numbers among": (lambda: XDGMM(1).fit(np.where(np.eye(60, 2) > 0, W, CELLS)),
        r"value in w with its error, as ufloat.*at row 0, column 0\. Use ufloat\(value, 0\)"),
    "an error that rows share": (lambda: XDGMM(1).fit(CELLS + SHARED),
        r"rows of w whose errors are independent; got rows 0 and 1, which share one\. Pass unumpy"),
    "draws beside numbers": (lambda: XDGMM(1).fit(QTable({"x": draws(u.km), "y": W[:, 1]})),
        r"w as a distribution .*shapes \[\(60, 200\), None\]"),
    "other numbers of draws": (lambda: XDGMM(1).fit(QTable({"x": draws(u.km), "y": draws(u.s, 9)})),
        r"all with as many draws; got .*\(60, 200\), \(60, 9\)"),
    "one distribution": (lambda: XDGMM(1).fit(draws()[0]),
        r"w as a distribution of shape \(N,\) or \(N, D\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_told_is_refused(name):
    ask, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        ask()


# -- astropy's distributions ---------------------------------------------------------------------


def samples(count=200):
    rng = np.random.default_rng(1)
    return W[:, :, None] + SD[:, :, None] * rng.normal(size=(60, 2, count))


def draws(unit=None, count=200, column=0):
    values = samples(count)[:, column]
    return Distribution(values if unit is None else values * unit)


def test_distributions_fit_as_draws_of_posteriors():
    w, law = from_samples(np.moveaxis(samples(), -1, 1))
    wanted = XDGMM(1).fit(w, noise=law)
    model = XDGMM(1).fit(Distribution(samples()))
    np.testing.assert_array_equal(model.covariances_, wanted.covariances_)
    table = QTable({"x": draws(u.km), "y": draws(u.s, column=1)})
    named = XDGMM(1).fit(table)
    np.testing.assert_allclose(named.covariances_, wanted.covariances_, rtol=1e-12)
    answer = named.posterior(table)
    assert answer.names == NAMES
    found = answer.to_frame()
    assert isinstance(found, QTable)
    assert (found["x_mean"].unit, found["y_sd"].unit) == (u.km, u.s)
