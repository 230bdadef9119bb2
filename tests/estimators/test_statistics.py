"""The truth in a few numbers: against closed forms, bands, draws, and what was measured."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from uncertainties import unumpy

from deconflow import XDGMM, DeconvolvingKDE, GaussianMixture, LogSplineDeconvolver
from deconflow.answers.statistics import SHARES, Figures
from deconflow.estimators import components_of
from deconflow.fits.bands import Replicates
from deconflow.fits.mixture_fit import MixtureFit

NAMES = ["x", "y"]
N = 600
RNG = np.random.default_rng(0)
V = RNG.multivariate_normal([1.0, -2.0], [[1.0, 0.6], [0.6, 0.8]], size=N)
SD = np.array([0.8, 0.5])
W = V + SD * RNG.normal(size=V.shape)
CLUMPS = RNG.normal(size=(N, 1)) * 0.5 + 4 * (np.arange(N)[:, None] % 2)
TWO = CLUMPS + 0.3 * RNG.normal(size=(N, 1))


@pytest.fixture(scope="module")
def plain():
    return XDGMM("auto", random_state=0).fit(W, noise=SD, names=NAMES)


@pytest.fixture(scope="module")
def atoms():
    """A third of the truths at zero."""
    w = np.where(np.arange(N)[:, None] % 3, TWO, TWO - CLUMPS)
    return XDGMM("auto", atoms=[0.0], random_state=0).fit(w, noise=[0.3]), w


def test_figures_of_a_mixture_are_closed_forms(plain):
    truth, mixture = plain.statistics().truth, plain.mixture_
    np.testing.assert_allclose(truth.mean, mixture.mean, rtol=1e-12)
    np.testing.assert_allclose(truth.sd, mixture.sd, rtol=1e-12)
    correlation = mixture.covariance[0, 1] / mixture.sd.prod()
    np.testing.assert_allclose(truth.correlation, [[1, correlation], [correlation, 1]], rtol=1e-12)
    quantiles = np.stack([mixture.quantile(share) for share in SHARES])
    np.testing.assert_allclose(truth.quantiles, quantiles, atol=2e-3)  # trapezoids
    assert 0.6 < correlation < 0.8  # the truth's is .67


@pytest.mark.parametrize(
    "w",
    [pd.DataFrame(W, columns=NAMES), unumpy.uarray(W, np.broadcast_to(SD, W.shape))],
    ids=["a table", "values with errors"],
)
def test_measured_figures_have_the_noise_in_them(plain, w):
    measured = plain.statistics(w).measured
    np.testing.assert_allclose(measured.sd, W.std(0), rtol=1e-12)
    np.testing.assert_allclose(measured.quantiles, np.quantile(W, SHARES, axis=0), rtol=1e-12)
    assert (measured.sd > 1.1 * plain.statistics().truth.sd).all()
    assert measured.correlation[0, 1] < plain.statistics().truth.correlation[0, 1] - 0.1


def test_errors_are_those_of_the_mean_of_so_many_rows(plain):
    """Five folds know an error to a factor of two (4 degrees of freedom)."""
    found = plain.statistics()
    assert (found.errors.mean / (W.std(0) / np.sqrt(N)) > 0.4).all()
    assert (found.errors.mean / (W.std(0) / np.sqrt(N)) < 2).all()
    assert found.how == "standard errors from 5 fits without a fold each"


@pytest.mark.parametrize("name", ["kde", "spline", "bounded"])
def test_figures_without_closed_forms_are_those_of_draws(name):
    model = {
        "kde": DeconvolvingKDE(), "spline": LogSplineDeconvolver(),
        "bounded": XDGMM(2, bounds=[(-1.0, None)], random_state=0),
    }[name].fit(TWO, noise=[0.3])  # fmt: skip
    found, drawn = model.statistics().truth, model.sample(50_000, random_state=1)
    spread = drawn.std()
    assert abs(found.mean - drawn.mean()) < 5 * spread * np.sqrt(1 / 20_000 + 1 / 50_000)
    np.testing.assert_allclose(found.sd, spread, rtol=0.02)
    apart = np.abs(found.quantiles[[0, 1, 3, 4], 0] - np.quantile(drawn, SHARES)[[0, 1, 3, 4]])
    assert (apart < 0.05 * spread).all()  # the median lies between the clumps: hardly known
    assert abs(found.mean - TWO[::2].mean()) > spread / 2  # a twin of one clump


def test_atoms_are_part_of_the_truth(atoms):
    model, w = atoms
    found, drawn = model.statistics(w), model.sample(50_000, random_state=1)
    assert abs(found.truth.mean - drawn.mean()) < 0.05
    np.testing.assert_allclose(found.truth.sd, drawn.std(), rtol=0.02)
    quantiles = np.quantile(drawn, SHARES)
    assert found.truth.quantiles[1, 0] == quantiles[1] == 0.0  # at the atom itself
    assert np.abs(found.truth.quantiles[:, 0] - quantiles)[[0, 3, 4]].max() < 0.1
    band = model.density_.band(quantiles=SHARES)
    np.testing.assert_allclose(band.value, found.truth.quantiles[:, 0], rtol=1e-12)
    assert "the shares at atoms are taken as known" in found.how
    rest = model.density_.inner.band(quantiles=SHARES)  # the twin
    assert abs(rest.value - quantiles).max() > 0.3


def test_missing_values_and_limits_are_left_out(plain):
    w = W.copy()
    w[:100, 0], w[100:110, 1] = np.nan, 1e6
    limits = np.zeros(W.shape)
    limits[100:110, 1] = -1
    measured = plain.statistics(w, limits=limits).measured
    assert measured.mean[0] == pytest.approx(W[100:, 0].mean())
    assert measured.mean[1] == pytest.approx(np.delete(W[:, 1], np.s_[100:110]).mean())
    pairs = np.corrcoef(W[110:].T)[0, 1]
    assert measured.correlation[0, 1] == pytest.approx(pairs)
    assert plain.statistics(w).measured.mean[1] > 1e4  # the twin


def test_words(plain):
    said = str(plain.statistics(W)).splitlines()
    assert said[0].split() == ["column", "figure", "deconvolved", "measured"]
    assert re.match(r"x +mean +\S+ \+- ", said[1])
    assert len(said) == 2 * 7 + 1 + 2
    assert said[-1] == "(standard errors from 5 fits without a fold each)"


def test_columns_that_do_not_vary_or_are_empty():
    found = Figures.of_rows(np.array([[1.0, np.nan, 3.0], [1.0, np.nan, 4.0]]))
    np.testing.assert_array_equal(found.sd, [0.0, np.nan, 0.5])
    assert np.isnan(found.correlation[0, 2])
    exact = XDGMM(1).fit(np.tile([[1.0, 2.0]], (20, 1)) + [[0.0, 1.0]] * 20, noise=[0.1, 0.1])
    assert all(len(row) == 4 for row in exact.statistics(np.ones((3, 2))).in_rows())


REFUSED = {
    "width": (lambda m: m.statistics(W[:, :1]), "w with 2 columns, as in the fit; got 1"),
    "order": (lambda m: m.statistics(pd.DataFrame(W, columns=["y", "x"])), "in this order"),
    "text": (lambda m: m.statistics([["a", "b"]]), "numbers in w"),
    "inf": (lambda m: m.statistics([[np.inf, 1.0]]), "finite values in w"),
    "flags": (lambda m: m.statistics(W, limits=np.full(W.shape, 7)), "limits"),
    "shape of flags": (lambda m: m.statistics(W, limits=[[0, 0]]), "limits"),
    "no rows": (lambda m: m.statistics(limits=W), "Expected w with limits; got none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(plain, name):
    ask, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        ask(plain)


# -- components -----------------------------------------------------------------------------------


def test_components_of_fits_are_matched():
    """Five fits with nearly the same two components, of which every second has them turned."""
    means = np.array([[0.0], [4.0]]) + 0.05 * np.random.default_rng(0).normal(size=(5, 2, 1))
    weights, covariances = np.array([0.4, 0.6]), np.full((2, 1, 1), 0.25)
    fits = [
        GaussianMixture(weights[::turn], each[::turn], covariances)
        for turn, each in zip([1, -1, 1, -1, 1], means, strict=True)
    ]
    density = MixtureFit(fits, ["v0"])
    density.replicates = Replicates(density.averaged(), "folds")
    found = components_of(SimpleNamespace(density_=density))
    light, heavy = means.mean(0)[:, 0]
    np.testing.assert_allclose(found.values, [[0.6, heavy, 0.5], [0.4, light, 0.5]])
    assert (found.errors[:, 1] < 0.2).all()  # unmatched, it would be about 4
    assert found.heads == ["component", "weight", "mean of v0", "spread of v0"]
    assert [row[0] for row in found.in_rows()] == ["1", "2"]
    assert found.n_fits == 5


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (XDGMM(7, random_state=0, max_iter=5, tol=0), "at most 6, .*; got 7"),
        (DeconvolvingKDE(), "got another density"),
        (XDGMM(1, bounds=[(-9.0, None)]), "folded at bounds"),
    ],
)
def test_components_that_are_not_shown(model, words):
    with pytest.raises(ValueError, match=words):
        components_of(model.fit(TWO, noise=[0.3]))


def test_measured_figures_count_rows_by_their_weights(plain):
    """A row of weight 2 counts as two, one of weight 0 not at all, whatever it lacks."""
    weights, w = np.arange(len(W)) % 3, W.copy()
    w[::5, 0] = np.nan
    found = plain.statistics(w, sample_weight=weights).measured
    again = plain.statistics(np.repeat(w, weights, axis=0)).measured
    for name in ("mean", "sd", "correlation"):
        np.testing.assert_allclose(getattr(found, name), getattr(again, name), rtol=1e-12)
    np.testing.assert_allclose(found.quantiles, again.quantiles, atol=0.05)
    assert abs(found.mean - plain.statistics(w).measured.mean).max() > 1e-3
