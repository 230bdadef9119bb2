r"""Densities made of densities."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.randomness import own_generator


class Ensemble(Density):
    r"""The average :math:`p(v) = \frac{1}{J} \sum_j p_j(v)` of several densities.

    Parameters
    ----------
    members
        Densities over the same space.
    """

    shares: Tensor

    def __init__(self, members: list[Density]) -> None:
        super().__init__()
        if not members or len({member.dim for member in members}) != 1:
            dims = [member.dim for member in members]
            raise ValueError(f"Expected members of one dimension; got dimensions {dims}.")
        self.dim = members[0].dim
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", torch.full((len(members),), 1 / len(members)))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        log_p = torch.stack([member.log_prob(v) for member in self.densities()], -1)
        return torch.logsumexp(log_p + self.shares.to(log_p).log(), -1)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, each row from a random member."""
        choice = torch.multinomial(
            self.shares, n, replacement=True, generator=own_generator(self.shares.device)
        )
        counts = torch.bincount(choice, minlength=len(self.members)).tolist()
        pairs = zip(self.densities(), counts, strict=True)
        drawn = torch.cat([member.sample(count) for member, count in pairs if count > 0])
        return drawn[choice.argsort().argsort()]

    def densities(self) -> list[Density]:
        """Return the members."""
        return [cast(Density, member) for member in self.members]
