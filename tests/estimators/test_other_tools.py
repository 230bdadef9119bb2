"""Answers in the words of other tools, and back."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from astropy import units as u
from astropy.table import QTable, Table
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from uncertainties import unumpy

import deconflow
from deconflow import XDGMM, DeconvolvingKDE, noise, observe, plots, xd

RNG = np.random.default_rng(0)
SD = RNG.uniform(0.1, 0.5, (60, 2))
W = RNG.normal(size=(60, 2)) @ [[1.0, 0.5], [0.0, 1.0]] + SD * RNG.normal(size=(60, 2))
NAMES = ["x", "y"]
INDEX = pd.Index([f"star {i}" for i in range(60)], name="star")
FRAME = pd.DataFrame(W, columns=NAMES, index=INDEX)


@pytest.fixture(scope="module")
def model():
    return XDGMM(1).fit(FRAME, noise=SD)


@pytest.fixture(scope="module")
def exact(model):
    return model.posterior(FRAME, noise=SD)


@pytest.fixture(scope="module")
def drawn():
    """A posterior of weighted draws."""
    return DeconvolvingKDE().fit(FRAME, noise=SD).posterior(FRAME, noise=SD)


# -- draws: xarray and ArviZ ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exact", "drawn"])
def test_xarray_has_the_draws_by_name(kind, request):
    posterior = request.getfixturevalue(kind)
    data = posterior.to_xarray()
    assert dict(data.sizes) == {"chain": 1, "draw": 100, "row": 60}
    assert list(data.data_vars) == NAMES
    assert list(data["row"].values) == list(INDEX)
    np.testing.assert_array_equal(data["y"].values[0].T, posterior.samples[:, :, 1])
    more = posterior.to_xarray(2000, random_state=1)
    np.testing.assert_array_equal(
        more["x"].values[0].T, posterior.sample(2000, random_state=1)[:, :, 0]
    )


def test_rows_of_arrays_are_numbered_and_those_of_several_levels_keep_them(model):
    plain = XDGMM(1).fit(W, noise=SD).posterior(W[:3], noise=SD[:3])
    assert list(plain.to_xarray()["row"].values) == [0, 1, 2]
    levels = pd.MultiIndex.from_product([["a", "b"], range(30)], names=["field", "number"])
    posterior = model.posterior(FRAME.set_axis(levels), noise=SD)
    chosen = posterior.to_xarray().sel(field="b", number=3)
    np.testing.assert_array_equal(chosen["x"].values[0], posterior.samples[33, :, 0])


# -- tables of the library that the rows came from -----------------------------------------------

TABLES = {
    "array": (W, pd.DataFrame),
    "pandas": (FRAME, pd.DataFrame),
    "polars": (pl.DataFrame(W, schema=NAMES), pl.DataFrame),
    "astropy": (Table(W, names=NAMES, units=("km", "s")), Table),
    "quantities": (QTable(W, names=NAMES, units=("km", "s")), QTable),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_goes_out_as_it_came_in(name):
    rows, kind = TABLES[name]
    posterior = XDGMM(1).fit(rows, noise=SD).posterior(rows, noise=SD)
    table = posterior.to_frame(q=[0.05])
    assert type(table) is kind
    x, y = posterior.names
    found = np.asarray(table[f"{y}_q5"])
    np.testing.assert_array_equal(found, posterior.quantile(0.05)[:, 1])
    if name == "pandas":
        assert table.index.equals(INDEX)
    if name in ("astropy", "quantities"):
        assert [table[f"{x}_sd"].unit, table[f"{y}_mean"].unit] == [u.km, u.s]
    assert type(posterior.mean) is np.ndarray


@pytest.mark.parametrize(
    ("ask", "package", "install"),
    [
        ("to_xarray", "xarray", "'deconflow[interop]'"),
        ("to_arviz", "arviz_base", "'deconflow[interop]'"),
        ("to_frame", "pandas", "'deconflow[tables]'"),
    ],
)
def test_a_missing_package_is_named_with_its_install(ask, package, install, exact, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as error:
        getattr(exact, ask)()
    assert f"Expected {package} to be installed" in str(error.value)
    assert str(error.value).endswith(f"Run: pip install {install}")


# -- scikit-learn and editors --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.parametrize(
    "facts", [{}, {"limits": np.where(W > 0.5, -1, 0)}], ids=["plain", "limits"]
)
def test_a_search_takes_observations(facts):
    """Every fact of the rows goes with them, into fits and into scores."""
    rows = observe(W, SD, **facts)
    found = cross_val_score(XDGMM(1), rows, cv=KFold(2), error_score="raise")
    for score, (train, test) in zip(found, KFold(2).split(W), strict=True):
        assert score == XDGMM(1).fit(rows[train]).score(rows[test])
    search = GridSearchCV(XDGMM(), {"n_components": [1, 2]}, cv=2).fit(rows)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_a_search_with_noise_beside_its_rows_shows_how():
    with pytest.warns(UserWarning, match=r"search\.fit\(deconflow\.observe\(w, noise"):
        GridSearchCV(XDGMM(), {"n_components": [1]}, cv=2).fit(W, noise=SD)


def test_a_search_with_a_scorer_of_its_own_or_errors_inside():
    def score(model, w, y=None):
        return model.score(w, noise=0.1)

    search = GridSearchCV(XDGMM(), {"n_components": [1]}, cv=2, scoring=score).fit(W, noise=SD)
    assert np.isfinite(search.best_score_)
    inside = GridSearchCV(XDGMM(), {"n_components": [1]}, cv=2).fit(unumpy.uarray(W, SD))
    assert np.isfinite(inside.best_score_)


@pytest.mark.parametrize("module", [deconflow, noise, plots, xd, deconflow.tables])
def test_fronts_show_nothing_but_their_own(module):
    assert sorted(dir(module)) == sorted(module.__all__)
