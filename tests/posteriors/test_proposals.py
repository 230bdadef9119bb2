"""The proposals of the chains: densities that belong to their draws."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from deconflow import GaussianMixture, Observations
from deconflow.noise import student_t
from deconflow.posteriors import (
    STRETCH,
    MixtureNetwork,
    RowMixtures,
    RowsWithProposals,
    WeightedDraws,
    propose,
)
from deconflow.xd import posterior

MIXTURE = GaussianMixture(
    np.array([0.3, 0.5, 0.2]),
    np.array([[-2.0, 0.0], [1.0, 1.0], [0.0, -1.0]]),
    np.array([np.diag([0.3, 1.0]), [[1.0, 0.5], [0.5, 0.6]], 0.2 * np.eye(2)]),
)


def rows_of(kind, n=40):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(n, 2))
    if kind == "missing":
        w[::3, 0] = np.nan
    noise = student_t([0.5, 0.8], 4.0) if kind == "student-t" else [0.5, 0.8]
    R = rng.normal(size=(n, 2, 2)) if kind == "projection" else None
    return Observations.from_arrays(w, noise, projection=R).to()


def test_densities_are_those_of_scipy():
    exact = posterior(MIXTURE, rows_of("plain", 5))
    laid_out = RowMixtures.of(exact)
    v = torch.randn(7, 5, 2, dtype=torch.float64)
    narrow, wide = laid_out.stretched_log_prob(v, 1.0, STRETCH)
    for i in range(5):
        parts = list(zip(exact.weights[i], exact.means[i], exact.covariances[i], strict=True))
        for found, factor in ((narrow, 1.0), (wide, STRETCH**2)):
            wanted = sum(p * multivariate_normal(m, factor * V).pdf(v[:, i]) for p, m, V in parts)
            np.testing.assert_allclose(found[:, i].exp(), wanted, rtol=1e-6)
    torch.testing.assert_close(laid_out.log_prob(v), narrow, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["plain", "missing", "projection", "student-t"])
def test_draws_have_the_density_that_is_said(kind):
    """The mean over q of f / q is one for any density f: four errors of 40 rows x 2,000 draws."""
    data = rows_of(kind)
    rows = RowsWithProposals.of(data, MIXTURE, torch.float64)
    v = rows.sample(2000)
    log_q = rows.log_prob(v, data.log_likelihood(v))
    narrow = rows.mixtures.log_prob(v)
    ratio = (narrow - log_q).exp()
    error = ratio.std() / ratio.numel() ** 0.5
    assert abs(float(ratio.mean()) - 1) < 4 * float(error)
    assert float(ratio.amax()) <= 1 / 0.8 + 1e-9


def test_a_network_proposes_beside_the_mixture():
    data = rows_of("plain")
    torch.manual_seed(0)
    network = MixtureNetwork(2, data.features().shape[1], 3, hidden=8, blocks=1).double()
    alone = propose(data, MIXTURE, torch.float64)
    v = alone.sample(4)
    with torch.no_grad():
        both = torch.logaddexp(alone.log_prob(v), network.log_prob(data, v)) - np.log(2)
    beside = propose(data, MIXTURE, torch.float64, network)
    torch.testing.assert_close(beside.log_prob(v), both)


# -- weighted draws: averages in the precision of the weights -------------------------------------


def test_moments_and_sizes_are_those_of_numpy():
    torch.manual_seed(0)
    v, log_weights = torch.randn(50, 4, 2, dtype=torch.float64), torch.randn(50, 4).double()
    draws = WeightedDraws(v, log_weights)
    for row in range(4):
        p = np.exp(log_weights[:, row].numpy())
        points = v[:, row].numpy()
        np.testing.assert_allclose(draws.mean()[row], np.average(points, axis=0, weights=p))
        np.testing.assert_allclose(
            draws.covariance()[row], np.cov(points.T, aweights=p, ddof=0), rtol=1e-10
        )
        # The logarithm of a count is no float32: that would be off by 6e-8.
        assert float(draws.log_marginal()[row]) == pytest.approx(np.log(p.mean()), abs=1e-12)
        size = p.sum() ** 2 / np.square(p).sum()
        assert float(draws.effective_sample_size()[row]) == pytest.approx(size)
