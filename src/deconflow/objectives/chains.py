r"""Exact posteriors in the limit: one chain per row, moved a little at every visit.

The gradient of the noisy likelihood is an average over the posterior,

.. math:: \nabla \log p(w_i) = E_{p(v | w_i)} [\nabla \log p(v)],

so all that training needs is a draw from each row's current posterior. A row keeps one latent
value. At each visit ``K`` fresh proposals compete with it by their importance weights; the step
is taken on the winners, and one of them is kept (iterated sampling importance resampling). For any
``K`` of at least one this leaves the exact posterior as it is, so there is no bias at the fixed
point, however rough the proposal.

References
----------
Andrieu, Lee, Vihola (2018), "Uniform ergodicity of the iterated conditional SMC and geometric
ergodicity of particle Gibbs samplers"; Tjelmeland (2004), "Using all Metropolis-Hastings proposals
to estimate mean values".
"""

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from deconflow.densities import Density, Stack, without_dropout
from deconflow.mixtures import GaussianMixture
from deconflow.objectives.likelihoods import NumberedRows, Objective
from deconflow.observations import Observations
from deconflow.posteriors import (
    MixtureNetwork,
    RowMixtures,
    RowsWithProposals,
    WeightedDraws,
    propose,
)

NETWORK_COMPONENTS, NETWORK_WIDTH = 4, 64
#: Draws from the weights on which a gradient is taken.
GRADIENT_DRAWS = 2


class Chains(Objective):
    """The noisy log-likelihood, by one chain per row and density.

    Parameters
    ----------
    density
        What is trained. The members of a :class:`~deconflow.densities.Stack` are trained side by
        side on the same rows, each with its own chains; the objective is their mean.
    data
        All training rows, in the precision of ``density``.
    mixture
        The mixture whose posteriors propose, and in which the chains start.
    mixtures
        The rows' posteriors under it, if they are known already.
    n_proposals
        Fresh values ``K`` per visit.

    Attributes
    ----------
    latents : Tensor
        ``(members, N, D)``: what each row has kept.
    visits, moves : Tensor
        ``(N,)`` and ``(members, N)``: how often a row was visited, and how often a fresh value won.
    """

    latents: Tensor
    visits: Tensor
    moves: Tensor

    def __init__(
        self,
        density: Density,
        data: Observations,
        mixture: GaussianMixture,
        mixtures: RowMixtures | None = None,
        *,
        n_proposals: int = 4,
    ) -> None:
        super().__init__()
        self.density, self.n_proposals = density, n_proposals
        self.members = density.members if isinstance(density, Stack) else 1
        self.draws = self.members * (n_proposals + 1 + GRADIENT_DRAWS)
        self.rows = NumberedRows(data, torch.arange(len(data)))
        self.proposing = mixture
        device = next(density.parameters()).device
        self.mixtures = (mixtures or propose(data, mixture, data.w.dtype)).to(device=device)
        self.register_buffer("latents", self.mixtures.sample(self.members, 1.0))
        self.register_buffer("visits", torch.zeros(len(data), device=device))
        self.register_buffer("moves", torch.zeros(self.members, len(data), device=device))
        self._networks: tuple[MixtureNetwork, ...] = ()  # no part of what is trained

    def forward(self, data: NumberedRows) -> Tensor:
        """Move the rows' chains; the answer estimates ``log p(w)``, its gradient is the step."""
        rows = self.with_proposals(data)
        if not self.training:
            return self._by_member(self.weigh(rows, self._fresh(rows)).log_marginal()).mean(0)
        draws = self.visit(rows, data.row)
        log_p = self._log_prob(draws.resample(GRADIENT_DRAWS)).mean(0)
        return self._by_member(draws.log_marginal() + log_p - log_p.detach()).mean(0)

    def with_proposals(self, data: NumberedRows) -> RowsWithProposals:
        """Look up what proposes for some rows."""
        return RowsWithProposals(data.observations, self.mixtures[data.row])

    @property
    def network(self) -> MixtureNetwork | None:
        """The network that proposes beside the mixture, if one does."""
        return self._networks[0] if self._networks else None

    def set_proposal(self, mixture: GaussianMixture, network: MixtureNetwork | None = None) -> None:
        """Let another mixture propose from now on, or a network with it."""
        self.mixtures = propose(
            self.rows.observations, mixture, self.mixtures.means.dtype, network
        ).to(device=self.latents.device)
        self.proposing, self._networks = mixture, () if network is None else (network,)

    def get_extra_state(self) -> list[Tensor]:
        """Return the proposing mixture, and the weights of the network if one proposes."""
        mixture = self.proposing
        state = [torch.tensor(x) for x in (mixture.weights, mixture.means, mixture.covariances)]
        if self.network is not None:
            state.append(parameters_to_vector(self.network.parameters()).detach().cpu())
        return state

    def set_extra_state(self, state: list[Tensor]) -> None:
        """Let the mixture and the network of a saved state propose."""
        own = self.get_extra_state()
        if len(own) == len(state) and all(map(torch.equal, own, state)):
            return
        network = None
        if len(state) > 3:
            network = proposing_network(self.rows.observations).to(device=self.latents.device)
            vector_to_parameters(state[3].to(self.latents.device), network.parameters())
        self.set_proposal(GaussianMixture(*(part.numpy() for part in state[:3])), network)

    def refresh_rate(self) -> Tensor:
        """How often a fresh value won, for each row that was visited."""
        visited = self.visits > 0
        return self.moves[:, visited].mean(0) / self.visits[visited]

    def efficiency(self, rows: RowsWithProposals, draws: int) -> float:
        """Mean effective sample size of so many proposals, as a share of them."""
        v = rows.sample(self.members * draws).unflatten(0, (self.members, draws))
        return float(self.weigh(rows, v).effective_sample_size().mean()) / draws

    @torch.no_grad()
    def weigh(self, data: RowsWithProposals, v: Tensor) -> WeightedDraws:
        """Weigh ``(members, K, N, D)`` by the exact posterior; dropout never touches a weight.

        The answer has ``members * N`` rows.
        """
        log_ratio = data.log_ratio(v.flatten(0, 1)).unflatten(0, (-1, v.shape[1]))
        v = v.transpose(0, 1).flatten(1, 2)
        with without_dropout(self.density):
            log_weights = self._log_prob(v) + log_ratio.transpose(0, 1).flatten(1)
        return WeightedDraws(v, log_weights)

    @torch.no_grad()
    def visit(self, data: RowsWithProposals, row: Tensor) -> WeightedDraws:
        """Let fresh values compete with the kept ones, and keep a winner for each row."""
        draws = self.weigh(
            data, torch.cat([self.latents[:, row].unsqueeze(1), self._fresh(data)], 1)
        )
        winner = draws.choose(1).squeeze(1)
        won = draws.v[winner, torch.arange(len(winner), device=winner.device)]
        self.latents[:, row] = self._by_member(won)
        self.visits[row] += 1
        self.moves[:, row] += self._by_member((winner > 0).to(self.moves))
        return draws

    def _log_prob(self, v: Tensor) -> Tensor:
        """Log density ``(K, members * N)`` of ``v``, each member's of its own rows."""
        if not isinstance(self.density, Stack):
            return self.density.log_prob(v)
        own = v.unflatten(1, (self.members, -1)).transpose(0, 1)
        return self.density.log_prob(own).transpose(0, 1).flatten(1)

    def _by_member(self, values: Tensor) -> Tensor:
        return values.unflatten(0, (self.members, -1))

    def _fresh(self, data: RowsWithProposals) -> Tensor:
        count = self.n_proposals
        return data.sample(self.members * count).unflatten(0, (self.members, count))


def proposing_network(data: Observations) -> MixtureNetwork:
    """Make a network, not yet trained, that can propose for these rows."""
    return MixtureNetwork(
        data.latent_dim, data.features().shape[1], NETWORK_COMPONENTS, hidden=NETWORK_WIDTH
    )
