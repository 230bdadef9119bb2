"""Shares of atoms and of a background beside a mixture."""

import numpy as np
import pytest
from scipy import stats

from deconflow import XDGMM, Observations
from deconflow.xd import fit_with_known_parts, memberships, shares_of_parts

NOISE = 0.5


def with_an_atom(n=1500, share=0.3, seed=0):
    """Effects: some exactly zero, the others normal about one."""
    rng = np.random.default_rng(seed)
    v = np.where(rng.random(n) < share, 0.0, rng.normal(1.0, 1.0, size=n))
    return v, (v + NOISE * rng.normal(size=n))[:, None]


def test_the_share_of_an_atom():
    """That of 1500 rows has an error of about 0.02, twice that with a density to learn beside."""
    v, w = with_an_atom()
    known = stats.norm(0, NOISE).logpdf(w[:, 0])[None]
    fit = fit_with_known_parts(Observations.from_arrays(w, NOISE), known, np.random.RandomState(0))
    assert fit.shares[0] == pytest.approx((v == 0).mean(), abs=0.08)
    assert fit.mixture.n_components == 1
    assert fit.mixture.mean[0] == pytest.approx(1, abs=0.15)


def test_a_plain_mixture_of_many_components_does_not_find_it():
    """The twin: no component is exactly an atom, and what is near zero is far from its share."""
    _, w = with_an_atom()
    plain = XDGMM(8, random_state=0, tol=1e-4).fit(w, noise=NOISE)
    narrow = np.sqrt(plain.covariances_[:, 0, 0]) < 0.05
    at_zero = narrow & (np.abs(plain.means_[:, 0]) < 0.1)
    assert abs(plain.weights_[at_zero].sum() - 0.3) > 0.08


def test_without_rows_at_the_atom_its_share_is_small():
    rng = np.random.default_rng(3)
    w = (rng.normal(2.0, 1.0, size=700) + NOISE * rng.normal(size=700))[:, None]
    known = stats.norm(0, NOISE).logpdf(w[:, 0])[None]
    fit = fit_with_known_parts(Observations.from_arrays(w, NOISE), known, np.random.RandomState(0))
    assert fit.shares[0] < 0.03


def test_the_share_of_a_background():
    rng = np.random.default_rng(1)
    n = 1500
    background = rng.random(n) < 0.2
    w = rng.normal(0, 1, size=(n, 2)) + 0.3 * rng.normal(size=(n, 2))
    w[background] = rng.uniform(-10, 10, size=(background.sum(), 2))
    known = np.full((1, n), -np.log(400.0))
    data = Observations.from_arrays(w, 0.3)
    fit = fit_with_known_parts(data, known, np.random.RandomState(0))
    assert fit.shares[0] == pytest.approx(background.mean(), abs=0.03)
    assert np.sqrt(fit.mixture.covariance[0, 0]) == pytest.approx(1, abs=0.1)
    plain = XDGMM(1, random_state=0).fit(w, noise=0.3)  # the twin
    assert np.sqrt(plain.covariances_[0, 0, 0]) > 2


def test_weights_are_rows():
    """A row of weight two counts as two rows."""
    _, w = with_an_atom(400)
    weights = np.random.default_rng(0).integers(1, 3, size=400).astype(float)
    repeated = np.repeat(w, weights.astype(int), axis=0)
    rest = stats.norm(1, np.hypot(1, NOISE)).logpdf
    atom = stats.norm(0, NOISE).logpdf
    start = np.array([0.5])
    one = shares_of_parts(start, atom(w.T), rest(w[:, 0]), weights)
    two = shares_of_parts(start, atom(repeated.T), rest(repeated[:, 0]), np.ones(len(repeated)))
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_memberships_are_probabilities():
    known = np.array([[-1.0, -1e9, -np.inf], [-2.0, -3.0, -np.inf]])
    q, log_p = memberships(np.array([0.2, 0.3]), known, np.array([-1.5, -2.0, -700.0]))
    np.testing.assert_allclose(q.sum(0), 1)
    expected = np.log(0.2 * np.exp(-1) + 0.3 * np.exp(-2) + 0.5 * np.exp(-1.5))
    assert log_p[0] == pytest.approx(expected)
    assert q[-1, 2] == 1
