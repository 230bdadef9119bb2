r"""Plain maximum likelihood, of a density or a posterior; the paper's bounds on ``log p(w)``."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from deconflow.densities import Density
from deconflow.objectives.base import Objective
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import PosteriorModel, WeightedDraws, weigh


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


class _Bound(Objective):
    """A bound from ``K`` weighted draws per row."""

    def __init__(self, density: Density, posterior: PosteriorModel, draws: int) -> None:
        super().__init__()
        if draws < 1:
            raise ValueError(f"Expected at least one draw per row; got {draws}.")
        self.density, self.posterior, self.draws = density, posterior, draws

    def forward(self, data: Observations) -> Tensor:
        """Return the bound of each row."""
        return self.reduce(weigh(self.density, self.posterior, data, self.draws))

    @abstractmethod
    def reduce(self, draws: WeightedDraws) -> Tensor:
        """Turn ``(K, N)`` log weights into ``(N,)`` bounds."""


class ELBO(_Bound):
    r"""The evidence lower bound with ``K`` draws.

    .. math:: L(K) = \frac{1}{K} \sum_k \log \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Dockhorn et al. (2020), https://arxiv.org/abs/2006.09396
    """

    def reduce(self, draws: WeightedDraws) -> Tensor:
        """Average the log weights."""
        return draws.log_weights.mean(0)


class ImportanceWeighted(_Bound):
    r"""The importance-weighted bound with ``K`` draws.

    .. math:: L_{IW}(K) = \log \frac{1}{K} \sum_k \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Burda et al. (2016), https://arxiv.org/abs/1509.00519
    """

    def reduce(self, draws: WeightedDraws) -> Tensor:
        """Average the weights."""
        return draws.log_marginal()
