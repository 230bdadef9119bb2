r"""The noise kernel as a posterior: the truth lies around the measurement."""

from __future__ import annotations

from torch import Tensor

from deconflow.observations import Observations
from deconflow.posteriors.base import Posterior


class NoiseKernel(Posterior):
    r"""The law of :math:`w - n`, the posterior of a flat prior: nothing to learn.

    Its importance weights are just ``p(v)``. It needs complete rows without a projection.
    """

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities."""
        self._refuse_partial(data)
        n = data.noise.sample(k)
        return data.w - n, data.noise.log_prob(n)

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        self._refuse_partial(data)
        return data.log_likelihood(v)

    @staticmethod
    def _refuse_partial(data: Observations) -> None:
        if data.observed is not None or data.projection is not None:
            raise ValueError(
                "Expected complete rows for the noise kernel; got missing values or a projection, "
                "under which the kernel has no density."
            )
