r"""A Gaussian mixture for every row: the closed form that two posteriors share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MixtureLaw:
    r"""The densities :math:`q_i(z) = \sum_c \pi_{ic} \, N(z; m_{ic}, U_{ic}^{-1} U_{ic}^{-T})`.

    Attributes
    ----------
    log_weights : Tensor
        ``(N, C)``, normalised over the components.
    means : Tensor
        ``(N, C, D)``.
    whiteners : Tensor
        ``U``, ``(N or 1, C, D, D)``.
    log_volumes : Tensor
        ``log |det U|``, ``(N or 1, C)``.
    """

    log_weights: Tensor
    means: Tensor
    whiteners: Tensor
    log_volumes: Tensor

    def log_prob(self, z: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``z`` with shape ``(k, N, D)``."""
        white = torch.einsum("ncij,kncj->knci", self.whiteners, z.unsqueeze(2) - self.means)
        log_parts = self.log_weights + self.log_volumes - 0.5 * white.square().sum(-1)
        return torch.logsumexp(log_parts, -1) - 0.5 * z.shape[-1] * math.log(2 * math.pi)

    def sample(self, k: int, roots: Tensor) -> Tensor:
        """Draw ``(k, N, D)``, without a derivative: the choice of a component has none.

        ``roots`` are the inverses of the whiteners, of the same shape.
        """
        with torch.no_grad():
            choice = torch.multinomial(self.log_weights.exp(), k, replacement=True).mT
            rows = torch.arange(len(self.means), device=choice.device).expand_as(choice)
            means = self.means[rows, choice]
            chosen = roots[rows if len(roots) > 1 else 0, choice]
            return means + torch.einsum("knij,knj->kni", chosen, torch.randn_like(means))
