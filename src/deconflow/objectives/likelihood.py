r"""Plain maximum likelihood, of a density or of a posterior."""

from __future__ import annotations

from torch import Tensor

from deconflow.densities import Density
from deconflow.objectives.base import Objective
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import PosteriorModel


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


class PosteriorLikelihood(Objective):
    r"""The log density :math:`\log q(v | w)` of given pairs, as for simulated or exact ones."""

    def __init__(self, posterior: PosteriorModel) -> None:
        super().__init__()
        self.posterior = posterior

    def forward(self, data: Pairs) -> Tensor:
        """Return the log density of each pair."""
        return self.posterior.log_prob(data.observations, data.v.unsqueeze(0)).squeeze(0)
