r"""Plain maximum likelihood, of a density or of a posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from deconflow.densities.base import Density
from deconflow.noise import Rows
from deconflow.objectives.base import Objective
from deconflow.observations import Observations
from deconflow.posteriors.base import Posterior


class MaximumLikelihood(Objective):
    r"""The log density :math:`\log p(w)` of the measurements taken as they are.

    On clean rows this is an ordinary density fit; on noisy rows it is the fit without
    deconvolution that the paper compares with.
    """

    def __init__(self, density: Density) -> None:
        super().__init__()
        self.density = density

    def forward(self, data: Observations) -> Tensor:
        """Return the log density of each row."""
        if data.observed is not None or data.projection is not None:
            raise ValueError(
                "Expected complete rows for plain maximum likelihood; "
                "got missing values or a projection."
            )
        return self.density.log_prob(data.w)


@dataclass(frozen=True)
class Pairs:
    """Observations, each with a true value ``v`` of shape ``(N, D)``."""

    observations: Observations
    v: Tensor

    def __post_init__(self) -> None:
        expected = (len(self.observations), self.observations.latent_dim)
        if tuple(self.v.shape) != expected:
            raise ValueError(f"Expected v of shape {expected}; got {tuple(self.v.shape)}.")

    @property
    def weights(self) -> Tensor | None:
        """Row weights of the observations."""
        return self.observations.weights

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, rows: Rows) -> Self:
        return type(self)(self.observations[rows], self.v[rows])

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        moved = self.observations.to(dtype=dtype, device=device)
        return type(self)(moved, self.v.to(dtype=dtype, device=device))


class PosteriorLikelihood(Objective):
    r"""The log density :math:`\log q(v | w)` of given pairs, as for simulated or exact ones."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__()
        self.posterior = posterior

    def forward(self, data: Pairs) -> Tensor:
        """Return the log density of each pair."""
        return self.posterior.log_prob(data.observations, data.v.unsqueeze(0)).squeeze(0)
