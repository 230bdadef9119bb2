"""The one abstraction for densities ``p(v)``."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from torch import Tensor, nn

AnyDensity = TypeVar("AnyDensity", bound=Any)


class Density(nn.Module, ABC):
    """A density ``p(v)`` over ``dim`` values, with parameters that can be trained.

    Attributes
    ----------
    dim : int
        Number of dimensions.
    takes_covariates : bool
        Whether it is another density for other covariates; see :meth:`at`.
    """

    dim: int
    takes_covariates = False

    @abstractmethod
    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``v``, ``(..., dim)``, as ``(...)``."""

    @abstractmethod
    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""

    def at(self, given: Tensor | None) -> Density:
        """Return the density for rows with covariates ``(N, C)``, of points ``(..., N, dim)``.

        It draws one point for each of these rows. A density without covariates is the same for
        all of them.
        """
        return self


def with_context(density: AnyDensity, context: Tensor | None) -> AnyDensity:
    """Return a density that sees a context, and shares all its weights with the one given."""
    if context is None:
        return density
    bound = copy.copy(density)
    bound.context = context
    return bound
