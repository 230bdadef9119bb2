"""The one abstraction for densities ``p(v)``."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


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
