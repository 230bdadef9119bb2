"""A density folded at bounds of the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from deconflow.densities.base import Density
from deconflow.truth import Bounds


class Folded(Density):
    r"""The density :math:`p(v) = \sum_s g(R_s v)` within bounds, zero outside.

    Parameters
    ----------
    density
        The density ``g`` that was fitted to mirrored rows.
    bounds
        Where to fold, in the density's units.
    """

    def __init__(self, density: Density, bounds: Bounds) -> None:
        super().__init__()
        self.density, self.bounds, self.dim = density, bounds, density.dim

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``, minus infinity outside."""
        each = torch.stack([self.density.log_prob(image) for image in self.images(v)])
        return torch.where(self.inside(v), torch.logsumexp(each, 0), -torch.inf)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        return self.fold(self.density.sample(n))

    def images(self, v: Tensor) -> list[Tensor]:
        """Return the points that fold to ``v``, itself first."""
        return [
            torch.from_numpy(shift).to(v) + torch.from_numpy(sign).to(v) * v
            for sign, shift in self.bounds.reflections()
        ]

    def fold(self, v: Tensor) -> Tensor:
        """Fold points back."""
        folded = self.bounds.fold(v.detach().cpu().double().numpy())
        inside = torch.from_numpy(folded).to(v)
        low, high = (torch.from_numpy(end).to(v) for end in (self.bounds.lower, self.bounds.upper))
        return inside.clamp(low, high)

    def inside(self, v: Tensor) -> Tensor:
        """Say which points are within the bounds."""
        low, high = (torch.from_numpy(end).to(v) for end in (self.bounds.lower, self.bounds.upper))
        return ((v >= low) & (v <= high)).all(-1)
