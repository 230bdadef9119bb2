"""Proposals that follow the flow: a mixture fitted to its draws, a network where that is poor."""

import torch

from deconflow.densities import Density, simulate
from deconflow.fitting import Training, fit
from deconflow.mixtures import GaussianMixture
from deconflow.objectives import Chains, PosteriorLikelihood, proposing_network
from deconflow.observations import Pairs
from deconflow.posteriors import MixtureNetwork, RowsWithProposals
from deconflow.randomness import own_generator
from deconflow.xd import fit_exact

#: When, as shares of the training.
AT = (0.25, 0.5)

#: A mean effective sample size, as a share of the draws, below which a network is trained.
POOR = 0.1

DRAWN, ROWS, DRAWS = 5_000, 300, 32
NETWORK_ROWS, NETWORK_EPOCHS = 10_000, 5


def refit(chains: Chains) -> None:
    """Try other proposals, and keep them if they raise the effective sample size."""
    mixture = mixture_of(chains.density, chains.proposing.n_components)
    efficiency = _keep_if_better(chains, mixture, chains.network)
    if efficiency < POOR and chains.rows.observations.noise.support_map() is None:
        _keep_if_better(chains, chains.proposing, network_of(chains))


def _keep_if_better(
    chains: Chains, mixture: GaussianMixture, network: MixtureNetwork | None
) -> float:
    """Return the efficiency of what proposes afterwards."""
    some = chains.rows[:: max(1, len(chains.rows) // ROWS)]
    dtype, device = chains.latents.dtype, chains.latents.device
    now = chains.with_proposals(some)
    other = RowsWithProposals.of(some.observations, mixture, dtype, network)
    after, before = (
        chains.efficiency(rows.to(dtype=dtype, device=device), DRAWS) for rows in (other, now)
    )
    if after > before:
        chains.set_proposal(mixture, network)
    return max(before, after)


@torch.no_grad()
def mixture_of(density: Density, n_components: int) -> GaussianMixture:
    """Fit a mixture to draws from a density."""
    drawn = density.sample(DRAWN).double().cpu()
    drawn = drawn[drawn.isfinite().all(1)]
    seed = int(torch.randint(2**31 - 1, (), generator=own_generator()))
    return fit_exact(drawn.numpy(), n_components, seed=seed)


def network_of(chains: Chains) -> MixtureNetwork:
    """Train a network by forward KL, on simulated pairs and then on the chains' own draws."""
    order = torch.randperm(len(chains.rows), generator=own_generator())
    rows = chains.rows[order[:NETWORK_ROWS]]
    data = rows.observations.to(dtype=chains.latents.dtype, device=chains.latents.device)
    network = proposing_network(rows.observations).to(chains.latents)
    training = Training(epochs=NETWORK_EPOCHS, batch_size=128, learning_rate=2e-3)
    member = int(torch.randint(chains.members, (), generator=own_generator()))
    for pairs in (simulate(chains.density, data), Pairs(data, chains.latents[member, rows.row])):
        fit(PosteriorLikelihood(network), pairs, None, training)
    return network.requires_grad_(False)
