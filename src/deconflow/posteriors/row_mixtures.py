r"""A Gaussian mixture for every row, laid out for many draws and densities."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from deconflow.noise.base import Rows
from deconflow.xd import MixturePosterior

NEGLIGIBLE = 1e-300


@dataclass(frozen=True)
class RowMixtures:
    r"""The laws :math:`\sum_c \pi_{ic} N(m_{ic}, L_{ic} L_{ic}^T)` of rows ``i``.

    Attributes
    ----------
    log_weights : Tensor
        ``(N, C)``, minus infinity for components that a row does without.
    means, factors : Tensor
        ``(N, C, D)`` and ``(N, C, D, D)``.
    whiteners, centres : Tensor
        The inverse factors, and these times the means, as ``(N, C D, D)`` and ``(N, C D)``, so
        that all components of a row are whitened by one product.
    log_dets : Tensor
        ``(N, C)`` log-determinants of the factors.
    """

    log_weights: Tensor
    means: Tensor
    factors: Tensor
    whiteners: Tensor
    centres: Tensor
    log_dets: Tensor

    @classmethod
    def of(cls, posterior: MixturePosterior, most: int) -> RowMixtures:
        """Lay out the ``most`` heaviest components of each row."""
        most = min(most, posterior.weights.shape[1])
        chosen = np.argpartition(-posterior.weights, most - 1, axis=1)[:, :most]
        row = np.arange(len(posterior))[:, None]
        weights = posterior.weights[row, chosen]
        weights = weights / weights.sum(1, keepdims=True)
        means, factors = posterior.means[row, chosen], _factors(posterior.covariances[row, chosen])
        whiteners = np.linalg.inv(factors)
        centres = (whiteners @ means[..., None])[..., 0]
        log_dets = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
        n, count, dim = means.shape
        parts = (
            np.log(np.maximum(weights, NEGLIGIBLE)), means, factors,
            whiteners.reshape(n, count * dim, dim), centres.reshape(n, -1), log_dets,
        )  # fmt: skip
        return cls(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    @classmethod
    def joined(cls, parts: list[RowMixtures]) -> RowMixtures:
        """Put rows one after another."""
        return cls(*(torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def beside(self, other: RowMixtures, share: float) -> RowMixtures:
        """Mix row by row with the laws of ``other``, which get ``share``."""
        parts = {f.name: [getattr(self, f.name), getattr(other, f.name)] for f in fields(self)}
        ours, theirs = parts["log_weights"]
        parts["log_weights"] = [ours + math.log1p(-share), theirs + math.log(share)]
        return RowMixtures(*(torch.cat(part, 1) for part in parts.values()))

    def __len__(self) -> int:
        return len(self.log_weights)

    def __getitem__(self, rows: Rows) -> Self:
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        parts = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(part.to(dtype=dtype, device=device) for part in parts))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # no copy of an objective needs its own

    def replace_by(self, others: RowMixtures) -> None:
        """Take the laws of ``others``, in place; they may have more or fewer components."""
        for field in fields(self):
            getattr(self, field.name).data = getattr(others, field.name)

    def sample(self, k: int, stretch: Tensor | float = 1.0) -> Tensor:
        """Draw ``(k, N, D)``; ``stretch`` widens the components, ``(k, N, 1)`` or a number."""
        n, _, dim = self.means.shape
        which = torch.multinomial(self.log_weights.exp(), k, replacement=True).mT  # (k, N)
        row = torch.arange(n, device=which.device).expand_as(which)
        white = stretch * torch.randn(k, n, dim, dtype=self.means.dtype, device=which.device)
        turned = (self.factors[row, which] @ white.unsqueeze(-1)).squeeze(-1)
        return self.means[row, which] + turned

    def log_prob(self, v: Tensor, *stretches: float) -> tuple[Tensor, ...]:
        """Log densities ``(k, N)`` of ``v`` with shape ``(k, N, D)``, one for each stretch."""
        n, count, dim = self.means.shape
        white = self.whiteners @ v.permute(1, 2, 0) - self.centres.unsqueeze(-1)
        squares = white.reshape(n, count, dim, -1).square().sum(2)  # (N, C, k)
        base = self.log_weights - self.log_dets - 0.5 * dim * math.log(2 * math.pi)
        return tuple(
            torch.logsumexp(base.unsqueeze(-1) - 0.5 * squares / stretch**2, 1).mT
            - dim * math.log(stretch)
            for stretch in stretches
        )


def _factors(covariances: np.ndarray) -> np.ndarray:
    """Cholesky factors, with a floor where rounding has left too little."""
    scale = np.einsum("...ii->...", covariances) / covariances.shape[-1]
    eye = np.eye(covariances.shape[-1])
    return np.linalg.cholesky(covariances + 1e-9 * scale[..., None, None] * eye)
