r"""The paper's recognition network: an inverse autoregressive flow given ``w`` and its noise."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from deconflow.densities import (
    Architecture,
    AutoregressiveLayer,
    ResidualNetwork,
    autoregressive_layer,
    compose,
    interleave_lu,
)
from deconflow.observations import Observations
from deconflow.posteriors.base import PosteriorModel
from deconflow.posteriors.coordinates import from_truth, network_features, to_truth
from deconflow.randomness import own_generator


class RecognitionFlow(PosteriorModel):
    r"""An inverse autoregressive flow :math:`v = T(u; c(w, S))` with :math:`u` standard normal.

    A residual network embeds ``w`` and the noise features into a context ``c`` that enters
    every layer; samples and their densities take one pass.

    Parameters
    ----------
    dim
        Number of dimensions of the truth.
    n_features
        Number of columns of :meth:`Observations.features`.
    size
        Sizes of the flow.
    context_dim
        Size of the embedding.
    residual
        Residual (ResMADE) or plain (MADE) networks in the layers.
    anchored
        If true, the flow describes the truth in the coordinates in which the posterior of a
        standard normal prior is standard normal (:class:`~deconflow.posteriors.Whitening`): it
        then starts at the posterior of a Gaussian density, and stays right where the noise is
        tiny or huge. False is the paper's network.

    References
    ----------
    Kingma et al. (2016), https://arxiv.org/abs/1606.04934
    """

    def __init__(
        self,
        dim: int,
        n_features: int,
        size: Architecture = Architecture(),
        *,
        context_dim: int = 64,
        residual: bool = True,
        anchored: bool = True,
    ) -> None:
        super().__init__()
        self.dim, self.n_features, self.anchored = dim, n_features, anchored
        self.embedding = ResidualNetwork(
            n_features, context_dim, hidden=size.hidden, blocks=2, dropout=size.dropout
        )
        self.layers = nn.ModuleList(
            interleave_lu(
                dim,
                size.layers,
                lambda: autoregressive_layer(dim, size, residual=residual, context_dim=context_dim),
            )
        )
        if anchored:  # exactly: rows of huge noise have huge features, which small weights enlarge
            for layer in self.layers[1::2]:
                nn.init.zeros_(cast(AutoregressiveLayer, layer).network.output.weight)

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities, in one pass."""
        u = data.w.new_empty(k, len(data), self.dim)
        u.normal_(generator=own_generator(u.device))
        z, inner = compose(self.layers, self._context(data)).call_and_ladj(u)
        v, outer = to_truth(data, z, self.anchored)
        log_normal = -0.5 * (u.square().sum(-1) + self.dim * math.log(2 * math.pi))
        return v, log_normal - inner - outer

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``, in one pass for each dimension."""
        z, outer = from_truth(data, v, self.anchored)
        u, inner = compose(self.layers, self._context(data)).inv.call_and_ladj(z)
        return -0.5 * (u.square().sum(-1) + self.dim * math.log(2 * math.pi)) + inner + outer

    def _context(self, data: Observations) -> Tensor:
        return self.embedding(network_features(data, self.n_features))
