import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian, NoiseKernel
from torch.distributions import MultivariateNormal

from deconflow.densities import StandardNormal
from deconflow.objectives import (
    ELBO,
    ImportanceWeighted,
    MaximumLikelihood,
    PosteriorLikelihood,
)
from deconflow.observations import Observations, Pairs

BOUNDS = {"elbo": ELBO, "iw": ImportanceWeighted}


@pytest.fixture
def data(rng):
    root = rng.normal(size=(40, 3, 3))
    covariance = root @ root.transpose(0, 2, 1) + 0.2 * np.eye(3)
    return Observations.from_arrays(rng.normal(size=(40, 3)), covariance).to()


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


def test_maximum_likelihood_is_the_log_density(data):
    density = StandardNormal(3).double()
    assert torch.equal(MaximumLikelihood(density)(data), density.log_prob(data.w))


def test_posterior_likelihood_is_the_log_density_of_pairs(data):
    v = torch.randn(len(data), 3, dtype=torch.float64)
    found = PosteriorLikelihood(LinearGaussian())(Pairs(data, v))
    assert torch.allclose(found, LinearGaussian().log_prob(data, v[None])[0])
