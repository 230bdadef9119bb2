r"""A network that gives each row a Gaussian mixture as its posterior."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deconflow.checks import check_integer
from deconflow.densities import ResidualNetwork
from deconflow.observations import Observations
from deconflow.posteriors.base import PosteriorModel
from deconflow.posteriors.coordinates import from_truth, network_features, to_truth
from deconflow.posteriors.row_mixtures import RowMixtures
from deconflow.randomness import own_generator

LARGEST_LOG_SD = 5.0
START_SPREAD = 0.5


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
        check_integer("components", components, 1)
        self.dim, self.n_features = dim, n_features
        self.components = components
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
            v, outer = to_truth(data, z)
            return v, mixture.log_prob(z) - outer

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        z, outer = from_truth(data, v)
        return self.mixture(data).log_prob(z) + outer

    def mixture(self, data: Observations) -> RowMixtures:
        """Return the mixture of each row, in the network's coordinates."""
        output = self.network(network_features(data, self.n_features))
        parts = output.unflatten(-1, (self.components, -1)).split(self.sizes, -1)
        logits, means, raw, below = parts
        log_pivots = LARGEST_LOG_SD * torch.tanh(raw / LARGEST_LOG_SD)
        whiteners = log_pivots.exp().unsqueeze(-1) * _unit_lower(below, self.dim)
        own, eye = whiteners.detach(), torch.eye(self.dim).to(whiteners)
        factors = torch.linalg.solve_triangular(own, eye, upper=False)  # draws carry no derivative
        log_weights = torch.log_softmax(logits.squeeze(-1), -1)
        return RowMixtures.from_factors(log_weights, means, factors, whiteners, -log_pivots.sum(-1))

    @torch.no_grad()
    def row_mixtures(self, data: Observations) -> RowMixtures:
        """Lay out each row's mixture in the truth's coordinates, for many draws.

        The noise must not have a bounded support: only then are the coordinates an affine map.
        """
        law = self.mixture(data)
        corners = torch.cat([torch.zeros(1, self.dim), torch.eye(self.dim)]).to(law.means)
        v, _ = to_truth(data, corners.unsqueeze(1).expand(-1, len(data), -1))
        origin, turn = v[0], (v[1:] - v[0]).permute(1, 2, 0).unsqueeze(1)
        whiteners = law.whiteners.unflatten(1, (self.components, -1)) @ torch.linalg.inv(turn)
        return RowMixtures.from_factors(
            law.log_weights,
            origin.unsqueeze(1) + (turn @ law.means.unsqueeze(-1)).squeeze(-1),
            turn @ law.factors,
            whiteners,
            torch.linalg.slogdet(turn).logabsdet + law.log_dets,
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


def _unit_lower(below: Tensor, dim: int) -> Tensor:
    """Put ``(..., D (D - 1) / 2)`` below a diagonal of ones, ``(..., D, D)``."""
    i, j = torch.tril_indices(dim, dim, -1, device=below.device)
    eye = torch.eye(dim, dtype=below.dtype, device=below.device)
    factor = eye.expand(*below.shape[:-1], dim, dim).clone()
    factor[..., i, j] = below
    return factor
