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

from typing import Any

import torch
from torch import Tensor

from deconflow.checks import check_integer, check_number
from deconflow.densities.base import Density
from deconflow.objectives.base import Objective
from deconflow.posteriors.defensive import Defensive, PreparedRows
from deconflow.posteriors.resampling import WeightedDraws
from deconflow.xd.mixture import Mixture

PROPOSING = ("weights", "means", "covariances")


class Chains(Objective):
    """The noisy log-likelihood, by one chain a row.

    Parameters
    ----------
    density
        What is trained.
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
        covariance. Keeps the density from following single rows.

    Attributes
    ----------
    latents : Tensor
        ``(N, D)``: what each row has kept.
    visits, moves : Tensor
        ``(N,)``: how often a row was visited, and how often a fresh value won.
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
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_integer("fresh", fresh, 1)
        check_integer("steps_on", steps_on, 0)
        check_number("smoothing", smoothing, 0)
        self.density, self.proposal = density, proposal
        self.fresh, self.steps_on, self.smoothing = fresh, steps_on, smoothing
        self.draws = fresh + 1 + steps_on
        self.rows = rows
        self.register_buffer("latents", rows.mixtures.sample(1)[0])
        self.register_buffer("visits", torch.zeros(len(rows)))
        self.register_buffer("moves", torch.zeros(len(rows)))
        for name in PROPOSING:
            self.register_buffer(f"proposing_{name}", torch.tensor(getattr(mixture, name)))
        self.register_load_state_dict_pre_hook(_restore_proposals)

    def forward(self, data: PreparedRows) -> Tensor:
        """Move the rows' chains; the answer estimates ``log p(w)``, its gradient is the step."""
        if not self.training:
            return self.weigh(data, self.proposal.sample(data, self.fresh)).log_marginal()
        draws = self._visit(data)
        if self.steps_on == 0:
            log_p = (draws.normalised * self.density.log_prob(draws.v)).sum(0)
        else:
            log_p = self.density.log_prob(self._blurred(draws, data)).mean(0)
        return draws.log_marginal() + log_p - log_p.detach()

    @property
    def proposing(self) -> Mixture:
        """The mixture whose posteriors propose."""
        return Mixture(*(getattr(self, f"proposing_{name}").numpy() for name in PROPOSING))

    def propose_by(self, mixture: Mixture) -> None:
        """Let another mixture of as many components propose from now on."""
        self.rows.propose_by(mixture)
        for name in PROPOSING:
            getattr(self, f"proposing_{name}").copy_(torch.tensor(getattr(mixture, name)))

    def refresh_rate(self) -> Tensor:
        """How often a fresh value won, for each row that was visited."""
        visited = self.visits > 0
        return self.moves[visited] / self.visits[visited]

    @torch.no_grad()
    def weigh(self, data: PreparedRows, v: Tensor) -> WeightedDraws:
        """Weigh values ``(K, N, D)`` by the exact posterior; dropout never touches a weight."""
        was_training = self.density.training
        self.density.eval()
        log_weights = self.density.log_prob(v) + self.proposal.log_ratio(data, v)
        self.density.train(was_training)
        return WeightedDraws(v, log_weights)

    @torch.no_grad()
    def _visit(self, data: PreparedRows) -> WeightedDraws:
        """Let fresh values compete with the kept ones, and keep a winner for each row."""
        kept = self.latents[data.row].unsqueeze(0)
        draws = self.weigh(data, torch.cat([kept, self.proposal.sample(data, self.fresh)]))
        winner = torch.multinomial(draws.normalised.mT, 1).squeeze(1)
        self.latents[data.row] = draws.v[winner, torch.arange(len(data))]
        self.visits[data.row] += 1
        self.moves[data.row] += (winner > 0).to(self.moves)
        return draws

    @torch.no_grad()
    def _blurred(self, draws: WeightedDraws, data: PreparedRows) -> Tensor:
        v = draws.resample(self.steps_on)
        if self.smoothing == 0:
            return v
        factor = data.observations.noise.cholesky()
        return v + self.smoothing**0.5 * (factor @ torch.randn_like(v).unsqueeze(-1)).squeeze(-1)


def _restore_proposals(chains: Chains, state: dict[str, Tensor], *_: Any) -> None:
    """Before a saved state is taken: prepare the rows by the mixture that proposed then."""
    saved = Mixture(*(state[f"proposing_{name}"].numpy() for name in PROPOSING))
    if any((getattr(saved, n) != getattr(chains.proposing, n)).any() for n in PROPOSING):
        chains.rows.propose_by(saved)
