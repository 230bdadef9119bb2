r"""Networks as posteriors: the paper's recognition flow, and Gaussian mixtures.

Both see ``w`` and its noise, and work in coordinates in which a posterior is nearly standard.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import AffineTransform, Transform, constraints, identity_transform

from deconflow.checks import refuse_if
from deconflow.densities import (
    Architecture,
    AutoregressiveLayer,
    ComposedTransform,
    ResidualNetwork,
    autoregressive_layer,
    compose,
    interleave_lu,
)
from deconflow.observations import Observations
from deconflow.posteriors.mixtures import (
    PosteriorModel,
    RowMixtures,
    log_pivots,
    standard_posterior,
)
from deconflow.randomness import own_generator

SOFT_LIMIT = 10.0
LARGEST_LOG_SD = 5.0
START_SPREAD = 0.5


class Whitening(Transform):
    r"""The affine map :math:`v = \mu + C^{-T} z` in which each row's posterior is standard normal.

    That is, the posterior of :math:`v \sim N(0, I)` given :math:`w = R v + n`. With
    :math:`S = L L^T` and :math:`B = L^{-1} R`,

    .. math:: P = I + B^T B = C C^T, \quad
              v | w \sim N(P^{-1} B^T L^{-1} (w - E n), \; P^{-1}).

    This form stays accurate from tiny to huge noise. Noise that is not Gaussian enters by its
    mean and covariance.
    """

    domain = codomain = constraints.real_vector
    bijective = True

    def __init__(self, data: Observations) -> None:
        super().__init__()
        centred = (data.w - data.noise.mean()).unsqueeze(-1)
        mean, self.factor = standard_posterior(data.noise.cholesky(), data.projections(), centred)
        self.mean = mean.squeeze(-1)

    def _call(self, z: Tensor) -> Tensor:
        offset = torch.linalg.solve_triangular(self.factor.mT, self._columns(z), upper=True)
        return self.mean + self._rows(offset, z)

    def _inverse(self, v: Tensor) -> Tensor:
        return self._rows(self.factor.mT @ self._columns(v - self.mean), v)

    def log_abs_det_jacobian(self, z: Tensor, v: Tensor) -> Tensor:
        """Log-determinant of each row, ``(N,)``."""
        return -log_pivots(self.factor)

    def _columns(self, x: Tensor) -> Tensor:
        """Bring ``(k, N, D)`` into one matrix of columns for each factor."""
        return x.reshape(1, -1, x.shape[-1]).mT if len(self.factor) == 1 else x.permute(1, 2, 0)

    def _rows(self, columns: Tensor, like: Tensor) -> Tensor:
        return columns.mT.reshape(like.shape) if len(self.factor) == 1 else columns.permute(2, 0, 1)


def network_features(data: Observations, n_features: int) -> Tensor:
    """Return the features of each row, with far outliers drawn in, or say that they differ."""
    features = data.features()
    if data.noise.flags is None and features.shape[-1] + data.dim == n_features:
        # The network has seen limits, and these rows have none.
        features = torch.cat([features, torch.zeros_like(data.w)], -1)
    refuse_if(
        features.shape[-1] != n_features,
        f"Expected observations with {n_features} features, as in training; got "
        f"{features.shape[-1]}. Missing values, projections and the kind of noise law must "
        "be the same kind as those the model was trained on.",
    )
    return SOFT_LIMIT * torch.asinh(features / SOFT_LIMIT)


def coordinates(data: Observations, anchored: bool = True) -> ComposedTransform:
    """Return the map from a network's coordinates to those of the true values.

    Noise of bounded support: ``w - v`` lies in it. Otherwise, if ``anchored``, the coordinates in
    which the posterior of a standard normal truth is standard normal.
    """
    support = data.noise.support_map()
    if support is None:
        return ComposedTransform(Whitening(data) if anchored else identity_transform)
    refuse_if(
        data.projection is not None or data.observed is not None,
        "Expected complete rows without a projection, because the noise has a bounded "
        "support; got missing values or a projection.",
    )
    to_support, unit, start = support
    return ComposedTransform(
        AffineTransform(start, 1.0, 1), to_support, AffineTransform(data.w, -1 / unit, 1)
    )


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
        v, log_det = self._map(data).call_and_ladj(u)
        return v, self._log_normal(u) - log_det

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``, in one pass for each dimension."""
        u, log_det = self._map(data).inv.call_and_ladj(v)
        return self._log_normal(u) + log_det

    def _map(self, data: Observations) -> ComposedTransform:
        flow = compose(self.layers, self.embedding(network_features(data, self.n_features)))
        return ComposedTransform(flow, coordinates(data, self.anchored))

    def _log_normal(self, u: Tensor) -> Tensor:
        return -0.5 * (u.square().sum(-1) + self.dim * math.log(2 * math.pi))


class MixtureNetwork(PosteriorModel):
    r"""The posterior :math:`q(v | w, n) = \sum_c \pi_c(w, n) \, N(v; m_c(w, n), V_c(w, n))`.

    One pass of a residual network over ``w``, the noise and what is missing gives each row the
    weights, means and full covariances of ``C`` Gaussians; draws and densities are closed forms.
    The covariances are given by Cholesky factors of their inverses, so that a density costs
    no solve.

    The choice of a component has no derivative, so draws and their densities carry none: train
    it by forward KL on simulated pairs, which also makes it cover all of the posterior, as a
    proposal must. It describes the truth in the coordinates in which the posterior of a standard
    normal prior is standard normal (:class:`~deconflow.posteriors.Whitening`).

    Parameters
    ----------
    dim
        Number of dimensions of the truth.
    n_features
        Number of columns of :meth:`Observations.features`.
    components
        Number of Gaussians per row.
    hidden, blocks
        Sizes of the network.

    References
    ----------
    Bishop (1994), "Mixture density networks"
    """

    differentiable = False

    def __init__(
        self,
        dim: int,
        n_features: int,
        components: int = 8,
        *,
        hidden: int = 128,
        blocks: int = 2,
    ) -> None:
        super().__init__()
        self.dim, self.n_features, self.components = dim, n_features, components
        self.sizes = [1, dim, dim, dim * (dim - 1) // 2]
        self.network = ResidualNetwork(
            n_features,
            components * sum(self.sizes),
            hidden=hidden,
            blocks=blocks,
        )
        self._start()

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities, neither with a derivative."""
        with torch.no_grad():
            mixture = self.mixture(data)
            z = mixture.sample(k)
            v, log_det = coordinates(data).call_and_ladj(z)
            return v, mixture.log_prob(z) - log_det

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        z, log_det = coordinates(data).inv.call_and_ladj(v)
        return self.mixture(data).log_prob(z) + log_det

    def mixture(self, data: Observations) -> RowMixtures:
        """Return the mixture of each row, in the network's coordinates."""
        output = self.network(network_features(data, self.n_features))
        logits, means, raw, below = output.unflatten(-1, (self.components, -1)).split(
            self.sizes, -1
        )
        log_scales = LARGEST_LOG_SD * torch.tanh(raw / LARGEST_LOG_SD)
        eye = torch.eye(self.dim).to(below)
        unit_lower = eye.expand(*below.shape[:-1], -1, -1).clone()
        i, j = torch.tril_indices(self.dim, self.dim, -1, device=below.device)
        unit_lower[..., i, j] = below
        whiteners = log_scales.exp().unsqueeze(-1) * unit_lower
        # draws carry no derivative
        factors = torch.linalg.solve_triangular(whiteners.detach(), eye, upper=False)
        return RowMixtures.from_factors(
            torch.log_softmax(logits.squeeze(-1), -1),
            means,
            factors,
            whiteners,
            -log_scales.sum(-1),
        )

    @torch.no_grad()
    def row_mixtures(self, data: Observations) -> RowMixtures:
        """Lay out each row's mixture in the truth's coordinates, for many draws.

        The noise must not have a bounded support: only then are the coordinates an affine map.
        """
        own, white = self.mixture(data), Whitening(data)
        factor = white.factor.unsqueeze(1)
        turn = torch.linalg.inv(factor.mT)
        return RowMixtures.from_factors(
            own.log_weights,
            white.mean.unsqueeze(1) + (turn @ own.means.unsqueeze(-1)).squeeze(-1),
            turn @ own.factors,
            own.whiteners.unflatten(1, (self.components, -1)) @ factor.mT,
            own.log_dets - log_pivots(factor),
        )

    @torch.no_grad()
    def _start(self) -> None:
        """Start near the anchor, with means apart: equal components would stay equal."""
        torch.nn.init.zeros_(self.network.output.weight)
        parts = self.network.output.bias.zero_().unflatten(0, (self.components, -1))
        _, means, raw, _ = parts.split(self.sizes, -1)
        if self.components > 1:
            means += START_SPREAD * torch.empty_like(means).normal_(generator=own_generator())
            raw -= 0.5 * math.log(1 - START_SPREAD**2)  # the whole has about unit variance
