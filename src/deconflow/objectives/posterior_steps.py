r"""How a posterior learns beside a density step that does not depend on it.

An unbiased estimate of ``log p(w)`` has the same expectation whatever the posterior, so its
gradient teaches the posterior nothing but noise: the posterior gets a step of its own
(:func:`proposal_step`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from deconflow.densities import Density, simulate
from deconflow.objectives.likelihood import PosteriorLikelihood
from deconflow.observations import Observations
from deconflow.posteriors import PosteriorModel, weigh


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
        return PosteriorLikelihood(posterior)(simulate(density, data))
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
