"""A running average of weights."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from deconflow.objectives import Objective


class RunningAverage:
    r"""A copy of an objective whose weights follow :math:`a \leftarrow d a + (1 - d) \theta`.

    The first update copies the weights, so that the start does not linger.
    """

    def __init__(self, objective: Objective, decay: float) -> None:
        self.objective, self.decay, self.updates = copy.deepcopy(objective), decay, 0
        self.objective.requires_grad_(False)
        self._mine: list[Tensor] = list(self.objective.parameters())
        self._theirs: list[Tensor] = list(objective.parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Take the current weights in."""
        share = 1.0 - self.decay if self.updates else 1.0
        torch._foreach_lerp_(self._mine, self._theirs, share)
        self.updates += 1
