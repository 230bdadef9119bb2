r"""A density whose conditionals are Gaussian mixtures."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deconflow.densities.base import Density
from deconflow.densities.networks import MaskedNetwork
from deconflow.randomness import own_generator

LARGEST_LOG_SD = 5.0


class ConditionalMixture(Density):
    r"""The product of one-dimensional Gaussian mixtures, each given the dimensions before it.

    .. math:: p(v) = \prod_d \sum_k \pi_k(v_{<d}) \, N(v_d; \mu_k(v_{<d}), \sigma_k^2(v_{<d}))

    Parameters
    ----------
    dim
        Number of dimensions.
    components
        Number of Gaussians in each conditional.
    **network
        As for :class:`~deconflow.densities.networks.MaskedNetwork`.

    References
    ----------
    Uria, Murray, Larochelle (2013), "RNADE", https://arxiv.org/abs/1306.0186
    """

    def __init__(self, dim: int, components: int, **network) -> None:  # noqa: ANN003
        super().__init__()
        self.dim = dim
        self.network = MaskedNetwork(dim, 3 * components, **network)
        # Equal components would stay equal: start with means side by side.
        with torch.no_grad():
            _, means, _ = self.network.output.bias.view(dim, 3, components).unbind(1)
            means += torch.linspace(-1, 1, components) if components > 1 else 0.0

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        shape, v = v.shape[:-1], torch.atleast_2d(v)
        log_weights, means, log_sds = self._conditionals(v)
        white = (v.mT.unsqueeze(-2) - means) * torch.exp(-log_sds)
        log_parts = log_weights - log_sds - 0.5 * white.square()
        log_p = torch.logsumexp(log_parts, -2).sum(-2) - 0.5 * self.dim * math.log(2 * math.pi)
        return log_p.reshape(shape)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, one dimension after another."""
        like = self.network.output.bias
        v = torch.zeros(n, self.dim, dtype=like.dtype, device=like.device)
        own = own_generator(like.device)
        for d in self.network.places.argsort():
            log_weights, means, log_sds = (part[d].mT for part in self._conditionals(v))
            part = torch.multinomial(log_weights.exp(), 1, generator=own)
            white = torch.empty_like(v[:, :1]).normal_(generator=own)
            v[:, d] = (means.gather(1, part) + log_sds.gather(1, part).exp() * white)[:, 0]
        return v

    def _conditionals(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log weights, means and log standard deviations, each ``(..., dim, components, N)``.

        Rows are last, because there are more of them than components: sums over a short last axis
        are slow.
        """
        rows_last = self.network(v).flatten(-2).mT.contiguous()
        logits, means, raw = rows_last.unflatten(-2, (self.dim, 3, -1)).unbind(-3)
        bound = LARGEST_LOG_SD
        log_sds = 2 * bound * torch.sigmoid(raw * (2 / bound)) - bound  # bound * tanh(raw / bound)
        return torch.log_softmax(logits, -2), means, log_sds
