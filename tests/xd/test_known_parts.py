"""Shares of atoms and of a background beside a mixture."""

import numpy as np
import pytest
from scipy import optimize, special, stats

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


def test_memberships_are_probabilities():
    known = np.array([[-1.0, -1e9, -np.inf], [-2.0, -3.0, -np.inf]])
    q, log_p = memberships(np.array([0.2, 0.3]), known, np.array([-1.5, -2.0, -700.0]))
    np.testing.assert_allclose(q.sum(0), 1)
    expected = np.log(0.2 * np.exp(-1) + 0.3 * np.exp(-2) + 0.5 * np.exp(-1.5))
    assert log_p[0] == pytest.approx(expected)
    assert q[-1, 2] == 1


def of_an_atom_and_a_gaussian(w, share, mean, sd):
    """Log-likelihood of rows with unit noise, in closed form."""
    p = share * stats.norm(0, 1).pdf(w) + (1 - share) * stats.norm(mean, np.hypot(1, sd)).pdf(w)
    return np.log(p).sum()


def test_the_share_is_that_of_the_largest_likelihood():
    """Shares and spreads make up for each other, so that EM in turns stops far from the maximum."""
    rng = np.random.default_rng(0)
    w = np.where(rng.random(3000) < 0.8, 0.0, rng.normal(0, 1.5, size=3000))
    w = w + rng.normal(size=3000)

    def minus_log_p(x):
        return -of_an_atom_and_a_gaussian(w, special.expit(x[0]), x[1], np.exp(x[2]))

    best = optimize.minimize(minus_log_p, [0.0, 0.0, 0.0], options={"gtol": 1e-6})
    model = XDGMM(1, atoms=[0.0]).fit(w[:, None], noise=1.0)
    share, mean = model.atom_weights_[0], model.means_[0, 0]
    assert share == pytest.approx(special.expit(best.x[0]), abs=1e-3)
    sd = np.sqrt(model.covariances_[0, 0, 0])
    assert of_an_atom_and_a_gaussian(w, share, mean, sd) == pytest.approx(-best.fun, abs=1e-3)


@pytest.mark.parametrize("truth", [[0.3, 0.2], [0.6, 0.0], [0.05, 0.9]])
def test_shares_of_several_parts_are_the_most_likely(truth):
    rng = np.random.default_rng(1)
    laws = [stats.norm(0, 1), stats.norm(1, 1), stats.norm(0.5, 2)]
    which = rng.choice(3, p=[*truth, 1 - sum(truth)], size=1500)
    w = np.choose(which, [law.rvs(1500, random_state=rng) for law in laws])
    *known, rest = np.stack([law.logpdf(w) for law in laws])
    found = shares_of_parts(np.array([0.25, 0.25]), np.stack(known), rest, np.ones(1500))

    def minus_log_p(x):
        return -memberships(x, np.stack(known), rest)[1].sum()

    best = optimize.minimize(
        minus_log_p, [0.3, 0.3], method="SLSQP", bounds=[(0, 1)] * 2, options={"ftol": 1e-13},
        constraints={"type": "ineq", "fun": lambda x: 1 - x.sum()},
    )  # fmt: skip
    assert minus_log_p(found) < best.fun + 1e-5
    np.testing.assert_allclose(found, best.x, atol=1e-3)
