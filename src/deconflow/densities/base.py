"""The one abstraction for densities ``p(v)``, and measurements as a density would have them."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from deconflow.densities.dropout import without_dropout
from deconflow.observations import Observations, Pairs


class Density(nn.Module, ABC):
    """A density ``p(v)`` over ``dim`` values, with parameters that can be trained.

    Attributes
    ----------
    dim : int
        Number of dimensions.
    """

    dim: int

    @abstractmethod
    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``v``, ``(..., dim)``, as ``(...)``."""

    @abstractmethod
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""


def simulate(density: Density, data: Observations) -> Pairs:
    r"""Draw :math:`v \sim p(v)` for each row, and measure it with the row's own noise."""
    with without_dropout(density):
        v = density.sample(len(data)).to(data.w)
    return Pairs(data.remeasure(v), v)
