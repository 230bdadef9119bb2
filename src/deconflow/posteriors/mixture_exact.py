r"""The exact posterior of a Gaussian-mixture density under Gaussian noise."""

from __future__ import annotations

import torch
from torch import Tensor

from deconflow.densities import MixtureDensity
from deconflow.noise import HALF_LOG_2PI, GaussianNoise
from deconflow.observations import Observations
from deconflow.posteriors.base import PosteriorModel
from deconflow.posteriors.row_mixtures import RowMixtures


class MixtureExact(PosteriorModel):
    r"""The posterior of :math:`v \sim \sum_k \pi_k N(m_k, A_k A_k^T)` given :math:`w = R v + n`.

    It is a mixture again. With :math:`S = L L^T`, :math:`B = L^{-1} R A` and
    :math:`P = I + B^T B = C C^T`, the component's :math:`u = A^{-1} (v - m)` has

    .. math:: u | w \sim N(P^{-1} B^T L^{-1} (w - R m), \; P^{-1}), \quad
              \pi_k(w) \propto \pi_k \, N(w; R m, \, R A A^T R^T + S).

    It is computed from the density's parameters at every call, and has none of its own. Missing
    values and projections are in the formula.

    Parameters
    ----------
    density
        The mixture; it is shared, not copied. Draws and their densities are constants, so that a
        bound's gradient is that of :math:`\log p(v)` at posterior draws: the paper's fit of a
        mixture "with samples from the exact posterior".
    """

    differentiable = False

    def __init__(self, density: MixtureDensity) -> None:
        super().__init__()
        if not isinstance(density, MixtureDensity):
            raise TypeError(
                "Expected a MixtureDensity, whose posterior has a closed form; "
                f"got {type(density).__name__}."
            )
        self._shared = (density,)  # a tuple: no module of its own, so that nothing is saved twice

    def sample(self, data: Observations, k: int) -> tuple[Tensor, Tensor]:
        """Draw ``(k, N, D)`` with log densities."""
        mixtures = self._row_mixtures(data)
        v = mixtures.sample(k)
        return v, mixtures.log_prob(v).detach()

    def log_prob(self, data: Observations, v: Tensor) -> Tensor:
        """Log density ``(k, N)``."""
        return self._row_mixtures(data).log_prob(v).detach()

    def log_marginal(self, data: Observations) -> Tensor:
        """Log density ``log p(w)`` of what each row measured, ``(N,)``, in closed form."""
        return torch.logsumexp(self._log_joint(data), -1)

    def _row_mixtures(self, data: Observations) -> RowMixtures:
        """Return the mixture of each row."""
        log_weights = torch.log_softmax(self._log_joint(data), -1)
        density = self._shared[0]
        A, L = density.factors(), data.noise.cholesky().unsqueeze(1)
        eye = torch.eye(density.dim, dtype=A.dtype, device=A.device)
        B = torch.linalg.solve_triangular(L, data.projections().unsqueeze(1) @ A, upper=False)
        C = torch.linalg.cholesky(eye + B.mT @ B)
        y = torch.linalg.solve_triangular(L, self._offsets(data).unsqueeze(-1), upper=False)
        u = torch.cholesky_solve(B.mT @ y, C)
        whiteners = C.mT @ torch.linalg.solve_triangular(A, eye, upper=False)
        roots = torch.linalg.solve_triangular(C, A.mT, upper=False).mT
        means = density.means + (A @ u).squeeze(-1)
        log_dets = _log_pivots(A) - _log_pivots(C)
        return RowMixtures.from_factors(log_weights, means, roots, whiteners, log_dets)

    def _log_joint(self, data: Observations) -> Tensor:
        """Log of ``pi_k N(w; R m_k, T_k)`` over the observed values, ``(N, K)``."""
        if not isinstance(data.noise, GaussianNoise):
            raise ValueError(
                "Expected Gaussian noise, under which a mixture has an exact posterior; "
                f"got {type(data.noise).__name__}. Use a recognition flow or a mixture network."
            )
        density = self._shared[0]
        RA = data.projections().unsqueeze(1) @ density.factors()
        factor = torch.linalg.cholesky(RA @ RA.mT + data.noise.covariance().unsqueeze(1))
        offsets = self._offsets(data).unsqueeze(-1)
        white = torch.linalg.solve_triangular(factor, offsets, upper=False).squeeze(-1)
        per_value = -0.5 * white.square() - factor.diagonal(dim1=-2, dim2=-1).log() - HALF_LOG_2PI
        if data.observed is not None:
            per_value = torch.where(data.observed.unsqueeze(1), per_value, 0.0)
        return torch.log_softmax(density.log_weights, 0) + per_value.sum(-1)

    def _offsets(self, data: Observations) -> Tensor:
        """Return ``w - R m_k``, ``(N, K, M)``, zero where missing."""
        return data.residual(self._shared[0].means.unsqueeze(1)).transpose(0, 1)


def _log_pivots(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
