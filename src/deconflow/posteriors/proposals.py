r"""Where draws for each row come from: a mixture's posterior, widened copies, the noise kernel.

Where these are poor, a network's mixture beside that of the posterior.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deconflow.densities import Density
from deconflow.mixtures import GaussianMixture
from deconflow.noise import ByRow
from deconflow.observations import Observations
from deconflow.posteriors.mixtures import RowMixtures, WeightedDraws
from deconflow.posteriors.networks import MixtureNetwork
from deconflow.randomness import own_generator
from deconflow.xd import posterior

#: Of the mixture, its wide copy and the noise kernel among fresh values.
SHARES = (0.8, 0.1, 0.1)
#: How much wider the inflated copy is.
STRETCH = 2.0

#: Memory for the rows' mixtures, in numbers: half a GiB in single precision.
NUMBERS = 2**27

#: What a network gets of the narrow part, if there is one.
NETWORK_SHARE = 0.5

MOST_COMPONENTS = 12
DRAWS_AT_ONCE = 32


@dataclass(frozen=True)
class RowsWithProposals(ByRow):
    r"""Observations, and where draws for each row come from.

    .. math:: q(v) = a_1 q_{XD}(v) + a_2 q_{wide}(v) + a_3 q_{kernel}(v)

    The wide copy of the mixture and the noise kernel bound the weights where the mixture is wrong.
    The kernel needs complete rows of values, none of them a limit; otherwise its share goes to the
    wide copy.

    Attributes
    ----------
    observations : Observations
        The rows.
    mixtures : RowMixtures
        The mixture that proposes for each.
    """

    observations: Observations
    mixtures: RowMixtures

    @classmethod
    def of(
        cls,
        data: Observations,
        mixture: GaussianMixture,
        dtype: torch.dtype,
        network: MixtureNetwork | None = None,
    ) -> "RowsWithProposals":
        """Compute every row's posterior under ``mixture``; a network may propose beside it."""
        return cls(data.to(dtype=dtype), propose(data, mixture, dtype, network))

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, D)``."""
        narrow, _, kernel = self._shares()
        dtype, device = self.mixtures.means.dtype, self.mixtures.means.device
        u = torch.rand(k, len(self), 1, dtype=dtype, device=device, generator=own_generator(device))
        rows, stretch = self.observations, torch.where(u < narrow, 1.0, STRETCH).to(dtype)
        v = self.mixtures.sample(k, stretch)
        return v if kernel == 0 else torch.where(u < 1 - kernel, v, rows.w - rows.noise.sample(k))

    def log_ratio(self, v: Tensor) -> Tensor:
        """Log of ``p(w given v) / q(v)``, ``(k, N)``: a weight but for the density."""
        log_likelihood = self.observations.log_likelihood(v)
        return log_likelihood - self.log_prob(v, log_likelihood)

    def log_prob(self, v: Tensor, log_likelihood: Tensor) -> Tensor:
        """Log density ``(k, N)``; ``log_likelihood`` is that of ``v``, which the kernel needs."""
        parts = [*self.mixtures.stretched_log_prob(v, 1.0, STRETCH), log_likelihood]
        logs = [
            part + math.log(share)
            for part, share in zip(parts, self._shares(), strict=True)
            if share > 0
        ]
        return torch.logsumexp(torch.stack(logs), 0)

    def weigh(self, density: Density, v: Tensor) -> WeightedDraws:
        """Weigh draws ``(k, N, D)`` by the posterior under ``density``."""
        log_p = torch.cat([density.log_prob(part) for part in v.split(DRAWS_AT_ONCE)])
        return WeightedDraws(v, log_p + self.log_ratio(v))

    def _shares(self) -> tuple[float, float, float]:
        rows, (narrow, wide, kernel) = self.observations, SHARES
        complete = rows.observed is None and rows.projection is None and rows.noise.flags is None
        return SHARES if complete else (narrow, wide + kernel, 0.0)


def propose(
    data: Observations,
    mixture: GaussianMixture,
    dtype: torch.dtype,
    network: MixtureNetwork | None = None,
) -> RowMixtures:
    """Compute every row's posterior under ``mixture``, with as many components as memory allows.

    The answer is in main memory, as the rows are, or on the device of the network.
    """
    dim = data.latent_dim
    most = max(2, min(MOST_COMPONENTS, NUMBERS // (len(data) * 2 * (dim**2 + dim + 1))))
    mixtures = RowMixtures.of(posterior(mixture, data.in_numpy(), most)).to(dtype=dtype)
    if network is None:
        return mixtures
    device = next(network.parameters()).device
    beside = network.row_mixtures(data.to(dtype=dtype, device=device))
    return mixtures.to(device=device).mixed_with(beside, NETWORK_SHARE)
