"""Proposals that follow the flow: a mixture fitted to its draws, if that proposes better."""

from __future__ import annotations

import torch

from deconflow.densities.base import Density
from deconflow.fitting import History
from deconflow.objectives.chains import Chains
from deconflow.posteriors.defensive import PreparedRows
from deconflow.xd.fitting import fit_exact
from deconflow.xd.mixture import Mixture

AT = (0.25, 0.5)
"""When, as shares of the training."""

DRAWN, ROWS, DRAWS = 5_000, 300, 32


class Refit:
    """A callback of the fit loop that refits the proposing mixture a few times."""

    def __init__(self, chains: Chains, epochs: int) -> None:
        self.chains = chains
        self.epochs = {round(share * epochs) for share in AT}

    def __call__(self, epoch: int, history: History) -> None:
        """Try another mixture after some epochs."""
        if epoch not in self.epochs:
            return
        mixture = mixture_of(self.chains.density, len(self.chains.proposing))
        some = self.chains.rows[:: max(1, len(self.chains.rows) // ROWS)]
        other = PreparedRows.of(some.observations, mixture, some.mixtures.means.dtype)
        if self._efficiency(other) > self._efficiency(some):
            self.chains.propose_by(mixture)

    @torch.no_grad()
    def _efficiency(self, rows: PreparedRows) -> float:
        like = rows.mixtures.means
        rows = rows.to(dtype=like.dtype, device=like.device)
        draws = self.chains.weigh(rows, self.chains.proposal.sample(rows, DRAWS))
        return float(draws.effective_sample_size().mean())


@torch.no_grad()
def mixture_of(density: Density, n_components: int) -> Mixture:
    """Fit a mixture to draws from a density."""
    drawn = density.sample(DRAWN).double()
    drawn = drawn[drawn.isfinite().all(1)]
    return fit_exact(drawn.numpy(), n_components, seed=int(torch.randint(2**31 - 1, ())))
