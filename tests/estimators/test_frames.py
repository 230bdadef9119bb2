"""Tables where arrays are: the same fit, with names."""

import numpy as np
import pandas as pd
import pytest
from astropy import units as u
from astropy.table import MaskedColumn, QTable, Table
from astropy.utils.masked import Masked
from short_fits import shorten

from deconflow import (
    XDGMM,
    BayesianXDGMM,
    Deconvolver,
    DeconvolvingKDE,
    FlowDeconvolver,
    Observations,
    WaveletDeconvolver,
    noise,
)

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
    "bayes": lambda: BayesianXDGMM(2, n_sweeps=9, random_state=0),
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
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "auto")) for name in ESTIMATORS]
)
def test_same_fit_with_names(kind, name, plain_fits, monkeypatch, tmp_path):
    shorten(monkeypatch, steps=4)
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
    shorten(monkeypatch, steps=4)
    dim = 1 if name == "wavelet" else 2
    model = plain_fits(name, dim)
    assert repr(model).startswith(f"{type(model).__name__}(")
    assert "fitted" in model._repr_html_()
    answer = repr(model.posterior(W[:, :dim], noise=SD[:, :dim]))
    assert "60 rows" in answer
    assert len(answer) < 100


NAMED = ["x_err", "y_err"]
#: What every fit below must find.
PLAIN = XDGMM(1).fit(W, noise=SD)


def same(w, noise, plain=PLAIN, **more):
    return np.allclose(XDGMM(1).fit(w, noise=noise, **more).covariances_, plain.covariances_)


@pytest.mark.parametrize("names", [NAMES, NAMED, ["X_SE", "dy"], ["x", "e_y"]])
@pytest.mark.parametrize("kind", ["pandas", "polars", "astropy"])
def test_errors_go_to_their_columns(kind, names):
    """In fit and in every question, whatever their order."""
    table, errors = TABLES[kind](W, NAMES), TABLES[kind](SD[:, ::-1], names[::-1])
    assert same(table, errors)
    model = XDGMM(1).fit(table, noise=errors)
    assert np.allclose(model.score_observations(table, errors), PLAIN.score_observations(W, SD))
    assert np.allclose(model.posterior(table, errors).mean, PLAIN.posterior(W, SD).mean)
    assert np.allclose(model.predict_proba(table, errors), PLAIN.predict_proba(W, SD))
    order = TABLES[kind](W[:, :1], ["x"]), TABLES[kind](SD[:, :1], [names[0]])
    answer = model.condition(order[0], ["x"], noise=order[1])
    assert np.allclose(answer.mean, PLAIN.condition(W[:, :1], [0], noise=SD[:, :1]).mean)
    data = Observations.from_arrays(table, errors)
    assert np.allclose(np.sqrt(data.noise.variance()), SD)


REFUSED = {
    "other names": (["a", "b"], "for each of x, y.*got a, b, with no column for a, b.*to_numpy"),
    "one other": (["x_err", "b"], "got x_err, b, with no column for b"),
    "twice": (["x_err", "x_err"], "got x_err, x_err"),
    "several": (["x_err", "dx", "y_err"], "several for one column: x_err, dx"),
    "one too many": (["x_err", "y_err", "x_y_corr"], "no column for x_y_corr"),
    "values and errors": (["x", "y", "x_err", "y_err"], "no column for x_err, y_err"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_that_belong_to_no_column_are_refused(case):
    names, message = REFUSED[case]
    errors = pd.DataFrame(np.ones((60, len(names))), columns=names)
    with pytest.raises(ValueError, match=message):
        XDGMM(1).fit(pd.DataFrame(W, columns=NAMES), noise=errors)


def test_without_names_the_order_holds():
    table, errors = pd.DataFrame(W, columns=NAMES), pd.DataFrame(SD, columns=["a", "b"])
    assert same(W, errors)
    assert same(table, SD)
    assert same(table, errors.to_numpy())
    assert same(pd.DataFrame(W), pd.DataFrame(SD))
    assert same(pd.DataFrame(W), pd.DataFrame(SD, columns=[2, 3]))  # numbers name nothing


def test_errors_and_covariances_of_all_rows_by_name():
    table = pd.DataFrame(W, columns=NAMES)
    plain = XDGMM(1).fit(W, noise=[0.1, 0.4])
    assert same(table, pd.Series({"y_err": 0.4, "x_err": 0.1}), plain)
    covariance = pd.DataFrame([[0.16, 0.0], [0.0, 0.01]], index=["y", "x"], columns=["y", "x"])
    assert same(table, covariance, plain)
    other = covariance.rename(index={"y": "z"}, columns={"y": "z"})
    with pytest.raises(ValueError, match="a covariance of x, y as noise; got one of z, x"):
        same(table, other)
    with pytest.raises(ValueError, match="got a, b"):
        same(table, pd.Series({"a": 0.1, "b": 0.4}))


WEIGHTS = pd.Series(np.ones(60), index=range(1, 61))
OTHER_ROWS = {
    "noise with the index of w.*reset_index": lambda table, errors: same(table, errors[::-1]),
    "noise with 60 rows, as w has; got 59": lambda table, errors: same(table, errors[:-1]),
    "noise with 60 rows, as w has; got 1": lambda table, _: same(table, polars(SD[:1], NAMED)),
    "sample_weight with the index of w": lambda table, errors: same(
        table, errors, sample_weight=WEIGHTS
    ),
}


@pytest.mark.parametrize("message", OTHER_ROWS)
def test_rows_must_be_the_same(message):
    table, errors = pd.DataFrame(W, columns=NAMES), pd.DataFrame(SD, columns=NAMED)
    with pytest.raises(ValueError, match=message):
        OTHER_ROWS[message](table, errors)


def test_asymmetric_errors_are_those_of_the_program():
    table = pd.DataFrame(np.where(np.arange(60)[:, None] == [3, 70], np.nan, W), columns=NAMES)
    below = pd.Series(-2 * SD[:, 0]).where(table["x"].notna())
    errors = pd.DataFrame({"y_err": SD[:, 1], "xerr2": below, "xerr1": SD[:, 0]})
    lower, upper = (np.where(table.isna(), 1.0, side) for side in (SD * [2.0, 1.0], SD))
    law = noise.split_normal(lower=lower, upper=upper)
    assert same(table, errors, XDGMM(1).fit(table, noise=law))
    errors.loc[5, "xerr2"] = 0.1
    with pytest.raises(ValueError, match=r"one sign in column 'xerr2'; got 0\.1 in row 5"):
        same(table, errors)


MASK = np.arange(120).reshape(60, 2) % 5 == 0
HIDDEN = np.where(MASK, 1e6, W)
WITH_NAN = np.where(MASK, np.nan, W)
MASKED = {
    "numpy": lambda: np.ma.masked_array(HIDDEN, MASK),
    "rows": lambda: list(np.ma.masked_array(HIDDEN, MASK)),
    "objects": lambda: np.ma.masked_array(HIDDEN.astype(object), MASK),
    "astropy": lambda: Masked(HIDDEN, mask=MASK),
    "quantity": lambda: Masked(HIDDEN * u.m, mask=MASK),
    "table": lambda: Table([MaskedColumn(HIDDEN[:, d], mask=MASK[:, d]) for d in range(2)]),
    "table of quantities": lambda: QTable([Masked(HIDDEN[:, d] * u.m, mask=MASK[:, d])
        for d in range(2)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKED)
def test_masked_cells_are_missing(kind):
    w, plain = MASKED[kind](), XDGMM(1).fit(WITH_NAN, noise=SD)
    assert same(w, np.ma.masked_array(np.where(MASK, -1.0, SD), MASK), plain)
    model = XDGMM(1).fit(w, noise=SD)
    assert np.allclose(model.posterior(w, SD).mean, plain.posterior(WITH_NAN, SD).mean)
    with pytest.raises(ValueError, match=r"finite values in v.*row 0, column 0"):
        model.score_samples(w)


def lengths(units):
    return QTable(SD * [100.0, 1.0], names=NAMED, units=units)


def test_units_of_errors_are_converted():
    table = QTable(W, names=NAMES, units=["m", "s"])
    assert same(table, lengths(["cm", "s"])["y_err", "x_err"])
    assert same(table, Table(lengths(["cm", "s"])))
    assert same(W * u.m, 100 * SD * u.cm)
    assert same(W * u.m, np.square(SD)[:, :, None] * np.eye(2) * 1e4 * u.cm**2)
    assert same(W * u.m, lengths(["cm", "m"]))
    magnitudes = QTable([u.Magnitude(W[:, d], u.mag(u.AB)) for d in range(2)], names=NAMES)
    assert same(magnitudes, QTable(SD, names=NAMED, units=["mag", "mag"]))


UNFIT = {
    "'x_err' in a unit like m; got s": lambda table: same(table, lengths(["s", "s"])),
    "in a unit like s; got cm": lambda table: same(table, SD * u.cm),
    r"in a unit like m \* m; got cm": lambda _: same(W * u.m, np.stack([np.eye(2)] * 60) * u.cm),
    "numbers in sample_weight; got .* kg": lambda _: same(W, SD, sample_weight=np.ones(60) * u.kg),
    "plain numbers in scale; got a quantity in m": lambda _: noise.laplace(SD * u.m),
}


@pytest.mark.parametrize("message", UNFIT)
def test_units_that_do_not_fit_are_refused(message):
    with pytest.raises((TypeError, ValueError), match=message):
        UNFIT[message](QTable(W, names=NAMES, units=["m", "s"]))


def test_a_unit_on_one_side_only_is_said():
    table = Table(W, names=NAMES, units=["m", None])
    with pytest.warns(UserWarning, match="x is in m and x_err has no unit: it is taken to be in m"):
        assert same(table, Table(SD, names=NAMED))
    with pytest.warns(UserWarning, match="y_err is in s and y has no unit"):
        assert same(pd.DataFrame(W, columns=NAMES), Table(SD, names=NAMED, units=[None, "s"]))
    with pytest.warns(UserWarning, match="noise is in cm and w has no unit"):
        assert same(W, SD * u.cm)
    assert same(table, SD)  # what can have no unit is in that of the columns


def test_units_of_the_fit_hold_for_every_question(tmp_path):
    table = QTable(W, names=NAMES, units=["m", "s"])
    XDGMM(1).fit(table, noise=SD).save(tmp_path / "model")
    model = XDGMM.load(tmp_path / "model")
    far = QTable(W, names=NAMES, units=["km", "s"])
    for ask in (
        lambda: model.score_observations(far, SD),
        lambda: model.score_samples(far),
        lambda: model.condition(far["x",], ["x"]),
    ):
        with pytest.raises(ValueError, match="column 'x' in m, as in the fit; got km"):
            ask()
    assert np.isfinite(model.score_samples(table)).all()
