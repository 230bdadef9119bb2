"""The one abstraction for posteriors ``q(v | w, noise)``."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from deconflow.observations import Observations


class PosteriorModel(nn.Module, ABC):
    """A law of the truth given what was observed, for every row at once.

    Attributes
    ----------
    differentiable : bool
        Whether draws are differentiable functions of the law's parameters, as the bounds need;
        forward KL does without.
    """

    differentiable: bool = True

    @abstractmethod
    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``v`` of shape ``(k, N, D)``, with its log density ``(k, N)``."""

    @abstractmethod
    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``v`` with shape ``(k, N, D)``."""
