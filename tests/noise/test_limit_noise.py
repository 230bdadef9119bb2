"""Limits as noise: their likelihood, the Gaussians that stand for it, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr
from scipy.stats import norm

from deconflow import Observations
from deconflow.noise import GaussianNoise, LimitedNoise, gaussian, laplace, limited
from deconflow.noise.limits import SHAPES

W = [[1.0, 2.0], [0.5, 3.0], [1.5, -1.0]]
FLAGS = [[-1, 0], [0, 0], [1, -1]]


def rows(w=W, noise=(0.3, 0.4), limits=FLAGS):
    return Observations.from_arrays(w, noise, limits=limits)


def density_of_parts(mixture, n):
    """The likelihood of residuals ``n``, ``(K, N, D)``, by the Gaussians of a mixture."""
    parts = mixture.take()
    means = np.zeros((1, 1, n.shape[-1])) if parts.means is None else parts.means
    p = norm(means, np.sqrt(parts.covariances)).pdf(n[:, :, None]).prod(-1)
    return (parts.weights * p).sum(-1)


def test_a_limit_has_the_probability_to_lie_beyond_it():
    data = rows()
    v = np.broadcast_to(np.linspace(-3, 5, 9)[:, None, None], (9, 3, 2))
    found = data.log_likelihood(v)
    x = v[:, 0, 0]
    first = log_ndtr((1.0 - x) / 0.3) + norm(x, 0.4).logpdf(2.0)
    third = log_ndtr((x - 1.5) / 0.3) + log_ndtr((-1.0 - x) / 0.4)
    np.testing.assert_allclose(found[:, 0], first, rtol=1e-10)
    np.testing.assert_allclose(found[:, 2], third, rtol=1e-10)


@pytest.mark.parametrize("limits", [count for count in SHAPES if count])
def test_gaussians_add_up_to_the_likelihood_of_a_limit(limits):
    """Within 3 % from three errors on the wrong side to the end of the reach, as is documented."""
    shape = SHAPES[limits]
    x = np.sinh(np.linspace(np.arcsinh(-3), np.arcsinh(shape.reach), 1000))
    found = (shape.weights * norm(shape.means, shape.sds).pdf(x[:, None])).sum(1)
    assert np.abs(np.log(found) - log_ndtr(x)).max() < 0.03
    far = np.linspace(-20, -3, 100)
    leaked = (shape.weights * norm(shape.means, shape.sds).pdf(far[:, None])).sum(1)
    assert np.abs(leaked - norm.cdf(far)).max() < 1e-4


@pytest.mark.parametrize("unit", [1.0, 8.0])
def test_mixtures_have_the_likelihood_in_any_unit(unit):
    data = rows()
    noise = data.noise.divide(np.full((2,), unit))
    n = np.random.default_rng(0).uniform(-0.8, 4, (50, 3, 2))
    exact = noise.log_prob(n / unit)
    found = np.log(density_of_parts(noise.as_mixture(), n / unit))
    volume = 2 * np.log(unit)
    near = exact - volume > np.log(5e-3)
    assert near.sum() > 30
    np.testing.assert_allclose(found[near], exact[near], atol=0.03)
    np.testing.assert_allclose(exact, data.noise.log_prob(n) + volume, rtol=1e-6)


def test_rows_without_limits_stay_one_gaussian():
    mixture = rows().noise.as_mixture()
    assert mixture.take(np.array([1])).n_parts == 1
    assert mixture.take(np.array([0])).n_parts == 16
    assert mixture.n_parts == mixture.take().n_parts == 256
    assert mixture.take(None, np.array([1])).n_parts == 16
    assert len(np.unique(mixture.patterns, axis=0)) == 3


def test_flags_of_zero_are_no_limits():
    assert isinstance(rows(limits=np.zeros((3, 2))).noise, GaussianNoise)


def test_exact_limits_are_steps():
    data = rows(noise=0.0, limits=[[-1, 1]] * 3)
    found = data.log_likelihood(np.broadcast_to([0.9, 3.5], (1, 3, 2)))
    np.testing.assert_array_equal(np.exp(found), [[1.0, 0.0, 1.0]])


def test_rows_missing_values_and_precision():
    w = [[1.0, np.nan], [0.5, 3.0], [1.5, -1.0]]
    data = rows(w, limits=[[-1, 0], [0, 0], [1, -1]])
    whole = data.log_likelihood(np.zeros((1, 3, 2)))[0]
    assert whole[0] == pytest.approx(log_ndtr(1.0 / 0.3))
    single = data.to(dtype=torch.float32)[[2, 0]].log_likelihood(torch.zeros(1, 2, 2))[0]
    np.testing.assert_allclose(single, whole[[2, 0]], rtol=1e-5, atol=1e-5)
    assert data.features().shape[1] == rows(w, limits=None).features().shape[1] + 2


def test_completed_measurements_lie_beyond_their_limits():
    """Those of N(0, 1) beyond a limit have its mean; others stay. 5 errors of 4,000 draws."""
    n = 4000
    w = np.tile([-0.5, 0.7], (n, 1))
    flags = np.tile([-1, 1], (n, 1))
    flags[:2] = 0
    noise = Observations.from_arrays(w, [1.0, 1.0], limits=flags).noise
    assert isinstance(noise, LimitedNoise)
    drawn = noise.complete(w, np.zeros_like(w))
    assert (drawn[2:, 0] < -0.5).all()
    assert (drawn[2:, 1] > 0.7).all()
    np.testing.assert_array_equal(drawn[:2], w[:2])
    expected = [-norm.pdf(0.5) / norm.cdf(-0.5), norm.pdf(0.7) / norm.cdf(-0.7)]
    np.testing.assert_allclose(drawn[2:].mean(0), expected, atol=5 * 0.5 / np.sqrt(n))


def test_one_far_value_does_not_blur_the_edges():
    w = np.random.default_rng(0).normal(size=(100, 1))
    flags = np.zeros((100, 1))
    flags[:10] = -1
    usual = rows(w, 0.01, flags).noise.reach[0, 0]
    w[-1] = 1e6
    assert rows(w, 0.01, flags).noise.reach[0, 0] < 1.5 * usual


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"limits": [[2, 0], [0, 0], [0, 0]]},
            r"-1 \(upper limit\), 0 .* got 2 at row 0, column 0",
        ),
        ({"limits": [[-1], [0], [0]]}, r"limits of shape \(3, 2\), as w; got \(3, 1\)"),
        ({"limits": [[0, 0], [0, np.nan], [0, 0]]}, "got nan at row 1, column 1"),
        ({"w": [[np.nan, 1], [1, 1], [1, 1]]}, "a number in w where there is a limit; got NaN"),
        ({"noise": laplace([1.0, 1.0])}, "Gaussian noise of independent values .* got TableNoise"),
        ({"noise": gaussian(covariance=[[1, 0.5], [0.5, 1]])}, "got correlated noise"),
        ({"noise": limited(1.0, FLAGS)}, "Gaussian noise of independent values .* got Limited"),
    ],
)
def test_refused(changes, words):
    with pytest.raises((ValueError, TypeError), match=words):
        rows(**changes)


def test_more_limits_than_mixtures_can_have():
    noise = Observations.from_arrays(np.ones((2, 7)), 1.0, limits=-np.ones((2, 7))).noise
    with pytest.raises(ValueError, match="at most 6 limits in a row; got 7"):
        noise.as_mixture().take()
