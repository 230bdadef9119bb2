r"""The exact posterior of a standard normal prior under Gaussian noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deconflow.observations import Observations
from deconflow.posteriors.base import Posterior


class LinearGaussian(Posterior):
    r"""The posterior of :math:`v \sim N(0, I)` given :math:`w = R v + n`.

    With :math:`S = L L^T` and :math:`B = L^{-1} R`,

    .. math:: P = I + B^T B = C C^T, \quad
              v | w \sim N(P^{-1} B^T L^{-1} (w - E n), \; P^{-1}).

    This form stays accurate from tiny to huge noise. Noise that is not Gaussian enters by its
    mean and covariance.
    """

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities."""
        white = torch.randn(k, len(data), data.latent_dim, dtype=data.w.dtype, device=data.w.device)
        v, ladj = Whitening.of(data).restore(white)
        return v, _log_normal(white) - ladj

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        white, ladj = Whitening.of(data).whiten(v)
        return _log_normal(white) + ladj


class Whitening:
    r"""The affine map :math:`v = \mu + C^{-T} z` of each row's linear-Gaussian posterior."""

    def __init__(self, mean: Tensor, factor: Tensor) -> None:
        self.mean, self.factor = mean, factor

    @classmethod
    def of(cls, data: Observations) -> Whitening:
        """Compute the maps of all rows."""
        L = data.noise.cholesky()
        R = projection_of(data)
        B = torch.linalg.solve_triangular(L, R, upper=False)
        eye = torch.eye(data.latent_dim, dtype=B.dtype, device=B.device)
        C = torch.linalg.cholesky(eye + B.mT @ B)
        centred = (data.w - data.noise.mean()).unsqueeze(-1)
        pulled = B.mT @ torch.linalg.solve_triangular(L, centred, upper=False)
        return cls(torch.cholesky_solve(pulled, C).squeeze(-1), C)

    def restore(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``v`` of ``z`` with shape ``(k, N, D)``, and ``log |dv / dz|``, ``(N,)``."""
        offset = torch.linalg.solve_triangular(self.factor.mT, self._columns(z), upper=True)
        return self.mean + self._rows(offset, z), -self._log_pivots()

    def whiten(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``z`` of ``v`` with shape ``(k, N, D)``, and ``log |dz / dv|``, ``(N,)``."""
        white = self.factor.mT @ self._columns(v - self.mean)
        return self._rows(white, v), self._log_pivots()

    def _log_pivots(self) -> Tensor:
        return self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def _columns(self, x: Tensor) -> Tensor:
        """Bring ``(k, N, D)`` into one matrix of columns for each factor."""
        if len(self.factor) == 1:
            return x.reshape(1, -1, x.shape[-1]).mT
        return x.permute(1, 2, 0)

    def _rows(self, columns: Tensor, like: Tensor) -> Tensor:
        if len(self.factor) == 1:
            return columns.mT.reshape(like.shape)
        return columns.permute(2, 0, 1)


def projection_of(data: Observations) -> Tensor:
    """Return what each row sees of the truth, ``(N or 1, M, D)``, zero rows where missing."""
    if data.projection is not None:
        return data.projection
    if data.observed is not None:
        return torch.diag_embed(data.observed.to(data.w.dtype))
    return torch.eye(data.dim, dtype=data.w.dtype, device=data.w.device).unsqueeze(0)


def _log_normal(z: Tensor) -> Tensor:
    return -0.5 * (z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi))
