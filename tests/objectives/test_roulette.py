"""The roulette against a closed form; a z of 4.5 is passed by chance once in 150,000."""

import math

import numpy as np
import pytest
import torch
from reference_posteriors import NoiseKernel
from torch.distributions import Normal

from deconflow.densities import Architecture, MixtureDensity, StandardNormal
from deconflow.objectives import ImportanceWeighted, Roulette, roulette
from deconflow.observations import Observations
from deconflow.posteriors import MixtureNetwork, RecognitionFlow

W, SD = 2.0, 1.5
EXACT = float(Normal(0.0, math.hypot(1.0, SD)).log_prob(torch.tensor(W, dtype=torch.float64)))


def one_row_many_times(n):
    return Observations.from_arrays(np.full((n, 1), W), np.array([SD]))


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
    monkeypatch.setattr(roulette, "POINTS_AT_ONCE", points)
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


def test_each_row_has_its_level_with_the_chances_that_are_said():
    n = 100_000
    levels = Roulette(StandardNormal(1), NoiseKernel(), 1, decay=1.5).draw_levels(n)
    for level in range(1, 6):
        chance = 2 ** (-1.5 * level)
        found = float((levels >= level).double().mean())
        assert abs(found - chance) < 4.5 * (chance * (1 - chance) / n) ** 0.5


@torch.no_grad()
def test_second_moments_fall_as_the_exponent_needs():
    # Of order 4^-l for the difference of a whole and its halves; a plain difference of doubled
    # draws, the twin, falls as 2^-l only, which no exponent could make finite.
    prior, data = StandardNormal(1).double(), one_row_many_times(4000)
    halved, plain = [], []
    for level in (4, 7):
        v, log_q = NoiseKernel().sample(data, 2 ** (level + 1))
        halves = (prior.log_prob(v) + data.log_likelihood(v) - log_q).unflatten(0, (2, -1))
        parts = halves.logsumexp(1) - math.log(2**level)
        whole = parts.logsumexp(0) - math.log(2)
        halved.append(float((whole - parts.mean(0)).square().mean()))
        plain.append(float((whole - parts[0]).square().mean()))
    assert 0.5 * 4**3 < halved[0] / halved[1] < 2 * 4**3
    assert 0.5 * 2**3 < plain[0] / plain[1] < 2 * 2**3


def test_telescope_by_hand():
    a, b, c, d = log_weights = torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64)

    def bound(*values):
        return torch.logsumexp(torch.stack(values), 0) - math.log(len(values))

    first = bound(a, b) - (a + b) / 2 + bound(c, d) - (c + d) / 2
    second = bound(a, b, c, d) - (bound(a, b) + bound(c, d)) / 2
    expected = log_weights.mean() + first / 2 / 2**-1.5 + second / 2**-3.0
    assert torch.allclose(roulette.telescope(log_weights.unsqueeze(1), 1.5)[0], expected)
    assert roulette.telescope(log_weights[:1].unsqueeze(1), 1.5)[0] == a


def test_memory_is_bounded_whatever_the_level(monkeypatch):
    monkeypatch.setattr(roulette, "POINTS_AT_ONCE", 64)
    sizes = []

    class Watched(StandardNormal):
        def log_prob(self, v):
            sizes.append(v.shape[0] * v.shape[1])
            return super().log_prob(v)

    objective = Roulette(Watched(1).double(), NoiseKernel(), 3)
    levels = torch.tensor([0, 7, 1, 0, 3])  # 3 * 2^7 draws of one row are more than 64
    values = objective.estimate(one_row_many_times(5), levels)
    assert values.shape == (5,)
    assert max(sizes) <= 64
    assert sum(sizes) == int((3 * 2**levels).sum())


@pytest.mark.parametrize("kind", ["flow", "mixture"])
def test_the_posterior_has_a_step_of_its_own(kind):
    data = one_row_many_times(50)
    posterior = {
        "flow": RecognitionFlow(1, data.features().shape[1], Architecture(1, 8, 1)),
        "mixture": MixtureNetwork(1, data.features().shape[1], 2, hidden=8, blocks=1),
    }[kind].double()
    density = MixtureDensity.spread(1, 2).double()
    Roulette(density, posterior, 2)(data).sum().backward()
    assert density.means.grad.abs().sum() > 0
    assert all(p.requires_grad for p in density.parameters())
    assert sum(float(p.grad.abs().sum()) for p in posterior.parameters() if p.grad is not None) > 0


def test_refusals():
    for decay in (1.0, 2.0):
        with pytest.raises(ValueError, match=r"Expected decay in \(1, 2\)"):
            Roulette(StandardNormal(1), NoiseKernel(), 1, decay=decay)
    with pytest.raises(ValueError, match="at least one draw"):
        Roulette(StandardNormal(1), NoiseKernel(), 0)
