"""Chains: the exact answer at their fixed point, however few proposals and however rough."""

import numpy as np
import pytest
import torch

from deconflow import GaussianMixture, Observations
from deconflow.densities import ARCHITECTURES, Architecture, MixtureDensity, Stack
from deconflow.fitting import Training, fit
from deconflow.noise import gaussian, laplace
from deconflow.objectives import Chains, proposing_network
from deconflow.posteriors import proposals
from deconflow.xd import posterior

#: A proposing mixture that is off by one and a half standard deviations, and twice too wide.
ROUGH = GaussianMixture(np.ones(1), np.full((1, 1), 1.5), np.full((1, 1, 1), 4.0))


def normal(mean, variance):
    """A one-dimensional normal density."""
    weights = torch.ones(1, dtype=torch.float64)
    mean = torch.tensor([[mean]], dtype=torch.float64)
    return MixtureDensity(weights, mean, torch.tensor([[[variance]]], dtype=torch.float64))


def linear_gaussian_rows(n=2000):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(n, 1)) + rng.normal(size=(n, 1))
    return Observations.from_arrays(w, [1.0]).to()


def fixed_point(sweep, n_sweeps=300):
    """Iterate moment matching on draws; return mean and variance, averaged after a burn-in."""
    mean, variance, kept = 0.5, 2.0, []
    for s in range(n_sweeps):
        first, second = sweep(mean, variance)
        mean, variance = first, second - first**2
        if s >= n_sweeps // 3:
            kept.append((mean, variance))
    return np.mean(kept, axis=0)


def visit_all(chains):
    chains.visit(chains.with_proposals(chains.rows), chains.rows.row)


def exact_answer(data):
    """Maximum likelihood: the mean of w, and its variance less the noise's."""
    w = data.w.numpy()[:, 0]
    return w.mean(), w.var() - 1.0


@pytest.mark.parametrize("competing", [2, 4, pytest.param(16, marks=pytest.mark.slow)])
def test_fixed_point_is_exact_for_any_number_of_proposals(competing):
    """The tolerance is four Monte-Carlo errors of 200 correlated sweeps of 2,000 rows (0.01)."""
    data = linear_gaussian_rows()
    chains = Chains(normal(0.5, 2.0), data, ROUGH, n_proposals=competing - 1)

    def sweep(mean, variance):
        chains.density = normal(mean, variance)
        visit_all(chains)
        v = chains.latents
        return float(v.mean()), float(v.square().mean())

    np.testing.assert_allclose(fixed_point(sweep), exact_answer(data), atol=0.04)


def test_importance_weighting_is_not_exact_with_few_draws():
    """The negative twin: self-normalised weights of two and of four draws, none of them kept."""
    data = linear_gaussian_rows()
    chains = Chains(normal(0.5, 2.0), data, ROUGH, n_proposals=1)
    rows = chains.with_proposals(chains.rows)
    for count in (2, 4):

        def sweep(mean, variance, count=count):
            chains.density = normal(mean, variance)
            draws = chains.weigh(rows, rows.sample(count).unsqueeze(0))
            weights = draws.normalised.unsqueeze(-1)
            first, second = ((weights * draws.v**p).sum(0).mean() for p in (1, 2))
            return float(first), float(second)

        assert np.abs(fixed_point(sweep) - exact_answer(data)).max() > 0.15


def test_the_posterior_is_left_as_it_is_with_missing_values_and_projections():
    """Chains that start in the posterior of the density itself stay there."""
    rng = np.random.default_rng(1)
    mixture = GaussianMixture(
        np.array([0.4, 0.6]),
        np.array([[-1.0, 0.0], [1.0, 1.0]]),
        np.array([np.diag([0.3, 1.0]), [[1.0, 0.5], [0.5, 0.6]]]),
    )
    parts = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    density = MixtureDensity(*parts)
    for case in ("missing", "projection"):
        w = rng.normal(size=(3, 2)) if case == "missing" else rng.normal(size=(3, 1))
        R = None if case == "missing" else rng.normal(size=(3, 1, 2))
        if case == "missing":
            w[1, 0] = w[2, 1] = np.nan
        one = Observations.from_arrays(w, np.full(w.shape[1], 0.7), projection=R).to()
        many = one[torch.arange(3).repeat_interleave(3000)]
        wide = GaussianMixture(mixture.weights, mixture.means, 2 * mixture.covariances)
        chains = Chains(density, many, wide, n_proposals=2)
        exact = posterior(mixture, one.in_numpy())
        chains.latents.copy_(torch.from_numpy(exact.sample(3000, 0)).reshape(1, -1, 2))
        for _ in range(15):
            visit_all(chains)
        found = chains.latents[0].reshape(3, 3000, 2).numpy()
        error = exact.sd / np.sqrt(3000)
        assert (np.abs(found.mean(1) - exact.mean) < 4 * error).all()
        np.testing.assert_allclose(found.std(1), exact.sd, rtol=0.07)
        assert chains.refresh_rate().mean() > 0.3


def test_the_true_law_of_the_noise_is_in_the_weights():
    """Laplace noise: posterior means by a fine grid, with proposals that think it is Gaussian."""
    w = np.array([[-2.0], [0.3], [4.0]])
    data = Observations.from_arrays(w, laplace([0.8])).to()[torch.arange(3).repeat_interleave(2000)]
    prior = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    chains = Chains(normal(0.0, 1.0), data, prior, n_proposals=3)
    for _ in range(40):
        visit_all(chains)
    grid = np.linspace(-8, 8, 4001)
    p = np.exp(-0.5 * grid**2 - np.abs(w - grid) / 0.8)
    wanted = (p @ grid) / p.sum(1)
    found = chains.latents[0].reshape(3, 2000).mean(1)
    np.testing.assert_allclose(found, wanted, atol=0.1)  # four errors of 2,000 draws


def small_fit(members=None, dropout=0.0, n=300):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    v = rng.normal(size=(n, 2)) * [1.0, 0.5]
    data = Observations.from_arrays(v + 0.5 * rng.normal(size=v.shape), [0.5, 0.5]).to()
    size = Architecture(layers=1, hidden=8, blocks=1, dropout=dropout)
    flows = [ARCHITECTURES["mixture"](2, size) for _ in range(members or 1)]
    density = Stack(flows) if members else flows[0]
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    data = data.to(dtype=torch.float32)
    return Chains(density, data, mixture, n_proposals=3)


@pytest.mark.parametrize("members", [None, 3])
def test_training_raises_the_likelihood_and_visits_every_row(members):
    chains = small_fit(members)
    before = chains.eval()(chains.rows).mean()
    fit(chains, chains.rows, None, Training(epochs=12, batch_size=37, learning_rate=1e-2))
    assert (chains.visits == 12).all()
    assert chains.eval()(chains.rows).mean() > before + 0.05


def test_dropout_never_touches_a_weight():
    chains = small_fit(dropout=0.5)
    rows = chains.with_proposals(chains.rows)
    v = rows.sample(4).unsqueeze(0)
    chains.train()
    first, second = (chains.weigh(rows, v).log_weights for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert chains.density.training


def test_an_interrupted_fit_goes_on_to_the_same_result(tmp_path):
    """Chains and changed proposals are part of what a checkpoint keeps."""
    other = GaussianMixture(np.ones(1), np.full((1, 2), 0.3), 2 * np.eye(2)[None])

    def run(epochs, file):
        chains = small_fit(members=2)

        def change(epoch, history):
            if epoch == 1:
                network = proposing_network(chains.rows.observations).requires_grad_(False)
                chains.set_proposal(other, network)
            if epoch == epochs - 1 and epochs < 6:
                raise KeyboardInterrupt

        training = Training(epochs=6, batch_size=50, averaging=0.9)
        torch.manual_seed(1)
        fit(chains, chains.rows, None, training, checkpoint=file, callbacks=[change])
        return chains

    whole = run(6, tmp_path / "whole.ckpt")
    with pytest.raises(KeyboardInterrupt):
        run(4, tmp_path / "part.ckpt")
    resumed = run(6, tmp_path / "part.ckpt")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=0, atol=0, msg=name)
    torch.testing.assert_close(resumed.mixtures.means, whole.mixtures.means)
    resumed.set_proposal(other)  # the network goes
    assert (resumed.network, resumed.mixtures.means.shape[1]) == (None, 1)


def test_noise_may_differ_by_row(monkeypatch):
    """Full covariances row by row: the kernel of the proposal and the weights take each row's."""
    rng = np.random.default_rng(2)
    white = rng.normal(size=(50, 4, 2))
    S = np.swapaxes(white, 1, 2) @ white / 4 + 0.05 * np.eye(2)
    data = Observations.from_arrays(rng.normal(size=(50, 2)), gaussian(covariance=S)).to()
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    parts = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    monkeypatch.setattr(proposals, "SHARES", (1.0, 0.0, 0.0))
    chains = Chains(MixtureDensity(*parts), data, mixture)
    rows = chains.with_proposals(chains.rows)
    weights = chains.weigh(rows, rows.sample(6).unsqueeze(0)).log_weights
    # Proposals from the exact posterior: every weight is log p(w), whatever the draw.
    torch.testing.assert_close(weights, weights[:1].expand_as(weights))
