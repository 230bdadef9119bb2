r"""What rows say of a density on a grid: the expectation step.

With ``q`` the mass of each node and :math:`A_{ig}` the likelihood of row i there,

.. math:: p_i = \sum_g A_{ig} q_g, \quad r_g = \sum_i c_i A_{ig} q_g / p_i, \quad
          E_i = \sum_g A_{ig} q_g B_g / p_i

are the rows' densities, the expected counts and the posterior means of the basis.
"""

from dataclasses import dataclass

import numpy as np

from deconflow._types import Array

#: Least density of a row on the way to an answer, so that no share of it overflows.
SMALLEST = 1e-200


@dataclass(frozen=True)
class Expectations:
    """Sums over rows for one density.

    Attributes
    ----------
    log_p : float
        ``sum c_i log p_i``, to a constant.
    counts : array
        ``r``, expected counts at the nodes.
    curved_counts : array
        ``r`` of the rows that give the curvature: all of them, or a sample that stands for all.
    between : array
        ``sum c_i E_i E_i'`` of the same rows.
    """

    log_p: float
    counts: Array
    curved_counts: Array
    between: Array


@dataclass(frozen=True)
class LineLikelihood:
    """Rows on a line: a table of likelihoods, one row per row or bin of rows.

    Attributes
    ----------
    design : array
        ``(nodes, basis)``.
    mass : array
        ``(nodes,)``.
    table : array
        ``(n, nodes)`` likelihoods, each row to a factor.
    row_counts : array
        ``(n,)``.
    """

    design: Array
    mass: Array
    table: Array
    row_counts: Array

    @property
    def total(self) -> float:
        """Sum of the counts."""
        return float(self.row_counts.sum())

    @property
    def n_rows(self) -> int:
        """Number of rows or bins."""
        return len(self.row_counts)

    def values(self, beta: Array) -> Array:
        """Return ``B beta``."""
        return self.design @ beta

    def project(self, counts: Array) -> Array:
        """Return ``B' counts``."""
        return counts @ self.design

    def second(self, counts: Array) -> Array:
        """Return ``B' diag(counts) B``."""
        return (self.design * counts[:, None]).T @ self.design

    def log_likelihood(self, q: Array) -> float:
        """Return ``sum c_i log p_i``."""
        return float(self.row_counts @ np.log(np.maximum(self.table @ q, SMALLEST)))

    def expect(self, q: Array) -> Expectations:
        """Expectations under masses ``q``."""
        p = np.maximum(self.table @ q, SMALLEST)
        share = self.row_counts / p
        counts = q * (share @ self.table)
        log_p = float(self.row_counts @ np.log(p))
        means = self.table @ (q[:, None] * self.design) * (np.sqrt(self.row_counts) / p)[:, None]
        return Expectations(log_p, counts, counts, means.T @ means)
