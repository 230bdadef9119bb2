r"""The M-step, from the three sums of a pass, under a floor, a prior and fixed parameters."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture

if TYPE_CHECKING:
    from deconflow.xd.em_statistics import EMStatistics
    from deconflow.xd.expectation import Sums


#: Smallest Cholesky pivot of a correlation matrix that double precision can work with.
NEARLY_SINGULAR = 1e-11


@dataclass(frozen=True)
class Constraints:
    r"""What an M-step must respect; all in the units of the rows.

    Attributes
    ----------
    floor : array or None
        ``(D, D)``, positive definite: every covariance is at least this,
        :math:`V - F \succeq 0`. None to take covariances as they come.
    prior : array or None
        ``(D, D)``: covariances are ``(sum + r prior) / (q0 + r)``; None for no prior.
    fixed_weights, fixed_means, fixed_covariances : array
        Boolean ``(K,)``: components that keep them.
    prior_rows : float
        ``r``, the rows that the prior counts as.
    """

    floor: Array | None
    prior: Array | None
    fixed_weights: BoolArray
    fixed_means: BoolArray
    fixed_covariances: BoolArray
    prior_rows: float = field(default=1.0, kw_only=True)

    @classmethod
    def free(
        cls,
        n_components: int,
        floor: Array | None,
        prior: Array | None = None,
        prior_rows: float = 1.0,
    ) -> "Constraints":
        """Nothing fixed."""
        none = np.zeros(n_components, dtype=bool)
        return cls(floor, prior, none, none, none, prior_rows=prior_rows)

    def log_prior(self, mixture: GaussianMixture) -> float:
        r"""Log density that the prior gives the free covariances, but for a constant.

        The M-step ``(sum + r W) / (q0 + r)`` maximises the likelihood times
        :math:`|V|^{-r/2} \exp(-r \, \mathrm{tr}(W V^{-1}) / 2)` for each component.
        """
        if self.prior is None:
            return 0.0
        free = mixture.covariances[~self.fixed_covariances]
        ratio = np.linalg.solve(free, np.broadcast_to(self.prior, free.shape))
        total = np.linalg.slogdet(free)[1] + np.trace(ratio, axis1=1, axis2=2)
        return float(-0.5 * self.prior_rows * total.sum())

    def but_for(self, free: list[int]) -> "Constraints":
        """Return the same with all other components fixed."""
        others = np.ones(len(self.fixed_means), dtype=bool)
        others[free] = False
        return replace(
            self,
            fixed_weights=self.fixed_weights | others,
            fixed_means=self.fixed_means | others,
            fixed_covariances=self.fixed_covariances | others,
        )

    def weights(self, old: Array, new: Array) -> Array:
        """Return ``new`` in proportion, scaled to what the fixed ones of ``old`` leave."""
        fixed = self.fixed_weights
        left = max(0.0, 1.0 - float(old[fixed].sum()))
        total = new[~fixed].sum()
        return old if total <= 0 else np.where(fixed, old, new / total * left)

    def kept(
        self, old: GaussianMixture, weights: Array, means: Array, covariances: Array
    ) -> GaussianMixture:
        """Return a mixture of new parameters, but for those that are fixed."""
        return GaussianMixture(
            self.weights(old.weights, weights),
            np.where(self.fixed_means[:, None], old.means, means),
            np.where(self.fixed_covariances[:, None, None], old.covariances, covariances),
        )


def maximisation(
    mixture: GaussianMixture, sums: "Sums | EMStatistics", constraints: Constraints
) -> GaussianMixture:
    r"""Take one M-step.

    .. math:: m' = m + V u / q_0, \qquad
              V' = V + V G V / q_0 - (m' - m)(m' - m)^T

    The constrained maximum over :math:`V \succeq F` clips eigenvalues in units of ``F``, so the
    likelihood does not fall under a floor either. A component without rows stays where it is.
    """
    alive = sums.q0 > 0
    q0 = np.where(alive, sums.q0, 1.0)[:, None]
    step = sums.vu / q0
    step[~alive | constraints.fixed_means] = 0.0
    V, count = mixture.covariances, q0[..., None]
    new = (V * count + sums.vgv) / count - step[:, :, None] * step[:, None, :]
    if constraints.prior is not None:
        rows = constraints.prior_rows
        new = (count * new + rows * constraints.prior) / (count + rows)
    new = with_floor(_even(new), constraints.floor)
    keep = constraints.fixed_covariances | ~alive
    new[keep] = V[keep]
    return GaussianMixture(constraints.weights(mixture.weights, sums.q0), mixture.means + step, new)


def with_floor(covariances: Array, floor: Array | None) -> Array:
    """Raise symmetric matrices to at least the floor, by their eigenvalues in its units.

    Those that are still too close to singular for double precision get rounder.
    """
    if floor is None:
        return covariances
    if not _positive(covariances - floor, 0.0):
        root = np.linalg.cholesky(floor)
        inverse = np.linalg.inv(root)
        lifted = root @ _clipped(inverse @ covariances @ inverse.T, 1.0) @ root.T
        below = np.linalg.eigvalsh(covariances - floor)[:, 0] < 0
        covariances = np.where(below[:, None, None], _even(lifted), covariances)
    sd = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    square = sd[:, :, None] * sd[:, None, :]
    correlations = covariances / square
    if not _positive(correlations, NEARLY_SINGULAR):
        covariances = _clipped(correlations, 2 * NEARLY_SINGULAR) * square
    return covariances


def _positive(matrices: Array, least: float) -> bool:
    """Whether all have Cholesky pivots above ``least``."""
    try:
        factors = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return bool((np.diagonal(factors, axis1=1, axis2=2) ** 2 > least).all())


def _clipped(matrices: Array, least: float) -> Array:
    """Raise the eigenvalues that are below ``least``."""
    values, vectors = np.linalg.eigh(matrices)
    raised_values = np.maximum(values, least)[:, None, :]
    return _even((vectors * raised_values) @ np.swapaxes(vectors, 1, 2))


def _even(matrices: Array) -> Array:
    return 0.5 * (matrices + np.swapaxes(matrices, 1, 2))
