"""Tables where arrays are: the same fit, with names."""

import numpy as np
import pandas as pd
import pytest
from astropy.table import MaskedColumn, QTable, Table

from deconflow import (
    XDGMM,
    Deconvolver,
    DeconvolvingKDE,
    FlowDeconvolver,
    WaveletDeconvolver,
)
from deconflow.auto import plan

NAMES = ["x", "y"]
RNG = np.random.default_rng(0)
SD = RNG.uniform(0.1, 0.5, (60, 2))
W = RNG.normal(size=(60, 2)) + SD * RNG.normal(size=(60, 2))


def polars(array, names):
    return pytest.importorskip("polars").DataFrame(array, schema=names)


TABLES = {
    "pandas": lambda array, names: pd.DataFrame(array, columns=names),
    "polars": polars,
    "astropy": lambda array, names: Table(array, names=names),
    "units": lambda array, names, units=("m", "s"): QTable(array, names=names, units=units),
}


ESTIMATORS = {
    "xd": lambda: XDGMM(1, random_state=0),
    "flow": lambda: FlowDeconvolver(epochs=1, hidden=8, random_state=0),
    "auto": lambda: Deconvolver(quick=True, random_state=0, n_jobs=1),
    "kde": DeconvolvingKDE,
    "wavelet": WaveletDeconvolver,
}


@pytest.fixture(scope="module")
def plain_fits():
    """Fits of plain arrays, by their names; each is made once."""
    fits = {}

    def get(name, dim):
        if name not in fits:
            fits[name] = ESTIMATORS[name]().fit(W[:, :dim], noise=SD[:, :dim])
        return fits[name]

    return get


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_same_fit_with_names(kind, name, plain_fits, monkeypatch, tmp_path):
    for bound in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(plan, bound, 4)
    dim = 1 if name == "wavelet" else 2
    w, sd, names = W[:, :dim], SD[:, :dim], NAMES[:dim]
    units = {"units": ["m", "s"][:dim]} if kind == "units" else {}
    table, errors = (TABLES[kind](array, names, **units) for array in (w, sd))
    plain = plain_fits(name, dim)
    named = ESTIMATORS[name]().fit(table, noise=errors)
    assert list(named.feature_names_in_) == names
    assert np.allclose(named.score_samples(table), plain.score_samples(w))
    assert np.allclose(named.posterior(table, noise=errors).mean, plain.posterior(w, noise=sd).mean)
    named.save(tmp_path / "model")
    assert list(type(named).load(tmp_path / "model").feature_names_in_) == names


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_notebooks_show(name, plain_fits, monkeypatch):
    """A line for a model, a table of its parameters as HTML, and one line for an answer."""
    from deconflow import plots

    for bound in ("SHORTEST", "LONGEST"):
        monkeypatch.setattr(plan, bound, 4)
    dim = 1 if name == "wavelet" else 2
    model = plain_fits(name, dim)
    assert repr(model).startswith(f"{type(model).__name__}(")
    assert "fitted" in model._repr_html_()
    answer = repr(model.posterior(W[:, :dim], noise=SD[:, :dim]))
    assert "60 rows" in answer
    assert len(answer) < 100
    axes = plots.marginals(model, W[:, :dim])
    assert len(axes) == dim


@pytest.mark.parametrize("kind", ["pandas", "polars", "astropy"])
def test_errors_go_to_their_columns(kind):
    table, errors = TABLES[kind](W, NAMES), TABLES[kind](SD[:, ::-1], NAMES[::-1])
    plain, named = XDGMM(1).fit(W, noise=SD), XDGMM(1).fit(table, noise=errors)
    assert np.allclose(plain.covariances_, named.covariances_)


def test_masked_cells_are_missing():
    table = Table(W, names=NAMES, masked=True)
    table["x"] = MaskedColumn(W[:, 0], mask=np.arange(60) < 20)
    with_nan = W.copy()
    with_nan[:20, 0] = np.nan
    named, plain = XDGMM(1).fit(table, noise=SD), XDGMM(1).fit(with_nan, noise=SD)
    assert np.allclose(named.means_, plain.means_)


def test_units_of_errors_are_converted():
    table = Table(W, names=NAMES, units=["m", "s"])
    errors = Table(SD * [100.0, 1.0], names=NAMES, units=["cm", "s"])
    named, plain = XDGMM(1).fit(table, noise=errors), XDGMM(1).fit(W, noise=SD)
    assert np.allclose(named.covariances_, plain.covariances_)


def test_other_names_are_refused():
    model = XDGMM(1).fit(Table(W, names=NAMES), noise=SD)
    with pytest.raises(ValueError, match="feature names"):
        model.posterior(Table(W, names=["x", "z"]), noise=SD)


def test_arrays_in_cells_are_refused():
    table = Table({"x": W[:, 0], "y": W})
    with pytest.raises(ValueError, match="Expected one number per row in column 'y'"):
        XDGMM(1).fit(table, noise=[0.1, 0.1])
