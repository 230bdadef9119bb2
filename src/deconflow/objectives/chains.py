r"""Exact posteriors in the limit: one chain a row, moved a little at every visit.

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

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from deconflow.checks import check_integer, check_number
from deconflow.densities import Density, Dropout, Stack, without_dropout
from deconflow.objectives.base import Objective
from deconflow.posteriors.defensive import Defensive, PreparedRows
from deconflow.posteriors.mixture_network import MixtureNetwork
from deconflow.posteriors.resampling import WeightedDraws
from deconflow.xd.mixture import Mixture

PROPOSING = ("weights", "means", "covariances")
NETWORK_COMPONENTS, NETWORK_WIDTH = 4, 64


class Chains(Objective):
    """The noisy log-likelihood, by one chain a row and density.

    Parameters
    ----------
    density
        What is trained. The members of a :class:`~deconflow.densities.Stack` are trained side by
        side on the same rows, each with its own chains; the objective is their mean.
    proposal
        Where fresh values come from.
    rows
        All training rows: their chains start in the proposing mixture's posterior.
    mixture
        The mixture by which they were prepared.
    fresh
        Proposals ``K`` a visit.
    steps_on
        How many draws from the weights a gradient is taken on; 0 for all values, each by its
        weight (Rao-Blackwellised): less variance, at the price of a gradient for each.
    smoothing
        Draws for the gradient are blurred by Gaussian noise of this share of each row's noise
        covariance, one share for all or one for each member. Keeps a density from following single
        rows.

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
        proposal: Defensive,
        rows: PreparedRows,
        mixture: Mixture,
        *,
        fresh: int = 4,
        steps_on: int = 2,
        smoothing: float | Sequence[float] = 0.0,
    ) -> None:
        super().__init__()
        check_integer("fresh", fresh, 1)
        check_integer("steps_on", steps_on, 0)
        self.density, self.proposal = density, proposal
        self.fresh, self.steps_on = fresh, steps_on
        self.members = density.members if isinstance(density, Stack) else 1
        self.smoothing = _one_each(smoothing, self.members)
        self.draws = self.members * (fresh + 1 + steps_on)
        self.rows = rows
        self._drops = any(isinstance(m, Dropout) and m.level > 0 for m in density.modules())
        self.register_buffer("latents", rows.mixtures.sample(self.members))
        self.register_buffer("visits", torch.zeros(len(rows)))
        self.register_buffer("moves", torch.zeros(self.members, len(rows)))
        for name in PROPOSING:
            self.register_buffer(f"proposing_{name}", torch.tensor(getattr(mixture, name)))
        self._networks: tuple[MixtureNetwork, ...] = ()  # no part of what is trained
        self.register_load_state_dict_pre_hook(_restore_proposals)

    def forward(self, data: PreparedRows) -> Tensor:
        """Move the rows' chains; the answer estimates ``log p(w)``, its gradient is the step."""
        if not self.training:
            return self._by_member(self.weigh(data, self._fresh(data)).log_marginal()).mean(0)
        draws = self._visit(data)
        if self.steps_on == 0:
            log_p = (draws.normalised * self._log_prob(draws.v)).sum(0)
        else:
            log_p = self._log_prob(self._blurred(draws, data)).mean(0)
        return self._by_member(draws.log_marginal() + log_p - log_p.detach()).mean(0)

    @property
    def proposing(self) -> Mixture:
        """The mixture whose posteriors propose."""
        return Mixture(*(getattr(self, f"proposing_{name}").numpy() for name in PROPOSING))

    @property
    def network(self) -> MixtureNetwork | None:
        """The network that proposes beside the mixture, if one does."""
        return self._networks[0] if self._networks else None

    def propose_by(self, mixture: Mixture, network: MixtureNetwork | None = None) -> None:
        """Let another mixture of as many components propose from now on, or a network beside it."""
        self.rows.propose_by(mixture, network)
        self._networks = () if network is None else (network,)
        for name in PROPOSING:
            getattr(self, f"proposing_{name}").copy_(torch.tensor(getattr(mixture, name)))

    def get_extra_state(self) -> Tensor:
        """Return the weights of the proposing network, one after another."""
        if self.network is None:
            return torch.empty(0)
        return parameters_to_vector(self.network.parameters()).detach()

    def set_extra_state(self, state: Tensor) -> None:
        """Let the network with these weights propose."""
        if torch.equal(state, self.get_extra_state()):
            return
        network = None
        if len(state):
            network = proposing_network(self.rows)
            vector_to_parameters(state, network.parameters())
        self.propose_by(self.proposing, network)

    def refresh_rate(self) -> Tensor:
        """How often a fresh value won, for each row that was visited."""
        visited = self.visits > 0
        return self.moves[:, visited].mean(0) / self.visits[visited]

    def efficiency(self, rows: PreparedRows, draws: int) -> float:
        """Mean effective sample size of so many proposals, as a share of them."""
        v = self.proposal.sample(rows, self.members * draws).unflatten(0, (self.members, draws))
        return float(self.weigh(rows, v).effective_sample_size().mean()) / draws

    @torch.no_grad()
    def weigh(self, data: PreparedRows, v: Tensor) -> WeightedDraws:
        """Weigh ``(members, K, N, D)`` by the exact posterior; dropout never touches a weight.

        The answer has ``members * N`` rows.
        """
        count = v.shape[1]
        log_ratio = self.proposal.log_ratio(data, v.flatten(0, 1)).unflatten(0, (-1, count))
        v = v.transpose(0, 1).flatten(1, 2)
        with without_dropout(self.density) if self._drops else nullcontext():
            log_weights = self._log_prob(v) + log_ratio.transpose(0, 1).flatten(1)
        return WeightedDraws(v, log_weights)

    def _log_prob(self, v: Tensor) -> Tensor:
        """Log density ``(K, members * N)`` of ``v``, each member's of its own rows."""
        if not isinstance(self.density, Stack):
            return self.density.log_prob(v)
        own = v.unflatten(1, (self.members, -1)).transpose(0, 1)
        return self.density.log_prob(own).transpose(0, 1).flatten(1)

    def _by_member(self, values: Tensor) -> Tensor:
        return values.unflatten(0, (self.members, -1))

    def _fresh(self, data: PreparedRows) -> Tensor:
        fresh = self.proposal.sample(data, self.members * self.fresh)
        return fresh.unflatten(0, (self.members, self.fresh))

    @torch.no_grad()
    def _visit(self, data: PreparedRows) -> WeightedDraws:
        """Let fresh values compete with the kept ones, and keep a winner for each row."""
        kept = self.latents[:, data.row].unsqueeze(1)
        draws = self.weigh(data, torch.cat([kept, self._fresh(data)], 1))
        winner = torch.multinomial(draws.normalised.mT, 1).squeeze(1)
        won = draws.v[winner, torch.arange(len(winner))]
        self.latents[:, data.row] = self._by_member(won)
        self.visits[data.row] += 1
        self.moves[:, data.row] += self._by_member((winner > 0).to(self.moves))
        return draws

    @torch.no_grad()
    def _blurred(self, draws: WeightedDraws, data: PreparedRows) -> Tensor:
        v = draws.resample(self.steps_on)
        if max(self.smoothing) == 0:
            return v
        white = torch.randn_like(v).unflatten(1, (self.members, -1)).unsqueeze(-1)
        blur = (data.observations.noise.cholesky() @ white).squeeze(-1)
        return v + (blur * v.new_tensor(self.smoothing).sqrt()[:, None, None]).flatten(1, 2)


def proposing_network(rows: PreparedRows) -> MixtureNetwork:
    """Make a network, not yet trained, that can propose for these rows."""
    data = rows.observations
    n_features = data.features().shape[1]
    return MixtureNetwork(data.latent_dim, n_features, NETWORK_COMPONENTS, hidden=NETWORK_WIDTH)


def _one_each(smoothing: float | Sequence[float], members: int) -> tuple[float, ...]:
    shares = tuple(smoothing) if isinstance(smoothing, Sequence) else (smoothing,) * members
    if len(shares) != members:
        raise ValueError(f"Expected smoothing for each of {members} members; got {len(shares)}.")
    for share in shares:
        check_number("smoothing", share, 0)
    return shares


def _restore_proposals(chains: Chains, state: dict[str, Tensor], *_: Any) -> None:
    """Before a saved state is taken: prepare the rows by the mixture that proposed then."""
    saved = Mixture(*(state[f"proposing_{name}"].numpy() for name in PROPOSING))
    if any((getattr(saved, n) != getattr(chains.proposing, n)).any() for n in PROPOSING):
        chains.rows.propose_by(saved, chains.network)
