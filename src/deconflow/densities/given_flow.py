"""A flow given covariates."""

from __future__ import annotations

import torch
from torch import Tensor

from deconflow.densities.base import Density
from deconflow.densities.flow import Flow
from deconflow.randomness import own_generator


class GivenFlow(Density):
    r"""The density :math:`p(v \mid x)`, by a flow whose networks see covariates ``x``.

    Log densities are those of :meth:`at` some covariates. Without these it can only be drawn from:
    over the mix of covariates that is kept.

    Parameters
    ----------
    flow
        A flow made for a context.
    kept
        ``(R, C)`` covariates of some rows.
    """

    kept: Tensor
    takes_covariates = True

    def __init__(self, flow: Flow, kept: Tensor) -> None:
        super().__init__()
        self.flow, self.dim = flow, flow.dim
        self.register_buffer("kept", kept.to(next(flow.parameters())), persistent=False)

    def log_prob(self, v: Tensor) -> Tensor:
        """Refuse: it is another density for other covariates."""
        raise ValueError("Expected covariates, by at(given), for a density given some; got none.")

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``, each for one of the covariates that are kept, by chance."""
        device = self.kept.device
        rows = torch.randint(len(self.kept), (n,), generator=own_generator(device), device=device)
        return self.at(self.kept[rows]).sample(n)

    def at(self, given: Tensor | None) -> Density:
        """Return the density for rows with covariates ``(N, C)``."""
        return self if given is None else self.flow.at(given)
