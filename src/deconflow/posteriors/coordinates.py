r"""What the learned posteriors share: their inputs, and the coordinates they work in."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Transform

from deconflow.observations import Observations

SOFT_LIMIT = 10.0


class Whitening:
    r"""The affine map :math:`v = \mu + C^{-T} z` in which each row's posterior is standard normal.

    That is, the posterior of :math:`v \sim N(0, I)` given :math:`w = R v + n`. With
    :math:`S = L L^T` and :math:`B = L^{-1} R`,

    .. math:: P = I + B^T B = C C^T, \quad
              v | w \sim N(P^{-1} B^T L^{-1} (w - E n), \; P^{-1}).

    This form stays accurate from tiny to huge noise. Noise that is not Gaussian enters by its
    mean and covariance.
    """

    def __init__(self, mean: Tensor, factor: Tensor) -> None:
        self.mean, self.factor = mean, factor

    @classmethod
    def of(cls, data: Observations) -> Whitening:
        """Compute the maps of all rows."""
        L = data.noise.cholesky()
        B = torch.linalg.solve_triangular(L, data.projections(), upper=False)
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


def network_features(data: Observations, n_features: int) -> Tensor:
    """Return the features of each row, with far outliers drawn in, or say that they differ."""
    features = data.features()
    if data.noise.flags is None and features.shape[-1] + data.dim == n_features:
        # The network has seen limits, and these rows have none.
        features = torch.cat([features, torch.zeros_like(data.w)], -1)
    if features.shape[-1] != n_features:
        raise ValueError(
            f"Expected observations with {n_features} features, as in training; got "
            f"{features.shape[-1]}. Missing values, projections and the kind of noise law must "
            "be the same kind as those the model was trained on."
        )
    return SOFT_LIMIT * torch.asinh(features / SOFT_LIMIT)


def to_truth(data: Observations, z: Tensor, anchored: bool = True) -> tuple[Tensor, Tensor | float]:
    """Map a network's coordinates ``z`` to the truth's, with the log-determinant.

    Noise of bounded support: ``w - v`` lies in it. Otherwise, if ``anchored``, the coordinates in
    which the posterior of a standard normal truth is standard normal.
    """
    support = data.noise.support_map()
    if support is not None:
        _refuse_partial(data)
        to_support, unit, start = support
        n = to_support(z + start)
        return data.w - n / unit, _log_slope(to_support, z + start, n, unit)
    return Whitening.of(data).restore(z) if anchored else (z, 0.0)


def from_truth(
    data: Observations, v: Tensor, anchored: bool = True
) -> tuple[Tensor, Tensor | float]:
    """Map the truth's coordinates to a network's, with the log-determinant."""
    support = data.noise.support_map()
    if support is not None:
        _refuse_partial(data)
        to_support, unit, start = support
        n = (data.w - v) * unit
        z = to_support.inv(n)
        return z - start, -_log_slope(to_support, z, n, unit)
    return Whitening.of(data).whiten(v) if anchored else (v, 0.0)


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
