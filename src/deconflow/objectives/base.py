r"""The one abstraction for what is trained, plain likelihoods, and the paper's bounds."""

from abc import ABC, abstractmethod
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from deconflow.densities import Density, simulate
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import PosteriorModel, WeightedDraws, weigh


class RowData(Protocol):
    """Data of the fit loop: rows, by index, with optional weights."""

    @property
    def weights(self) -> Tensor | None:
        """Row weights with mean one, or None."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows) -> Self: ...  # noqa: ANN001

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""


class Objective(nn.Module, ABC):
    """A per-row objective; its parameters are those of the models it holds.

    Attributes
    ----------
    draws : int
        Points of the latent space per row; the loop sizes its chunks by it.
    """

    draws: int = 1

    @abstractmethod
    def forward(self, data) -> Tensor:  # noqa: ANN001
        """Return ``(N,)`` numbers whose weighted mean is to be maximised."""


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


def proposal_step(
    density: Density, posterior: PosteriorModel, data: Observations, k: int
) -> Tensor:
    r"""Return ``(N,)`` numbers whose gradient reaches the posterior only.

    An unbiased estimate of ``log p(w)`` has the same expectation whatever the posterior, so its
    gradient teaches the posterior nothing but noise: the posterior gets this step of its own.
    The importance-weighted bound of ``k`` draws where draws are differentiable, forward KL on
    simulated pairs where they are not; zeros for a posterior with nothing to learn.
    """
    if not any(parameter.requires_grad for parameter in posterior.parameters()):
        return data.w.new_zeros(len(data))
    if not posterior.differentiable:
        return PosteriorLikelihood(posterior)(simulate(density, data))
    learning = [parameter for parameter in density.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        return weigh(density, posterior, data, k).log_marginal()
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
