import numpy as np
import pytest
from cases import start
from scipy.stats import multivariate_normal

from deconflow.mixtures import GaussianMixture, mix


@pytest.fixture
def mixture():
    return start(np.random.default_rng(0))


def test_density_is_scipys(mixture):
    v = np.random.default_rng(1).normal(size=(20, 3))
    p = sum(
        a * multivariate_normal(m, V).pdf(v)
        for a, m, V in zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    )
    np.testing.assert_allclose(mixture.log_prob(v), np.log(p), rtol=1e-10)


def test_a_marginal_integrates_the_rest_out(mixture):
    x = np.linspace(-30, 30, 20_001)
    grid = np.column_stack([np.full_like(x, 0.3), x, np.full_like(x, -1.0)])
    total = np.exp(mixture.log_prob(grid)).sum() * (x[1] - x[0])
    marginal = mixture.marginal([2, 0]).log_prob(np.array([[-1.0, 0.3]]))
    assert np.log(total) == pytest.approx(marginal[0], rel=1e-8)


def test_wider_components_widen_the_whole(mixture):
    S = np.diag([0.1, 0.2, 0.3])
    wider = GaussianMixture(mixture.weights, mixture.means, mixture.covariances + S)
    np.testing.assert_allclose(mixture.mean, wider.mean)
    np.testing.assert_allclose(mixture.covariance + S, wider.covariance)


def test_an_average_is_the_mean_of_densities(mixture):
    other = start(np.random.default_rng(5))
    v = np.random.default_rng(1).normal(size=(20, 3))
    mean = 0.5 * (np.exp(mixture.log_prob(v)) + np.exp(other.log_prob(v)))
    np.testing.assert_allclose(mix([mixture, other]).log_prob(v), np.log(mean))


def test_entropy_of_one_gaussian():
    normal = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    assert normal.entropy() == pytest.approx(np.log(2 * np.pi * np.e), abs=0.03)  # 4 s.e.
