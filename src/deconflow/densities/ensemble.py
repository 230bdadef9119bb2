r"""Densities made of densities."""

from __future__ import annotations

from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.standardising import Standardiser


class Ensemble(Density):
    r"""The average :math:`p(v) = \sum_j a_j \, p_j(v)` of several densities.

    Parameters
    ----------
    members
        Densities over the same space.
    weights
        Their shares ``a``, which must be positive and are divided by their sum; equal if None.
    """

    shares: Tensor

    def __init__(self, members: list[Density], weights: Tensor | None = None) -> None:
        super().__init__()
        if not members or len({member.dim for member in members}) != 1:
            dims = [member.dim for member in members]
            raise ValueError(f"Expected members of one dimension; got dimensions {dims}.")
        shares = torch.ones(len(members)) if weights is None else torch.as_tensor(weights)
        if shares.shape != (len(members),) or not ((shares > 0) & shares.isfinite()).all():
            raise ValueError(f"Expected {len(members)} positive weights; got {shares.tolist()}.")
        self.dim = members[0].dim
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", shares / shares.sum())

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        log_p = torch.stack([member.log_prob(v) for member in self._densities()], -1)
        return torch.logsumexp(log_p + self.shares.to(log_p).log(), -1)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, each row from a member drawn by its share."""
        choice = torch.multinomial(self.shares, n, replacement=True)
        counts = torch.bincount(choice, minlength=len(self.members)).tolist()
        pairs = zip(self._densities(), counts, strict=True)
        drawn = torch.cat([member.sample(count) for member, count in pairs if count > 0])
        return drawn[choice.argsort().argsort()]

    def _densities(self) -> list[Density]:
        return [cast(Density, member) for member in self.members]


class Restored(Density):
    r"""A density learned in standardised units, in the user's units.

    .. math:: \log p(v) = \log p_z((v - m) / s) - \sum_d \log s_d
    """

    def __init__(self, density: Density, standardiser: Standardiser) -> None:
        super().__init__()
        self.dim = density.dim
        self.density, self.standardiser = density, standardiser

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``, in float64."""
        like = next(chain(self.density.parameters(), self.density.buffers()))
        log_p = self.density.log_prob(self.standardiser.to_standard(v).to(like)).double()
        return log_p - self.standardiser.log_latent_volume().to(log_p)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, in float64: the network's precision is that of standardised units."""
        return self.standardiser.from_standard(self.density.sample(n))
