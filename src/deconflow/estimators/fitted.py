"""What a fit has learned, and the questions that every fit answers.

Exact answers are in :mod:`~deconflow.estimators.mixture_fit`, answers by weighted draws in
:mod:`~deconflow.estimators.weighted_fit`, those on a grid in :mod:`~deconflow.estimators.grid_fit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.estimators.posterior import Posterior, column_numbers
from deconflow.evaluation import Estimate
from deconflow.observations import Observations, refuse_extremes
from deconflow.randomness import RandomState

Columns = NDArray[np.int64]
"""Numbers of dimensions."""


class FittedDensity(ABC):
    """The density of the truth that a fit has learned, in the user's units.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    """

    names: list[str]

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.names)

    def log_prob(self, v: ArrayLike) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        values = as_floats(v, "v")
        if values.ndim != 2 or values.shape[1] != self.dim or not np.isfinite(values).all():
            raise ValueError(
                f"Expected finite values in v of shape (N, {self.dim}), for the columns "
                f"{', '.join(self.names)}; got shape {values.shape}."
            )
        refuse_extremes("v", torch.from_numpy(values))
        return self._log_prob(values)

    def marginal(self, columns: Any) -> FittedDensity:
        """Return the density of some dimensions, by name or number, in the order given."""
        return self._marginal(column_numbers(columns, self.names))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)})"

    @abstractmethod
    def _log_prob(self, v: Array) -> Array:
        """Log density of checked values."""

    @abstractmethod
    def _marginal(self, columns: Columns) -> FittedDensity:
        """Return the density of some dimensions, by their numbers."""

    @abstractmethod
    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""

    @abstractmethod
    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with its error; ``n_draws`` None for the usual."""

    @abstractmethod
    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value; exact answers need none of the numbers."""

    @abstractmethod
    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether answers about rows with such noise are closed forms."""

    @abstractmethod
    def averaged(self) -> list[FittedDensity]:
        """Return the densities that this is an average of; none for a single fit."""

    @abstractmethod
    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""

    def _others(self, given: Columns) -> Columns:
        return np.setdiff1d(np.arange(self.dim), given)


def seen_through(data: Observations, given: Columns, dim: int) -> Observations:
    """Say of rows that measure only some dimensions what they see of the whole truth."""
    onto = torch.eye(dim, dtype=data.w.dtype)[torch.from_numpy(given)]
    own = data.projections() @ onto
    return replace(data, projection=own.expand(len(data), -1, -1))
