import math

import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian, NoiseKernel
from torch.distributions import MultivariateNormal, Normal

from deconflow.densities import MixtureDensity, StandardNormal
from deconflow.objectives import (
    ELBO,
    ImportanceWeighted,
    MaximumLikelihood,
    PosteriorLikelihood,
    Roulette,
    unbiased,
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


# -- the roulette against a closed form; a z of 4.5 is passed by chance once in 150,000 -----------


W, SD = 2.0, 1.5
EXACT = float(Normal(0.0, math.hypot(1.0, SD)).log_prob(torch.tensor(W, dtype=torch.float64)))


def one_row_many_times(n):
    return Observations.from_arrays(np.full((n, 1), W), np.array([SD])).to()


def score(values, expected):
    return float((values.mean() - expected) / values.std() * len(values) ** 0.5)


@pytest.mark.parametrize("draws", [1, 4])
@torch.no_grad()
def test_the_estimate_has_no_bias(draws):
    # The noise kernel proposes without the prior, so that few draws are clearly biased.
    prior, data = StandardNormal(1).double(), one_row_many_times(100_000)
    estimate = Roulette(prior, NoiseKernel(), draws)
    assert abs(score(estimate(data), EXACT)) < 4.5
    # The twins: the bound with as many draws as the roulette costs, and a roulette cut short.
    plain = ImportanceWeighted(prior, NoiseKernel(), estimate.draws)(data)
    assert score(plain, EXACT) < -20
    levels = estimate.draw_levels(len(data)).clamp(max=1)
    assert score(estimate.estimate(data, levels), EXACT) < -4.5


@pytest.mark.parametrize("points", [10_000, 64])
def test_the_gradient_has_no_bias_whatever_the_parts(points, monkeypatch):
    monkeypatch.setattr(unbiased, "POINTS_AT_ONCE", points)
    mean, variance = 0.5, 0.8
    density = MixtureDensity(
        torch.ones(1), torch.tensor([[mean]]), torch.tensor([[[variance]]])
    ).double()
    data = one_row_many_times(200)

    def gradients(objective, repetitions):
        found = []
        for _ in range(repetitions):
            value = objective(data).mean()
            found.append(torch.autograd.grad(value, density.means)[0][0, 0])
        return torch.stack(found)

    exact = (W - mean) / (variance + SD**2)
    assert abs(score(gradients(Roulette(density, NoiseKernel(), 1), 60), exact)) < 4.5
    biased = gradients(ImportanceWeighted(density, NoiseKernel(), 3), 60)  # the twin
    assert abs(score(biased, exact)) > 4.5


def test_telescope_by_hand():
    a, b, c, d = log_weights = torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64)

    def bound(*values):
        return torch.logsumexp(torch.stack(values), 0) - math.log(len(values))

    first = bound(a, b) - (a + b) / 2 + bound(c, d) - (c + d) / 2
    second = bound(a, b, c, d) - (bound(a, b) + bound(c, d)) / 2
    expected = log_weights.mean() + first / 2 / 2**-1.5 + second / 2**-3.0
    assert torch.allclose(unbiased.telescope(log_weights.unsqueeze(1), 1.5)[0], expected)
    assert unbiased.telescope(log_weights[:1].unsqueeze(1), 1.5)[0] == a
