r"""Coupled chains: the gradient of ``log p(w)`` without bias, by exact posterior expectations."""

import math

import torch
from torch import Tensor

from deconflow.densities import Density, without_dropout
from deconflow.objectives.base import Objective, proposal_step
from deconflow.observations import Observations
from deconflow.posteriors import PosteriorModel, couple, weigh


class CoupledChains(Objective):
    r"""Ascent on :math:`\log p(w)` by coupled chains.

    .. math:: \nabla \log p(w) = E_{p(v | w)}[\nabla \log p(v)],

    with the expectation estimated without bias by :func:`~deconflow.posteriors.couple`. The
    posterior proposes; it learns by a step of its own
    (:func:`~deconflow.objectives.base.proposal_step`), and the better it is, the
    sooner the chains meet. The number of each row is the importance-weighted bound of ``draws``
    draws.

    Parameters
    ----------
    density, posterior
        What is trained.
    draws
        Points that a chain weighs at each step, at least two.
    burn_in, steps
        The chains' averages run from ``burn_in`` to ``steps``.

    References
    ----------
    Ruiz et al. (2021), "Unbiased gradient estimation for variational auto-encoders using coupled
    Markov chains", https://arxiv.org/abs/2010.01845
    """

    def __init__(
        self,
        density: Density,
        posterior: PosteriorModel,
        draws: int,
        *,
        burn_in: int = 2,
        steps: int = 6,
    ) -> None:
        super().__init__()
        self.density, self.posterior = density, posterior
        self.weighed, self.options = draws, {"burn_in": burn_in, "steps": steps}
        self.draws = 2 * draws + (draws - 1) * max(1, steps)

    def forward(self, data: Observations) -> Tensor:
        """Return the bound of each row, with the gradients of both steps."""
        density, posterior = self.density, self.posterior
        if not torch.is_grad_enabled():
            with without_dropout(density, posterior):
                return weigh(density, posterior, data, self.weighed).log_marginal()
        try:
            with without_dropout(density, posterior):
                found = couple(density, posterior, data, self.weighed, **self.options)
        except FloatingPointError:  # no number, which the fit loop counts and skips
            nowhere = data.w.new_zeros(len(data), data.latent_dim)
            return math.nan * density.log_prob(nowhere)
        step = found.expectation(density.log_prob(found.v))
        step = step + proposal_step(density, posterior, data, self.weighed)
        return found.log_marginal.detach() + (step - step.detach())
