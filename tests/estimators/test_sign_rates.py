"""Probabilities of ranges and of wrong signs, held against formulas, draws and known truths."""

import numpy as np
import pytest
from scipy.stats import norm

from deconflow import XDGMM, GaussianMixture, Observations
from deconflow.fits.mixture_fit import ExactPosterior
from deconflow.fits.posterior import WeightedPosterior

NAMES = ["x", "y"]
PRIOR = GaussianMixture(
    np.array([0.6, 0.4]),
    np.array([[0.0, 0.0], [1.5, -1.0]]),
    np.array([[[0.2, 0.1], [0.1, 0.3]], [[1.0, -0.3], [-0.3, 0.5]]]),
)


def simulated(n, seed=0):
    """Truths of the prior, measurements of them, and standard deviations that differ by row."""
    rng = np.random.default_rng(seed)
    v = PRIOR.sample(n, seed)
    sd = rng.uniform(0.2, 2.0, size=v.shape)
    return v, v + sd * rng.normal(size=v.shape), sd


def exact(w, sd):
    return ExactPosterior.of(PRIOR, Observations.from_arrays(w, sd), NAMES)


def weighted(samples):
    """A posterior of draws ``(N, S, D)``."""
    n, _, dim = samples.shape
    mean, covariance = samples.mean(1), np.broadcast_to(np.eye(dim), (n, dim, dim))
    return WeightedPosterior(NAMES[:dim], mean, covariance, np.full(n, 9.0), samples)


@pytest.fixture(scope="module")
def rows():
    v, w, sd = simulated(4000)
    return v, w, sd, exact(w, sd)


# -- probabilities of ranges --------------------------------------------------------------------


def test_closed_form_is_that_of_the_mixture_and_of_its_draws(rows):
    posterior = rows[-1][:50]
    lower, upper = np.array([-0.3, -np.inf]), np.array([0.8, 0.1])
    found = posterior.probability(lower, upper)
    mixture = posterior.mixture
    for d in range(2):
        sd = np.sqrt(mixture.covariances[..., d, d])
        ends = [norm.cdf((end - mixture.means[..., d]) / sd) for end in (lower[d], upper[d])]
        formula = (mixture.weights * (ends[1] - ends[0])).sum(1)
        np.testing.assert_allclose(found[:, d], formula, atol=1e-12)
    draws = posterior.sample(4000, 1)
    share = ((draws >= lower) & (draws <= upper)).mean(1)
    assert np.abs(found - share).max() < 0.04  # five errors of a share
    assert np.abs(found - posterior.probability(lower[::-1], upper[::-1])).max() > 0.3  # the twin


def test_small_probabilities_keep_their_digits():
    posterior = XDGMM(1).fit(simulated(500)[1], noise=0.5).posterior([[20.0, -20.0]], noise=0.5)
    mean, sd = posterior.mean[0], posterior.sd[0]
    wanted = norm.sf(np.abs(mean) / sd)
    assert (wanted < 1e-30).all()
    np.testing.assert_allclose(posterior.sign_error[0], wanted, rtol=1e-8)
    far = posterior.probability([mean[0] + 9 * sd[0], -np.inf], [mean[0] + 10 * sd[0], 0.0])
    np.testing.assert_allclose(far[0, 0], norm.sf(9) - norm.sf(10), rtol=1e-8)


def test_exact_values_are_inside_or_not():
    w = [[0.0, 1.0], [0.3, 0.0], [-0.1, np.nan], [0.1 + 0.2, 5.0]]
    posterior = exact(w, [[0.0, 0.5], [0.0, 0.0], [0.0, 0.0], [0.0, 0.5]])
    np.testing.assert_array_equal(posterior.probability(lower=0)[:, 0], [1, 1, 0, 1])
    np.testing.assert_array_equal(posterior.probability(0, 0.3)[:, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(posterior.sign_error[:, 0], [1, 0, 0, 0])
    assert posterior.sign_error[1, 1] == 1
    assert 0.1 < posterior.sign_error[2, 1] < 0.5  # not measured, so not exact
    whole = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.zeros((1, 1, 1)))
    assert whole.probability([0.0], [0.0]) == 1
    assert whole.probability([1e-9], [1.0]) == whole.probability([-1.0], [-1e-9]) == 0


def test_draws_count_by_their_shares():
    posterior = weighted(np.array([[[-1.0], [0.0], [0.0], [2.0]], [[1.0], [1.0], [3.0], [4.0]]]))
    np.testing.assert_array_equal(posterior.probability(0, 2), [[0.75], [0.5]])
    np.testing.assert_array_equal(posterior.probability(upper=0), [[0.75], [0.0]])
    np.testing.assert_array_equal(posterior.sign_error, [[0.75], [0.0]])  # zero is in both


BAD = {
    "text": (("a",), ValueError, r"numbers in lower|numbers as lower"),
    "NaN": ((np.nan,), ValueError, r"lower as a number, or as one for each of 2 columns; got nan"),
    "too many": (([1, 2, 3],), ValueError, r"lower as .* each of 2 columns; got \[1, 2, 3\]"),
    "a table": ((None, [[1, 2]]), ValueError, r"upper as .* got \[\[1, 2\]\]"),
    "turned": ((1, 0), ValueError, r"lower bounds of at most the upper ones; got 1 and 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_bounds(rows, case):
    arguments, error, message = BAD[case]
    with pytest.raises((error, TypeError), match=message):
        rows[-1].probability(*arguments)


# -- signs ----------------------------------------------------------------------------------------


def surplus(errors, wrong):
    """By how many standard errors there are more wrong signs than expected, in each column."""
    return (wrong - errors).sum(0) / np.sqrt((errors * (1 - errors)).sum(0))


def test_as_many_signs_are_wrong_as_they_say(rows):
    v, w, sd, posterior = rows
    wrong = (posterior.probability(lower=0) < 0.5) != (v < 0)
    errors = posterior.sign_error
    assert (errors <= 0.5).all()
    for some in (errors < 0.1, (errors > 0.1) & (errors < 0.3), errors > 0.3):
        chosen = np.where(some, errors, 0.0), wrong & some
        assert np.abs(surplus(*chosen)).max() < 3.5
    # the twin: a measurement by itself, without what all rows say, is too sure of its sign
    alone = norm.sf(np.abs(w) / sd)
    assert (surplus(alone, (w < 0) != (v < 0)) > 10).all()


def test_q_values_by_their_definition():
    shares = np.array([[0.1, 0.1, 0.4, 0.0, 0.3], [0.5, 0.2, 0.2, 0.2, 0.1]]).T
    draws = np.where(np.arange(10)[None, :, None] < (10 * shares[:, None]).round(), -1.0, 1.0)
    found = weighted(draws).sign_q_values
    for d, each in enumerate(shares.T):
        wanted = [each[each <= own].mean() for own in each]
        np.testing.assert_allclose(found[:, d], wanted)
    assert found[0, 0] == found[1, 0]


def test_q_values_are_the_share_of_wrong_signs_among_those_declared(rows):
    v, w, sd, posterior = rows
    wrong = (posterior.probability(lower=0) < 0.5) != (v < 0)
    errors, q = posterior.sign_error, posterior.sign_q_values
    for d, level in ((0, 0.05), (0, 0.15), (1, 0.05), (1, 0.15)):
        declared = q[:, d] <= level
        assert declared.sum() > 100
        share, spread = wrong[declared, d].mean(), np.sqrt(level / declared.sum())
        np.testing.assert_allclose(errors[declared, d].mean(), q[declared, d].max())
        assert abs(share - level) < 4 * spread + 0.01
        # the twin: sign errors of each measurement by itself promise too much
        alone = norm.sf(np.abs(w[:, d]) / sd[:, d])
        order = np.argsort(alone)
        count = (np.cumsum(alone[order]) <= level * np.arange(1, 4001)).sum()
        first = order[:count]
        assert ((w[first, d] < 0) != (v[first, d] < 0)).mean() > level + 4 * spread + 0.01
