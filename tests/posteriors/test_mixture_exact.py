from functools import partial

import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian
from test_posteriors import GAUSSIAN, N, every_kind, observations, recognition, shaken
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from deconflow import GaussianMixture, Observations
from deconflow.densities import MixtureDensity
from deconflow.objectives import ELBO
from deconflow.posteriors import MixtureExact, MixtureNetwork
from deconflow.posteriors.networks import coordinates
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


# -- mixture network ------------------------------------------------------------------------------


def network(data):
    made = MixtureNetwork(data.latent_dim, data.features().shape[1], 3, hidden=16, blocks=1)
    return shaken(made)


@every_kind
@pytest.mark.parametrize("make", [network, recognition, partial(recognition, anchored=False)])
def test_densities_of_samples_are_their_log_prob(make, kind, rng):
    data = observations(kind, rng)
    posterior = make(data)
    with torch.no_grad():
        v, log_q = posterior.sample(data, 5)
        assert v.shape == (5, N, data.latent_dim)
        assert torch.allclose(posterior.log_prob(data, v), log_q, atol=1e-7)


@every_kind
def test_laid_out_rows_are_the_same_law(kind, rng):
    data = observations(kind, rng)
    if data.noise.support_map() is not None:
        return
    posterior = network(data)
    with torch.no_grad():
        laid_out = posterior.row_mixtures(data)
        v, log_q = posterior.sample(data, 5)
        assert torch.allclose(laid_out.log_prob(v), log_q, atol=1e-6)


@every_kind
def test_one_component_starts_at_the_linear_gaussian(kind, rng):
    data = observations(kind, rng)
    if data.noise.support_map() is not None:
        return
    fresh = MixtureNetwork(data.latent_dim, data.features().shape[1], 1).double()
    v = torch.randn(3, N, data.latent_dim, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(fresh.log_prob(data, v), LinearGaussian().log_prob(data, v))


def test_it_is_the_mixture_it_says_and_draws_from_it(rng):
    data = observations("full", rng)
    posterior = network(data)
    with torch.no_grad():
        found = posterior.mixture(data)
        spread = found.factors @ found.factors.mT
        parts = MultivariateNormal(found.means, 0.5 * (spread + spread.mT))
        expected = MixtureSameFamily(Categorical(logits=found.log_weights), parts)
        v, log_q = posterior.sample(data, 20_000)
        z, outer = coordinates(data).inv.call_and_ladj(v)
        assert torch.allclose(log_q, expected.log_prob(z) + outer)
    error = expected.stddev / 20_000**0.5
    assert ((z.mean(0) - expected.mean).abs() < 4.5 * error).all()
    # Second moments, off the diagonal too; and the twin, the moments of the next row's mixture.
    second = torch.einsum("kni,knj->knij", z, z)
    within = torch.einsum("nc,ncij->nij", found.log_weights.exp(), spread)
    means = torch.einsum("nc,nci,ncj->nij", found.log_weights.exp(), found.means, found.means)
    scores = (second.mean(0) - within - means) / second.std(0) * 20_000**0.5
    assert (scores.abs() < 4.5).all()
    wrong = (second.mean(0) - (within + means).roll(1, 0)) / second.std(0) * 20_000**0.5
    assert (wrong.abs() > 4.5).any()


def test_only_densities_carry_gradients(rng):
    data = observations("both", rng)
    posterior = network(data)
    v, log_q = posterior.sample(data, 2)
    assert not v.requires_grad
    assert not log_q.requires_grad
    posterior.log_prob(data, v).sum().backward()
    for name, parameter in posterior.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("make", [network, recognition])
@pytest.mark.parametrize("size", [1e-10, 1e-3, 1.0, 1e5, 1e10])
def test_finite_for_tiny_and_huge_noise(make, size, rng):
    data = Observations.from_arrays(rng.normal(size=(N, 3)), np.full(3, size))
    data = Observations(data.w, data.noise.floor(1e-3)).to(dtype=torch.float32)
    v, log_q = make(data).float().sample(data, 10)
    assert v.isfinite().all()
    assert log_q.isfinite().all()
    assert data.log_likelihood(v).isfinite().all()


@pytest.mark.parametrize("kind", ["full", "missing", "projected", "both", "student", "laplace"])
def test_remeasured_rows_have_their_own_noise(kind, rng):
    data = observations(kind, rng)
    v = torch.randn(N, data.latent_dim, dtype=torch.float64)
    rows = [data.remeasure(v) for _ in range(2000)]
    blur = torch.stack([row.residual(v[None])[0] for row in rows])
    expected = data.noise.variance().expand(N, -1)
    if data.observed is not None:
        assert all((row.w[~data.observed] == 0).all() for row in rows[:10])
        expected = torch.where(data.observed, expected, 0.0)
    # The variance of heavy tails converges slowly: four degrees of freedom have no fourth moment.
    error = 0.6 if kind == "student" else 0.15
    assert torch.allclose(blur.var(0), expected, rtol=error, atol=1e-12)
