r"""The one abstraction for what is trained, plain likelihoods, and the paper's bounds."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from deconflow.densities import Density
from deconflow.noise import RowIndex
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import PosteriorModel, weigh


@dataclass(frozen=True)
class NumberedRows:
    """Observations with their numbers in the data set, by which a chain finds its state."""

    observations: Observations
    row: Tensor

    @property
    def weights(self) -> Tensor | None:
        """Row weights of the observations."""
        return self.observations.weights

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, rows: RowIndex) -> Self:
        return replace(self, observations=self.observations[rows], row=self.row[rows])

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        moved = self.observations.to(dtype=dtype, device=device)
        return replace(self, observations=moved, row=self.row.to(device=device))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # never changed, so no copy of an objective needs its own


#: Data of the fit loop: rows, by index, with optional weights.
RowData = Observations | Pairs | NumberedRows


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


class Amortised(Objective):
    """An objective of a density and a posterior, from ``n_draws`` weighted draws per row."""

    def __init__(self, density: Density, posterior: PosteriorModel, n_draws: int) -> None:
        super().__init__()
        self.density, self.posterior, self.n_draws = density, posterior, n_draws
        self.draws = n_draws


class ELBO(Amortised):
    r"""The evidence lower bound with ``K`` draws.

    .. math:: L(K) = \frac{1}{K} \sum_k \log \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Dockhorn et al. (2020), https://arxiv.org/abs/2006.09396
    """

    def forward(self, data: Observations) -> Tensor:
        """Average the log weights."""
        return weigh(self.density, self.posterior, data, self.n_draws).log_weights.mean(0)


class ImportanceWeighted(Amortised):
    r"""The importance-weighted bound with ``K`` draws.

    .. math:: L_{IW}(K) = \log \frac{1}{K} \sum_k \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Burda et al. (2016), https://arxiv.org/abs/1509.00519
    """

    def forward(self, data: Observations) -> Tensor:
        """Average the weights."""
        return weigh(self.density, self.posterior, data, self.n_draws).log_marginal()
