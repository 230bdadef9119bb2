r"""The paper's recognition network: an inverse autoregressive flow given ``w`` and its noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.distributions import Transform

from deconflow.densities.architectures import Architecture, autoregressive_layer, interleave_lu
from deconflow.densities.networks import ResidualNetwork
from deconflow.densities.transforms import compose
from deconflow.observations import Observations
from deconflow.posteriors.base import Posterior
from deconflow.posteriors.linear_gaussian import Whitening

SOFT_LIMIT = 10.0


class RecognitionFlow(Posterior):
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
        standard normal prior is standard normal (:class:`LinearGaussian`): it then starts
        right for a Gaussian density, and stays right where the noise is tiny or huge. False
        is the paper's network to the letter.

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

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities, in one pass."""
        u = torch.randn(k, len(data), self.dim, dtype=data.w.dtype, device=data.w.device)
        z, ladj = compose(self.layers, self._context(data)).call_and_ladj(u)
        v, outer = self._outwards(data, z)
        log_normal = -0.5 * (u.square().sum(-1) + self.dim * math.log(2 * math.pi))
        return v, log_normal - ladj - outer

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``, in one pass for each dimension."""
        z, outer = self._inwards(data, v)
        u, ladj = compose(self.layers, self._context(data)).inv.call_and_ladj(z)
        return -0.5 * (u.square().sum(-1) + self.dim * math.log(2 * math.pi)) + ladj + outer

    def _context(self, data: Observations) -> Tensor:
        features = data.features()
        if features.shape[-1] != self.n_features:
            raise ValueError(
                f"Expected observations with {self.n_features} features, as in training; got "
                f"{features.shape[-1]}. Missing values, projections and the kind of noise law must "
                "be the same kind as those the model was trained on."
            )
        return self.embedding(SOFT_LIMIT * torch.asinh(features / SOFT_LIMIT))

    def _outwards(self, data: Observations, z: Tensor) -> tuple[Tensor, Tensor | float]:
        """Map flow coordinates to the truth's, with the log-determinant."""
        support = data.noise.support_map()
        if support is not None:
            _refuse_partial(data)
            to_support, unit = support
            n = to_support(z)
            return data.w - n / unit, _log_slope(to_support, z, n, unit)
        return Whitening.of(data).restore(z) if self.anchored else (z, 0.0)

    def _inwards(self, data: Observations, v: Tensor) -> tuple[Tensor, Tensor | float]:
        """Map the truth's coordinates to the flow's, with the log-determinant."""
        support = data.noise.support_map()
        if support is not None:
            _refuse_partial(data)
            to_support, unit = support
            n = (data.w - v) * unit
            z = to_support.inv(n)
            return z, -_log_slope(to_support, z, n, unit)
        return Whitening.of(data).whiten(v) if self.anchored else (v, 0.0)


def _log_slope(to_support: Transform, z: Tensor, n: Tensor, unit: Tensor) -> Tensor:
    """Log-determinant of ``z -> n / unit``, summed over the values of a row."""
    ladj = to_support.log_abs_det_jacobian(z, n)
    return (ladj.sum(-1) if ladj.dim() == z.dim() else ladj) - unit.log().sum()


def _refuse_partial(data: Observations) -> None:
    if data.projection is not None or data.observed is not None:
        raise ValueError(
            "Expected complete rows without a projection, because the noise has a bounded "
            "support; got missing values or a projection."
        )
