r"""Forward KL: a posterior learns from draws of the truth, and so covers all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.objectives.base import Objective
from deconflow.objectives.likelihood import Pairs
from deconflow.observations import Observations
from deconflow.posteriors import Posterior, WeightedDraws, weigh


def simulate(density: Density, data: Observations) -> Pairs:
    r"""Draw :math:`v \sim p(v)` for each row, and measure it with the row's own noise."""
    with undisturbed(density):
        v = density.sample(len(data)).to(data.w)
    return Pairs(data.remeasure(v), v)


def weighted_log_prob(posterior: Posterior, data: Observations, draws: WeightedDraws) -> Tensor:
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

    def __init__(self, density: Density, posterior: Posterior) -> None:
        super().__init__()
        self.density, self.posterior = density, posterior

    def forward(self, data: Observations) -> Tensor:
        """Return the log density of one simulated pair a row."""
        pairs = simulate(self.density, data)
        return self.posterior.log_prob(pairs.observations, pairs.v.unsqueeze(0)).squeeze(0)


class WakePosterior(Objective):
    r"""Forward KL on the rows themselves: :math:`E_{p(v | w)}[\log q(v | w)]`.

    The posterior's own draws stand for those of the truth, by self-normalised weights: biased
    for few draws, right for many. The density is left as it is.
    """

    def __init__(self, density: Density, posterior: Posterior, draws: int) -> None:
        super().__init__()
        if draws < 2:
            raise ValueError(f"Expected at least two draws a row to weigh; got {draws}.")
        self.density, self.posterior, self.draws = density, posterior, draws

    def forward(self, data: Observations) -> Tensor:
        """Return the weighted log density of each row's draws."""
        draws = weigh_undisturbed(self.density, self.posterior, data, self.draws)
        return weighted_log_prob(self.posterior, data, draws)


def weigh_undisturbed(
    density: Density, posterior: Posterior, data: Observations, k: int
) -> WeightedDraws:
    """Draw and weigh without dropout and without gradients."""
    with undisturbed(density, posterior):
        return weigh(density, posterior, data, k)


@contextmanager
def undisturbed(*models: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off inside the block: what is computed here is a weight."""
    were = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for model, was in zip(models, were, strict=True):
            model.train(was)
