r"""The M-step, from the three sums of a pass, under a floor, a prior and fixed parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deconflow.xd.expectation import Sums
from deconflow.xd.mixture import Mixture

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    r"""What an M-step must respect; all in the units of the rows.

    Attributes
    ----------
    floor : array
        ``(D, D)``, positive definite: every covariance is at least this,
        :math:`V - F \succeq 0`.
    prior : array or None
        ``(D, D)``: covariances are ``(sum + prior) / (q0 + 1)``; None for no prior.
    fixed_weights, fixed_means, fixed_covariances : array
        Boolean ``(K,)``: components that keep them.
    """

    floor: Array
    prior: Array | None
    fixed_weights: Flags
    fixed_means: Flags
    fixed_covariances: Flags

    @classmethod
    def free(cls, n_components: int, floor: Array, prior: Array | None = None) -> Rules:
        """Nothing fixed."""
        none = np.zeros(n_components, dtype=bool)
        return cls(floor, prior, none, none, none)

    def but_for(self, free: list[int]) -> Rules:
        """Return these rules with all other components fixed."""
        others = np.ones(len(self.fixed_means), dtype=bool)
        others[free] = False
        return replace(
            self,
            fixed_weights=self.fixed_weights | others,
            fixed_means=self.fixed_means | others,
            fixed_covariances=self.fixed_covariances | others,
        )


def maximisation(mixture: Mixture, sums: Sums, rules: Rules) -> Mixture:
    r"""Take one M-step.

    .. math:: m' = m + V u / q_0, \qquad
              V' = V + V G V / q_0 - (m' - m)(m' - m)^T

    The constrained maximum over :math:`V \succeq F` clips eigenvalues in units of ``F``, so the
    likelihood does not fall under a floor either. A component without rows stays where it is.
    """
    alive = sums.q0 > 0
    q0 = np.where(alive, sums.q0, 1.0)[:, None]
    step = np.einsum("kij,kj->ki", mixture.covariances, sums.u) / q0
    step[~alive | rules.fixed_means] = 0.0
    V = mixture.covariances
    scatter = V * q0[..., None] + V @ sums.g @ V
    if rules.prior is None:
        new = scatter / q0[..., None] - step[:, :, None] * step[:, None, :]
    else:
        scatter -= q0[..., None] * step[:, :, None] * step[:, None, :]
        new = (scatter + rules.prior) / (q0[..., None] + 1.0)
    new = raised(0.5 * (new + np.swapaxes(new, 1, 2)), rules.floor)
    keep = rules.fixed_covariances | ~alive
    new[keep] = V[keep]
    return Mixture(_weights(mixture.weights, sums.q0, rules), mixture.means + step, new)


def raised(covariances: Array, floor: Array) -> Array:
    """Raise symmetric matrices to at least the floor, by their eigenvalues in its units."""
    try:
        np.linalg.cholesky(covariances - floor)
    except np.linalg.LinAlgError:
        root = np.linalg.cholesky(floor)
        inverse = np.linalg.inv(root)
        values, vectors = np.linalg.eigh(inverse @ covariances @ inverse.T)
        bad = values[:, 0] < 1.0
        lifted = (vectors * np.maximum(values, 1.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        lifted = root @ lifted @ root.T
        lifted = 0.5 * (lifted + np.swapaxes(lifted, 1, 2))
        return np.where(bad[:, None, None], lifted, covariances)
    return covariances


def _weights(weights: Array, q0: Array, rules: Rules) -> Array:
    """Shares of the rows, scaled to what the fixed ones leave."""
    fixed = rules.fixed_weights
    left = max(0.0, 1.0 - float(weights[fixed].sum()))
    total = q0[~fixed].sum()
    if total <= 0:
        return weights
    return np.where(fixed, weights, q0 / total * left)
