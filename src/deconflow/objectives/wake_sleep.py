r"""Reweighted wake-sleep: density and posterior each learn from weighted draws."""

from __future__ import annotations

import torch
from torch import Tensor

from deconflow.checks import check_number
from deconflow.densities import Density, simulate
from deconflow.objectives.base import Objective
from deconflow.objectives.posterior_steps import weigh_without_dropout, weighted_log_prob
from deconflow.observations import Observations
from deconflow.posteriors import PosteriorModel, WeightedDraws


class WakeSleep(Objective):
    r"""Reweighted wake-sleep with ``K`` draws per row.

    With draws :math:`v_k \sim q(v | w)` and self-normalised weights :math:`\bar\omega_k`, the
    density ascends

    .. math:: \sum_k \bar\omega_k \log p(v_k),

    which is the gradient of the importance-weighted bound, and the posterior descends the forward
    KL: a share ``wake`` of it on those weighted draws, :math:`\sum_k \bar\omega_k \log q(v_k | w)`,
    the rest on a pair simulated from the density with the row's own noise (sleep). Neither needs
    draws that are differentiable.

    The number of each row is the importance-weighted bound, so that fits can be compared.

    Parameters
    ----------
    density, posterior
        What is trained.
    draws
        ``K``, at least two.
    wake
        Share of the weighted draws in the posterior's step, between 0 (all sleep) and 1.

    References
    ----------
    Bornschein and Bengio (2015), https://arxiv.org/abs/1406.2751;
    Le et al. (2019), https://arxiv.org/abs/1805.10469
    """

    def __init__(
        self, density: Density, posterior: PosteriorModel, draws: int, *, wake: float = 0.5
    ) -> None:
        super().__init__()
        if draws < 2:
            raise ValueError(f"Expected at least two draws per row to weigh; got {draws}.")
        if wake != 1:
            check_number("wake", wake, 0, 1)
        self.density, self.posterior, self.draws, self.wake = density, posterior, draws, wake

    def forward(self, data: Observations) -> Tensor:
        """Return the bound of each row, with the gradients of both steps."""
        draws = weigh_without_dropout(self.density, self.posterior, data, self.draws)
        if not torch.is_grad_enabled():
            return draws.log_marginal()
        step = weighted_density(self.density.at(data.given), draws) + self._posterior_step(
            data, draws
        )
        return with_gradient_of(draws.log_marginal(), step)

    def _posterior_step(self, data: Observations, draws: WeightedDraws) -> Tensor:
        step = torch.zeros_like(draws.log_weights[0])
        if self.wake > 0:
            step = step + self.wake * weighted_log_prob(self.posterior, data, draws)
        if self.wake < 1:
            pairs = simulate(self.density, data)
            log_q = self.posterior.log_prob(pairs.observations, pairs.v.unsqueeze(0))
            step = step + (1 - self.wake) * log_q.squeeze(0)
        return step


def weighted_density(density: Density, draws: WeightedDraws) -> Tensor:
    r"""Return :math:`\sum_k \bar\omega_k \log p(v_k)`, ``(N,)``, with the weights held fixed."""
    return (draws.normalised.detach() * density.log_prob(draws.v.detach())).sum(0)


def with_gradient_of(value: Tensor, step: Tensor) -> Tensor:
    """Return the numbers of ``value`` with the gradient of ``step``."""
    return value.detach() + (step - step.detach())
