"""Defects D1 to D11 that are mended: facts about rows are not lost between calls."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from deconflow import XDGMM, open_rows, self_test

SD = 0.4


def refused_or(call):
    """Return what a call gives, or None where it says that it cannot."""
    try:
        return call()
    except ValueError as error:
        assert str(error).startswith("Expected")  # noqa: PT017
        return None


def criterion(model, log_p, parameters):
    """Bayesian information criterion by its definition."""
    return parameters * np.log(len(log_p)) - 2 * log_p.sum()


# -- D1: limits ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited():
    """Most rows are limits; the model was fitted with them."""
    rng = np.random.default_rng(0)
    w = 2.0 + 1.5 * rng.normal(size=(300, 1)) + SD * rng.normal(size=(300, 1))
    flags = np.where(w < 2.8, -1, 0)
    w = np.maximum(w, 2.8)
    return XDGMM(1).fit(w, noise=[SD], limits=flags), w, flags


@pytest.mark.parametrize("question", ["bic", "aic", "predict", "predict_proba"])
def test_limits_are_not_taken_for_values(limited, question):
    model, w, _ = limited
    with pytest.raises(ValueError, match="limits"):
        getattr(model, question)(w, [SD])


def test_a_self_test_does_not_take_limits_for_values(limited):
    model, w, _ = limited
    with pytest.raises(ValueError, match="limits"):
        self_test(model, w, [SD], n_tables=1)


def test_bic_with_limits_is_that_of_their_likelihood(limited):
    model, w, flags = limited
    log_p = model.score_observations(w, [SD], limits=flags)
    assert model.bic(w, [SD], limits=flags) == pytest.approx(criterion(model, log_p, 2))


# -- D2: bounds ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bounded():
    rng = np.random.default_rng(0)
    w = rng.exponential(size=(400, 1)) + SD * rng.normal(size=(400, 1))
    return XDGMM(2, bounds=[(0, None)], random_state=0).fit(w, noise=[SD])


def test_mirror_images_are_no_components(bounded):
    assert bounded.n_components_ == 2
    assert list(bounded.component_counts_) == [2]
    assert "2 components" in bounded.describe()
    assert not hasattr(bounded, "means_")


def test_no_mass_of_the_mixture_is_out_of_bounds(bounded):
    mixture = refused_or(lambda: bounded.mixture_)
    if mixture is not None:
        mass = quad(lambda v: np.exp(mixture.log_prob(np.array([[v]])))[0], 0, 30, limit=200)[0]
        assert mass == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("atoms", [None, [0.0]], ids=["bounds", "bounds and atoms"])
def test_a_convolution_knows_bounds_and_atoms(atoms):
    rng = np.random.default_rng(0)
    v = np.where(rng.uniform(size=(400, 1)) < 0.3, 0.0, rng.exponential(size=(400, 1)))
    w = v + SD * rng.normal(size=v.shape)
    model = XDGMM(2, bounds=[(0, None)], atoms=atoms, random_state=0).fit(w, noise=[SD])
    convolved = refused_or(lambda: model.mixture_.convolve([SD]))
    if convolved is not None:
        points = np.array([[-0.3], [0.0], [0.5], [2.0]])
        right = model.score_observations(points, [SD])
        np.testing.assert_allclose(convolved.log_prob(points), right, atol=1e-6)


# -- D5: what stays of the last fit -----------------------------------------------------------


@pytest.fixture
def on_disk(tmp_path):
    """Rows of a table with names."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=200) for name in ("x", "y")}
    columns |= {f"{name}_err": np.full(200, SD) for name in ("x", "y")}
    pd.DataFrame(columns).to_parquet(tmp_path / "rows.parquet")
    return open_rows(tmp_path / "rows.parquet", ["x", "y"])


def test_names_of_a_stream_do_not_stay(on_disk):
    w = np.random.default_rng(0).normal(size=(50, 2))
    fresh = XDGMM(1).fit(w, noise=[SD, SD])
    model = XDGMM(1).fit(on_disk).fit(w, noise=[SD, SD])
    assert model.density_.names == fresh.density_.names


# -- D6, D10: projections ------------------------------------------------------------------------


def test_a_square_projection_does_not_name_the_truth():
    """A swap of two columns: the first true one is what the second measures."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"flux": 0.5 * rng.normal(size=300), "size": 3 * rng.normal(size=300)})
    swap = np.tile([[0.0, 1.0], [1.0, 0.0]], (300, 1, 1))
    model = XDGMM(1).fit(table, noise=[0.1, 0.1], projection=swap)
    assert not {"flux", "size"} & set(model.density_.names)
    found = refused_or(lambda: model.statistics(table))
    assert found is None or found.measured is None


def test_a_picture_of_rows_with_a_projection():
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    projection = rng.normal(size=(100, 1, 2))
    w = (projection @ rng.normal(size=(100, 2, 1)))[..., 0] + SD * rng.normal(size=(100, 1))
    model = XDGMM(1).fit(w, noise=[SD], projection=projection)
    model.plot("diagnostics", w, noise=[SD], projection=projection)


# -- D7: weights and selection in criteria --------------------------------------------------------


def test_bic_counts_rows_by_their_weights():
    rng = np.random.default_rng(0)
    w, weights = rng.normal(size=(200, 1)), np.repeat([1.0, 0.0], 100)
    model = XDGMM(1).fit(w, noise=[SD], sample_weight=weights)
    found = model.bic(w, [SD], sample_weight=weights)
    assert found == pytest.approx(model.bic(w[:100], [SD]))


def test_bic_knows_the_selection():
    """The likelihood of a row that was seen is its density over the share that is seen."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(600, 1))
    w = w[w[:, 0] > 0]
    model = XDGMM(1, random_state=0).fit(w, noise=[SD], selection="w0 > 0")
    found = refused_or(lambda: model.bic(w, [SD]))
    log_p = model.score_observations(w, [SD]) - np.log(model.seen_share_)
    assert found is None or found == pytest.approx(criterion(model, log_p, 2), rel=0.1)


# -- D11: statistics of limits --------------------------------------------------------------------


def test_statistics_do_not_take_limits_for_values(limited):
    model, w, _ = limited
    with pytest.raises(ValueError, match="limits"):
        model.statistics(w)
