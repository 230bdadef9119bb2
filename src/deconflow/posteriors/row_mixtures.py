r"""A Gaussian mixture per row, in the networks' precision: many draws and densities at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from deconflow.mixtures import GaussianMixture
from deconflow.noise import RowIndex
from deconflow.randomness import own_generator

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
    def of(cls, mixtures: GaussianMixture) -> RowMixtures:
        """Take a batch of mixtures in closed form, one per row."""
        factors = _factors(mixtures.covariances)
        log_dets = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
        log_weights = np.log(np.maximum(mixtures.weights, NEGLIGIBLE))
        parts = (log_weights, mixtures.means, factors, np.linalg.inv(factors), log_dets)
        return cls.from_factors(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

    @classmethod
    def from_factors(
        cls,
        log_weights: Tensor,
        means: Tensor,
        factors: Tensor,
        whiteners: Tensor,
        log_dets: Tensor,
    ) -> RowMixtures:
        """Make them of factors ``(N or 1, C, D, D)`` of the covariances, and their inverses."""
        n = len(means)
        centres = (whiteners @ means.unsqueeze(-1)).squeeze(-1)
        flat = whiteners.flatten(1, 2).expand(n, -1, -1)
        return cls(
            log_weights,
            means,
            factors.expand(n, -1, -1, -1),
            flat,
            centres.flatten(1),
            log_dets.expand(n, -1),
        )

    def mixed_with(self, other: RowMixtures, share: float) -> RowMixtures:
        """Mix row by row with the laws of ``other``, which get ``share``."""
        parts = {f.name: [getattr(self, f.name), getattr(other, f.name)] for f in fields(self)}
        ours, theirs = parts["log_weights"]
        parts["log_weights"] = [ours + math.log1p(-share), theirs + math.log(share)]
        return RowMixtures(*(torch.cat(part, 1) for part in parts.values()))

    def __len__(self) -> int:
        return len(self.log_weights)

    def __getitem__(self, rows: RowIndex) -> Self:
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # never changed, so no copy of an objective needs its own

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        parts = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(part.to(dtype=dtype, device=device) for part in parts))

    def sample(self, k: int, stretch: Tensor | float | None = None) -> Tensor:
        """Draw ``(k, N, D)``; ``stretch`` widens the components, ``(k, N, 1)`` or a number.

        Draws carry no derivative: the choice of a component has none.
        """
        with torch.no_grad():
            n, _, dim = self.means.shape
            own, chances = own_generator(self.means.device), self.log_weights.exp()
            which = torch.multinomial(chances, k, replacement=True, generator=own).mT  # (k, N)
            row = torch.arange(n, device=which.device).expand_as(which)
            means = self.means[row, which]
            if stretch is None:
                white = torch.empty_like(means).normal_(generator=own)
            else:  # another order in memory, hence of the numbers drawn: seeds keep their fits
                white = stretch * means.new_empty(k, n, dim).normal_(generator=own)
            turned = (self.factors[row, which] @ white.unsqueeze(-1)).squeeze(-1)
            return means + turned

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density ``(k, N)`` of ``v`` with shape ``(k, N, D)``, to the last digit."""
        whiteners = self.whiteners.unflatten(1, (self.means.shape[1], -1))
        white = torch.einsum("ncij,kncj->knci", whiteners, v.unsqueeze(2) - self.means)
        log_parts = self.log_weights - self.log_dets - 0.5 * white.square().sum(-1)
        return torch.logsumexp(log_parts, -1) - 0.5 * v.shape[-1] * math.log(2 * math.pi)

    def stretched_log_prob(self, v: Tensor, *stretches: float) -> tuple[Tensor, ...]:
        """Log densities ``(k, N)`` of ``v`` with the components widened by each stretch.

        Quicker than :meth:`log_prob`, and exact enough for values and means of about one.
        """
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
