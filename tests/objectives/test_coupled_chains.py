from dataclasses import replace

import numpy as np
import pytest
import torch
from reference_posteriors import NoiseKernel

from deconflow import Observations
from deconflow.densities import ARCHITECTURES, Architecture, MixtureDensity
from deconflow.fitting import Training, evaluate, fit
from deconflow.objectives import CoupledChains, ImportanceWeighted, Roulette
from deconflow.objectives.unbiased import proposal_step
from deconflow.posteriors import MixtureExact, MixtureNetwork, RecognitionFlow

SIZE = Architecture(1, 8, 1)


def posterior_of(kind, data):
    n_features = data.features().shape[1]
    made = {
        "flow": lambda: RecognitionFlow(data.latent_dim, n_features, SIZE),
        "mixture": lambda: MixtureNetwork(data.latent_dim, n_features, 3, hidden=16, blocks=1),
    }[kind]()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.double()


@pytest.fixture
def data(rng):
    w = rng.normal(size=(30, 2))
    w[::4, 1] = np.nan
    return Observations.from_arrays(w, rng.uniform(0.3, 1, size=(30, 2))).to()


def gradients(objective, module, data, seed=1):
    torch.manual_seed(seed)
    objective.zero_grad()
    objective(data).mean().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("make", [CoupledChains, Roulette])
@pytest.mark.parametrize("kind", ["flow", "mixture"])
def test_the_posterior_has_a_step_of_its_own_that_leaves_the_density_alone(kind, make, data):
    density = ARCHITECTURES["mixture"](2, SIZE).double()
    posterior = posterior_of(kind, data)
    steps = gradients(make(density, posterior, 2), posterior, data)
    assert sum(float(step.abs().sum()) for step in steps) > 0
    density.zero_grad()
    posterior.zero_grad()
    proposal_step(density, posterior, data, 3).mean().backward()
    assert all(p.grad is None for p in density.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in posterior.parameters())


def bimodal(rng, n=800):
    v = np.where(rng.uniform(size=n) < 0.4, -1.5, 1.0) + 0.3 * rng.normal(size=n)
    sd = rng.uniform(0.3, 0.9, size=n)
    return Observations.from_arrays((v + sd * rng.normal(size=n))[:, None], sd[:, None]).to()


def truth():
    return MixtureDensity(
        torch.tensor([0.4, 0.6]), torch.tensor([[-1.5], [1.0]]), torch.full((2, 1, 1), 0.09)
    ).double()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flow", "mixture"])
def test_a_fit_reaches_the_truth(kind, rng):
    data = bimodal(rng)
    density = MixtureDensity(
        torch.tensor([0.5, 0.5]), torch.tensor([[-1.0], [0.7]]), torch.full((2, 1, 1), 0.5)
    ).double()

    def log_p(model):
        with torch.no_grad():
            return float(MixtureExact(model).log_marginal(data).mean())

    start, best = log_p(density), log_p(truth())
    fit(
        CoupledChains(density, posterior_of(kind, data), 6),
        data,
        training=Training(epochs=8, batch_size=100, learning_rate=5e-2),
    )
    # On its own rows a fit of five parameters is 5 / (2 n) = 0.003 above the truth in the mean.
    assert start < best - 0.1
    assert log_p(density) > best - 0.005


def test_coupled_chains_climb_the_likelihood_without_bias():
    mean, variance, w, sd = 0.5, 0.8, 2.0, 1.5
    density = MixtureDensity(
        torch.ones(1), torch.tensor([[mean]]), torch.tensor([[[variance]]])
    ).double()
    data = Observations.from_arrays(np.full((300, 1), w), np.array([sd])).to()

    def score(objective):
        found = torch.stack(
            [gradients(objective, density, data, seed)[1][0, 0] for seed in range(60)]
        )
        exact = (w - mean) / (variance + sd**2)
        return abs(float((found.mean() - exact) / found.std() * 60**0.5))

    assert score(CoupledChains(density, NoiseKernel(), 2, burn_in=0, steps=1)) < 4.5
    assert score(ImportanceWeighted(density, NoiseKernel(), 3)) > 4.5  # the twin: a bound


def test_coupled_chains_without_gradients_are_the_bound(data):
    density, posterior = MixtureDensity.spread(2, 2).double(), posterior_of("mixture", data)
    found = evaluate(CoupledChains(density, posterior, 10), data, 0)
    assert found == pytest.approx(evaluate(ImportanceWeighted(density, posterior, 10), data, 0))


def test_a_row_out_of_reach_is_a_skipped_step():
    data = Observations.from_arrays(np.zeros((4, 1)), np.array([1.0])).to()
    data = replace(data, w=data.w + 1e200)
    density = MixtureDensity.spread(1, 2).double()
    values = CoupledChains(density, NoiseKernel(), 3)(data)
    assert values.requires_grad
    assert values.isnan().all()
