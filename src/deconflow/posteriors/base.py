"""The one abstraction for posteriors ``q(v | w, noise)``, and weighted draws from them.

Sampling-importance-resampling gives exact posteriors in the limit, from any proposal.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deconflow.densities import Density
from deconflow.observations import Observations
from deconflow.randomness import own_generator


class PosteriorModel(nn.Module, ABC):
    """A distribution of the true value given the observation, for every row at once.

    Attributes
    ----------
    differentiable : bool
        Whether draws are differentiable functions of the parameters, as the bounds need;
        forward KL does without.
    """

    differentiable: bool = True

    @abstractmethod
    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``v`` of shape ``(k, N, D)``, with its log density ``(k, N)``."""

    @abstractmethod
    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``v`` with shape ``(k, N, D)``."""


@dataclass(frozen=True)
class WeightedDraws:
    r"""Proposals ``v`` of shape ``(K, N, D)`` with log weights ``(K, N)``.

    .. math:: \log \omega = \log p(v) + \log p(w | v) - \log q(v | w)
    """

    v: Tensor
    log_weights: Tensor

    @property
    def normalised(self) -> Tensor:
        """Weights ``(K, N)`` that sum to one over the draws of each row."""
        return torch.softmax(self.log_weights, 0)

    def log_marginal(self) -> Tensor:
        """Importance-weighted estimate of ``log p(w)``, ``(N,)``; a lower bound in expectation."""
        return torch.logsumexp(self.log_weights, 0) - math.log(len(self.v))

    def effective_sample_size(self) -> Tensor:
        """Return ``1 / sum omega^2`` of the normalised weights, ``(N,)``, between 1 and K."""
        return 1 / self.normalised.square().sum(0)

    def mean(self) -> Tensor:
        """Posterior means ``(N, D)``."""
        return (self.normalised.unsqueeze(-1) * self.v).sum(0)

    def covariance(self) -> Tensor:
        """Posterior covariances ``(N, D, D)``."""
        offset = self.v - self.mean()
        return torch.einsum("kn,kni,knj->nij", self.normalised, offset, offset)

    def split(self, counts: list[int]) -> "list[WeightedDraws]":
        """Split the draws into sets of these many draws per row."""
        pairs = zip(self.v.split(counts), self.log_weights.split(counts), strict=True)
        return [WeightedDraws(v, log_weights) for v, log_weights in pairs]

    def choose(self, n: int) -> Tensor:
        """Draw the numbers ``(N, n)`` of proposals, by weight."""
        own = own_generator(self.v.device)
        return torch.multinomial(self.normalised.mT, n, replacement=True, generator=own)

    def resample(self, n: int) -> Tensor:
        """Draw ``(n, N, D)`` from the proposals by weight."""
        choice = self.choose(n).mT
        return torch.gather(self.v, 0, choice.unsqueeze(-1).expand(-1, -1, self.v.shape[-1]))


def weigh(density: Density, posterior: PosteriorModel, data: Observations, k: int) -> WeightedDraws:
    """Draw ``k`` proposals per row from ``posterior`` and weigh them by the truth.

    References
    ----------
    Rubin (1988), "Using the SIR algorithm to simulate posterior distributions"
    """
    v, log_q = posterior.sample(data, k)
    log_p = density.log_prob(v)
    return WeightedDraws(v, log_p + data.log_likelihood(v) - log_q)
