r"""Normalizing flows as densities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.densities.transforms import compose
from deconflow.randomness import own_generator


class StandardNormal(Density):
    """The standard normal density."""

    zeros: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("zeros", torch.zeros(dim))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        return -0.5 * v.square().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        white = self.zeros.new_empty(n, self.dim)
        return white.normal_(generator=own_generator(white.device))


class Flow(Density):
    r"""The density of :math:`v = T^{-1}(u)` with :math:`u` from a base density.

    .. math:: \log p(v) = \log p_u(T(v)) + \log |\det \partial T(v) / \partial v|

    Parameters
    ----------
    layers
        The layers of ``T``, from ``v`` to ``u``.
    base
        The density of ``u``.
    """

    def __init__(self, layers: Sequence[nn.Module], base: Density) -> None:
        super().__init__()
        self.dim = base.dim
        self.layers = nn.ModuleList(layers)
        self.base = base

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        u, log_det = self.to_base(v)
        return self.base.log_prob(u) + log_det

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        return self.from_base(self.base.sample(n))

    def to_base(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``u = T(v)`` and the log-determinant of the map."""
        return compose(self.layers).call_and_ladj(v)

    def from_base(self, u: Tensor) -> Tensor:
        """Return ``v = T^{-1}(u)``."""
        return compose(self.layers).inv(u)
