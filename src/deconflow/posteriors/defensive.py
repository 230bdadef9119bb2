r"""The proposal of the chains: the posterior of a mixture, widened copies, the noise kernel.

Where these are poor, a network's mixture beside that of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from deconflow.noise.base import Rows
from deconflow.observations import Observations
from deconflow.posteriors.mixture_network import MixtureNetwork
from deconflow.posteriors.row_mixtures import RowMixtures
from deconflow.xd import Mixture, posterior

STRETCH = 2.0
"""How much wider the inflated copy is."""

NUMBERS = 2**27
"""Memory for the rows' mixtures, in numbers: half a GiB in single precision."""

NETWORK_SHARE = 0.5
"""What a network gets of the narrow part, if there is one."""

MOST_COMPONENTS = 12
ROWS_AT_ONCE = 20_000


@dataclass(frozen=True)
class PreparedRows:
    """Observations with the mixture that proposes for each, and their number in the data set."""

    observations: Observations
    mixtures: RowMixtures
    row: Tensor

    @classmethod
    def of(
        cls,
        data: Observations,
        mixture: Mixture,
        dtype: torch.dtype,
        network: MixtureNetwork | None = None,
    ) -> PreparedRows:
        """Compute every row's posterior under ``mixture`` once; a network may propose beside it."""
        mixtures = row_mixtures(data, mixture, dtype)
        if network is not None:
            learned = network.row_mixtures(data.to(dtype=dtype))
            mixtures = mixtures.beside(learned, NETWORK_SHARE)
        return cls(data, mixtures, torch.arange(len(data)))

    def propose_by(self, mixture: Mixture, network: MixtureNetwork | None = None) -> None:
        """Let others propose, in place."""
        dtype = self.mixtures.means.dtype
        others = PreparedRows.of(self.observations, mixture, dtype, network)
        self.mixtures.replace_by(others.mixtures)

    @property
    def weights(self) -> Tensor | None:
        """Row weights of the observations."""
        return self.observations.weights

    def __len__(self) -> int:
        return len(self.row)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # no copy of an objective needs its own

    def __getitem__(self, rows: Rows) -> Self:
        return replace(
            self,
            observations=self.observations[rows],
            mixtures=self.mixtures[rows],
            row=self.row[rows],
        )

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        return replace(
            self,
            observations=self.observations.to(dtype=dtype, device=device),
            mixtures=self.mixtures.to(dtype=dtype, device=device),
            row=self.row.to(device=device),
        )


def row_mixtures(data: Observations, mixture: Mixture, dtype: torch.dtype) -> RowMixtures:
    """Compute every row's posterior under ``mixture``, with as many components as memory allows."""
    dim = data.latent_dim
    most = max(2, min(MOST_COMPONENTS, NUMBERS // (len(data) * 2 * (dim**2 + dim + 1))))
    parts = [
        RowMixtures.of(posterior(mixture, part), most).to(dtype=dtype)
        for part in data.chunks(ROWS_AT_ONCE)
    ]
    return RowMixtures.joined(parts)


class Defensive:
    r"""The law :math:`a_1 q_{XD} + a_2 q_{wide} + a_3 q_{kernel}` of each prepared row.

    The wide copy and the noise kernel bound the weights where the mixture is wrong. The kernel
    needs complete rows; without them the wide copy takes its share.

    Parameters
    ----------
    shares
        ``a``, which sum to one.
    """

    def __init__(self, shares: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> None:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"Expected shares that sum to one; got {shares}.")
        self.shares = shares

    def sample(self, data: PreparedRows, k: int) -> Tensor:
        """Draw ``(k, N, D)``."""
        narrow, _, kernel = self._shares(data)
        u = torch.rand(k, len(data), 1, dtype=data.mixtures.means.dtype)
        v = data.mixtures.sample(k, torch.where(u < narrow, 1.0, STRETCH))
        if kernel == 0:
            return v
        observed = data.observations
        return torch.where(u < 1 - kernel, v, observed.w - observed.noise.sample(k))

    def log_prob(self, data: PreparedRows, v: Tensor, log_likelihood: Tensor) -> Tensor:
        """Log density ``(k, N)``; ``log_likelihood`` is that of ``v``, which the kernel needs."""
        shares = self._shares(data)
        parts = [*data.mixtures.log_prob(v, 1.0, STRETCH), log_likelihood]
        logs = [
            part + torch.tensor(share).log().to(part)
            for part, share in zip(parts, shares, strict=True)
            if share > 0
        ]
        return torch.logsumexp(torch.stack(logs), 0)

    def log_ratio(self, data: PreparedRows, v: Tensor) -> Tensor:
        """Log of ``p(w given v) / q(v)``, ``(k, N)``: a weight but for the density."""
        log_likelihood = data.observations.log_likelihood(v)
        return log_likelihood - self.log_prob(data, v, log_likelihood)

    def _shares(self, data: PreparedRows) -> tuple[float, float, float]:
        whole = data.observations.observed is None and data.observations.projection is None
        narrow, wide, kernel = self.shares
        return (narrow, wide, kernel) if whole else (narrow, wide + kernel, 0.0)
