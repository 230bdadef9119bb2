import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian
from test_posteriors import GAUSSIAN, N, observations, shaken

from deconflow.densities import MixtureDensity
from deconflow.mixtures import GaussianMixture
from deconflow.objectives import ELBO
from deconflow.posteriors import MixtureExact
from deconflow.xd import posterior as xd_posterior


def mixture(dim):
    return shaken(MixtureDensity.spread(dim, 4), 0.4)


def dense_log_marginal(density, data, row):
    """Log p(w) of one row from the mixture's dense convolution, observed values only."""
    M = data.dim
    R = torch.eye(M, dtype=torch.float64) if data.projection is None else data.projection[row]
    seen = torch.ones(M, dtype=torch.bool) if data.observed is None else data.observed[row]
    S = data.noise.covariance()[0 if data.noise.shared else row][seen][:, seen]
    parts = density.distribution().component_distribution
    spread = R[seen] @ parts.covariance_matrix @ R[seen].mT + S
    blurred = torch.distributions.MultivariateNormal(parts.mean @ R[seen].mT, spread)
    log_parts = blurred.log_prob(data.w[row][seen])
    return torch.logsumexp(log_parts + torch.log_softmax(density.log_weights, 0), 0)


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_the_elbo_of_the_exact_posterior_is_the_likelihood(kind, rng):
    data = observations(kind, rng)
    density = mixture(data.latent_dim)
    with torch.no_grad():
        found = ELBO(density, MixtureExact(density), 3)(data)
        expected = torch.stack([dense_log_marginal(density, data, row) for row in range(N)])
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.allclose(MixtureExact(density).log_marginal(data), expected, atol=1e-8)
        inexact = ELBO(density, LinearGaussian(), 3)(data)  # the twin: another posterior is seen
        assert not torch.allclose(inexact, expected, atol=1e-2)


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_draws_have_the_moments_of_the_posterior(kind, rng):
    data = observations(kind, rng)
    density = mixture(data.latent_dim)
    parts = density.distribution()
    plain = GaussianMixture(
        parts.mixture_distribution.probs.detach().numpy(),
        density.means.detach().numpy(),
        parts.component_distribution.covariance_matrix.detach().numpy(),
    )
    expected = xd_posterior(plain, data)
    v, _ = MixtureExact(density).sample(data, 20_000)
    assert not v.requires_grad
    scores = (v.mean(0).numpy() - expected.mean) / expected.sd * 20_000**0.5
    assert (np.abs(scores) < 4.5).all()  # at most 24 numbers
    np.testing.assert_allclose(v.std(0), expected.sd, rtol=0.05)
    other, _ = LinearGaussian().sample(data, 20_000)  # the twin
    scores = (other.mean(0).numpy() - expected.mean) / expected.sd * 20_000**0.5
    assert (np.abs(scores) > 4.5).any()


def test_gradients_at_exact_draws_are_those_of_the_likelihood(rng):
    data = observations("both", rng)
    density = mixture(data.latent_dim)

    def gradient(value):
        return torch.autograd.grad(value.mean(), density.means)[0]

    exact = gradient(torch.stack([dense_log_marginal(density, data, row) for row in range(N)]))
    noisy = [gradient(ELBO(density, MixtureExact(density), 200)(data)) for _ in range(30)]
    noisy = torch.stack(noisy)
    error = noisy.std(0) / 30**0.5
    assert ((noisy.mean(0) - exact).abs() < 4.5 * error + 1e-9).all()
    assert (error > 0).all()


def test_other_noise_is_refused(rng):
    data = observations("student", rng)
    with pytest.raises(ValueError, match=r"Expected Gaussian noise.*got TableNoise"):
        MixtureExact(mixture(3)).sample(data, 2)
