"""The one abstraction for densities ``p(v)``, simple densities, and densities made of others."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from deconflow.observations import Observations, Pairs
from deconflow.randomness import own_generator
from deconflow.truth import Bounds


class Density(nn.Module, ABC):
    """A density ``p(v)`` over ``dim`` values, with parameters that can be trained.

    Attributes
    ----------
    dim : int
        Number of dimensions.
    """

    dim: int

    @abstractmethod
    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``v``, ``(..., dim)``, as ``(...)``."""

    @abstractmethod
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""


class StandardNormal(Density):
    """The standard normal density."""

    zeros: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("zeros", torch.zeros(dim))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        return -0.5 * v.square().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        white = self.zeros.new_empty(n, self.dim)
        return white.normal_(generator=own_generator(white.device))


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
        self.dim = members[0].dim
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", torch.full((len(members),), 1 / len(members)))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        log_p = torch.stack([member.log_prob(v) for member in self.densities()], -1)
        return torch.logsumexp(log_p + self.shares.to(log_p).log(), -1)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, each row from a random member."""
        own = own_generator(self.shares.device)
        choice = torch.multinomial(self.shares, n, replacement=True, generator=own)
        counts = torch.bincount(choice, minlength=len(self.members)).tolist()
        pairs = zip(self.densities(), counts, strict=True)
        drawn = torch.cat([member.sample(count) for member, count in pairs if count > 0])
        return drawn[choice.argsort().argsort()]

    def densities(self) -> list[Density]:
        """Return the members."""
        return [cast(Density, member) for member in self.members]


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
        return torch.from_numpy(folded).to(v).clamp(*self._ends(v))

    def inside(self, v: Tensor) -> Tensor:
        """Return which points are within the bounds."""
        low, high = self._ends(v)
        return ((v >= low) & (v <= high)).all(-1)

    def _ends(self, like: Tensor) -> list[Tensor]:
        return [torch.from_numpy(end).to(like) for end in (self.bounds.lower, self.bounds.upper)]


@contextmanager
def without_dropout(*models: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off inside the block: the result is used as a weight."""
    were = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for model, was in zip(models, were, strict=True):
            model.train(was)


def simulate(density: Density, data: Observations) -> Pairs:
    r"""Draw :math:`v \sim p(v)` for each row, and measure it with the row's own noise."""
    with without_dropout(density):
        v = density.sample(len(data)).to(data.w)
    return Pairs(data.remeasure(v), v)
