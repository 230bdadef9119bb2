import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian, NoiseKernel
from torch.distributions import MultivariateNormal, Normal

from deconflow.densities import ARCHITECTURES, Architecture, MixtureDensity, StandardNormal
from deconflow.objectives import (
    ELBO,
    ImportanceWeighted,
    MaximumLikelihood,
    PosteriorLikelihood,
)
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import RecognitionFlow

BOUNDS = {"elbo": ELBO, "iw": ImportanceWeighted}


@pytest.fixture
def data(rng):
    root = rng.normal(size=(40, 3, 3))
    covariance = root @ root.transpose(0, 2, 1) + 0.2 * np.eye(3)
    return Observations.from_arrays(rng.normal(size=(40, 3)), covariance)


def exact(data):
    """Log p(w) for a standard normal truth."""
    spread = torch.eye(3, dtype=torch.float64) + data.noise.covariance()
    return MultivariateNormal(torch.zeros(3, dtype=torch.float64), spread).log_prob(data.w)


@pytest.mark.parametrize("draws", [1, 2, 10, 50])
@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_tight_with_the_exact_posterior(bound, draws, data):
    objective = bound(StandardNormal(3).double(), LinearGaussian(), draws)
    assert torch.allclose(objective(data), exact(data), atol=1e-5)


def test_order_of_the_bounds_with_a_wrong_posterior(data):
    prior, wrong = StandardNormal(3).double(), NoiseKernel()
    data = data[torch.zeros(4000, dtype=torch.long)]  # one row, many times: its expectation
    means = {
        "elbo": ELBO(prior, wrong, 5)(data),
        "iw 5": ImportanceWeighted(prior, wrong, 5)(data),
        "iw 50": ImportanceWeighted(prior, wrong, 50)(data),
        "log p(w)": exact(data[:1]),
    }
    values = [float(value.mean()) for value in means.values()]
    errors = [float(v.std()) / len(v) ** 0.5 if len(v) > 1 else 0.0 for v in means.values()]
    for i in range(3):
        assert values[i] + 4 * (errors[i] + errors[i + 1]) < values[i + 1]


def test_mixture_convolution_bounds_every_variational_bound(rng):
    mixture = MixtureDensity(
        torch.tensor([0.5, 0.5]), torch.tensor([[-2.0], [2.0]]), torch.ones(2, 1, 1)
    ).double()
    data = Observations.from_arrays(np.tile(rng.normal(size=(1, 1)), (4000, 1)), np.array([1.0]))
    parts = Normal(torch.tensor([-2.0, 2.0], dtype=torch.float64), 2**0.5)
    log_p = torch.logsumexp(parts.log_prob(data.w[0]), 0) - np.log(2)
    for bound in BOUNDS.values():
        with torch.no_grad():
            values = bound(mixture, LinearGaussian(), 3)(data)
        assert float(values.mean()) + 4 * float(values.std()) / 4000**0.5 < float(log_p)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_gradient_reaches_density_and_posterior(bound, data):
    size = Architecture(1, 8, 1)
    density = ARCHITECTURES["mixture"](3, size).double()
    posterior = RecognitionFlow(3, data.features().shape[1], size).double()
    bound(density, posterior, 3)(data).sum().backward()
    assert density.base.network.output.weight.grad.abs().sum() > 0
    assert posterior.layers[1].network.output.weight.grad.abs().sum() > 0


def test_maximum_likelihood_is_the_log_density(data):
    density = StandardNormal(3).double()
    assert torch.equal(MaximumLikelihood(density)(data), density.log_prob(data.w))


def test_posterior_likelihood_is_the_log_density_of_pairs(data):
    v = torch.randn(len(data), 3, dtype=torch.float64)
    found = PosteriorLikelihood(LinearGaussian())(Pairs(data, v))
    assert torch.allclose(found, LinearGaussian().log_prob(data, v[None])[0])
