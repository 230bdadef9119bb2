"""The roulette against a closed form; a z of 4.5 is passed by chance once in 150,000."""

import math

import numpy as np
import pytest
import torch
from reference_posteriors import NoiseKernel
from torch.distributions import Normal

from deconflow.densities import MixtureDensity, StandardNormal
from deconflow.objectives import ImportanceWeighted, Roulette, likelihoods
from deconflow.observations import Observations

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
    monkeypatch.setattr(likelihoods, "POINTS_AT_ONCE", points)
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
    assert torch.allclose(likelihoods.telescope(log_weights.unsqueeze(1), 1.5)[0], expected)
    assert likelihoods.telescope(log_weights[:1].unsqueeze(1), 1.5)[0] == a
