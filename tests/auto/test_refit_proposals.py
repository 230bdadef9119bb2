"""Other proposals during training: kept if they are better, a network only where it is needed."""

import numpy as np
import pytest
import torch

from deconflow.auto import flows
from deconflow.auto.flows import network_of, refit
from deconflow.densities import MixtureDensity
from deconflow.mixtures import GaussianMixture
from deconflow.objectives import Chains
from deconflow.observations import Observations


def ring(spread=0.1, arcs=12):
    """A thin ring: no single Gaussian proposes well for it."""
    angles = torch.arange(arcs) * 2 * torch.pi / arcs
    means = 2 * torch.stack([angles.cos(), angles.sin()], 1)
    return MixtureDensity(
        torch.full((arcs,), 1 / arcs), means, spread * torch.eye(2).repeat(arcs, 1, 1)
    )


def chains_on(density, mixture, n=600):
    torch.manual_seed(0)
    sd = torch.tensor([0.6, 0.6])
    w = density.sample(n) + sd * torch.randn(n, 2)
    data = Observations.from_arrays(w.double().numpy(), sd.double().numpy())
    data = data.to(dtype=torch.float32)
    return Chains(density.requires_grad_(False), data, mixture, n_proposals=3)


def visit_all(chains, times):
    for _ in range(times):
        chains.visit(chains.with_proposals(chains.rows), chains.rows.row)


#: What proposes in a wrong place.
FAR = GaussianMixture(np.ones(1), np.array([[6.0, 6.0]]), 0.01 * np.eye(2)[None])


def test_a_network_learns_to_propose():
    chains = chains_on(ring(0.02), FAR)
    visit_all(chains, 30)
    before = chains.efficiency(chains.with_proposals(chains.rows), 64)
    chains.set_proposal(FAR, network_of(chains))
    assert chains.efficiency(chains.with_proposals(chains.rows), 64) > 2 * before


@pytest.mark.parametrize(("poor", "wanted"), [(1.0, True), (0.0, False)])
def test_a_network_is_trained_only_where_proposals_are_poor(monkeypatch, poor, wanted):
    monkeypatch.setattr(flows, "POOR", poor)
    monkeypatch.setattr(flows, "mixture_of", lambda density, n_components: FAR)
    chains = chains_on(ring(0.02), FAR)
    visit_all(chains, 30)
    refit(chains)
    assert (chains.network is not None) is wanted


def test_worse_proposals_are_not_kept(monkeypatch):
    monkeypatch.setattr(flows, "mixture_of", lambda density, n_components: FAR)
    good = GaussianMixture(np.ones(1), np.zeros((1, 2)), 2 * np.eye(2)[None])
    chains = chains_on(ring(), good)
    refit(chains)
    np.testing.assert_array_equal(chains.proposing.means, good.means)


def test_better_proposals_are_kept():
    chains = chains_on(ring(), FAR)
    refit(chains)
    assert np.abs(chains.proposing.means).max() < 1
