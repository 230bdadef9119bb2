r"""How a posterior learns.

By forward KL, from draws of the truth, and so it covers all of it; or beside a density step that
does not depend on it. An unbiased estimate of ``log p(w)`` has the same expectation whatever the
posterior, so its gradient teaches the posterior nothing but noise: the posterior gets a step of its
own (:func:`proposal_step`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from deconflow.densities import Density, simulate, without_dropout
from deconflow.objectives.base import Objective
from deconflow.observations import Observations
from deconflow.posteriors import PosteriorModel, WeightedDraws, weigh


def weigh_without_dropout(
    density: Density, posterior: PosteriorModel, data: Observations, k: int
) -> WeightedDraws:
    """Draw and weigh without dropout and without gradients."""
    with without_dropout(density, posterior):
        return weigh(density, posterior, data, k)


def weighted_log_prob(
    posterior: PosteriorModel, data: Observations, draws: WeightedDraws
) -> Tensor:
    r"""Return :math:`\sum_k \bar\omega_k \log q(v_k | w)`, ``(N,)``, for self-normalised weights.

    Its gradient is that of the forward KL, with draws and weights held fixed.
    """
    weights = draws.normalised.detach()
    return (weights * posterior.log_prob(data, draws.v.detach())).sum(0)


class SleepPosterior(Objective):
    r"""Forward KL on simulated pairs: :math:`E_{p(v) p(w | v)}[\log q(v | w)]`.

    The rows give their noise, what they miss and how they project; ``w`` is drawn anew at every
    call. The density is left as it is.
    """

    def __init__(self, density: Density, posterior: PosteriorModel) -> None:
        super().__init__()
        self.density, self.posterior = density, posterior

    def forward(self, data: Observations) -> Tensor:
        """Return the log density of one simulated pair per row."""
        pairs = simulate(self.density, data)
        return self.posterior.log_prob(pairs.observations, pairs.v.unsqueeze(0)).squeeze(0)


def proposal_step(
    density: Density, posterior: PosteriorModel, data: Observations, k: int
) -> Tensor:
    r"""Return ``(N,)`` numbers whose gradient reaches the posterior only.

    The importance-weighted bound of ``k`` draws where draws are differentiable, forward KL on
    simulated pairs where they are not; zeros for a posterior with nothing to learn.
    """
    if not any(parameter.requires_grad for parameter in posterior.parameters()):
        return data.w.new_zeros(len(data))
    if not posterior.differentiable:
        return SleepPosterior(density, posterior)(data)
    with frozen(density):
        return weigh(density, posterior, data, k).log_marginal()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no gradient of what is computed inside the block reach the model's parameters."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
