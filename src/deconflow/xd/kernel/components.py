r"""Draws of components from normal-inverse-Wishart laws, all in one compiled call.

With :math:`n` rows of mean :math:`\bar x` and scatter :math:`A` about it,

.. math:: U \sim IW(\nu + n, \; s \Psi + A + \tfrac{\kappa n}{\kappa + n}
          (\bar x - m_0)(\bar x - m_0)^T), \quad
          \mu \sim N(\tfrac{\kappa m_0 + n \bar x}{\kappa + n}, \tfrac{U}{\kappa + n}).

A component without rows is drawn from the prior. By Bartlett, :math:`U = B B^T` with
:math:`B = L A^{-T}`, where :math:`L` is the Cholesky factor of the scale and :math:`A` lower
triangular, with roots of chi-squares on the diagonal and normal numbers below.
"""

import numpy as np

from deconflow.xd.kernel.compile import compiled_rows

#: Least share of a variance that is left when other columns are known: what is thinner than this
#: no other part of a sweep could factor.
THINNEST = 1e-11
#: Roots of chi-squares stay above this, for a prior of few degrees of freedom has no mean: no
#: component is drawn more than a hundred times as wide as its scale.
SMALLEST_CHI = 0.01


@compiled_rows()
def draw_components(
    which: np.ndarray, count: np.ndarray, first: np.ndarray, second: np.ndarray,
    m0: np.ndarray, kappa: float, psi: np.ndarray, scales: np.ndarray,
    chi: np.ndarray, z: np.ndarray, mu: np.ndarray, U: np.ndarray, root: np.ndarray,
    precision: np.ndarray, log_det: np.ndarray, centre: np.ndarray, spread: np.ndarray,
) -> None:  # fmt: skip
    """Draw some components anew, in place.

    Parameters
    ----------
    which
        Numbers of the components to draw.
    count, first, second
        Sums of the rows' weights, of ``x - mu`` and of its squares (lower half).
    m0, kappa, psi, scales
        The prior; ``scales`` is ``s``, one per component.
    chi
        ``(K, D)`` roots of chi-squares with ``nu + n - d`` degrees of freedom.
    z
        ``(K, P)`` normal numbers, ``D`` for the mean and then those below the diagonal.
    mu, U, root, precision, log_det
        Components: what is drawn, with ``U = root root'``, ``U^-1`` and ``log |U|``.
    centre, spread
        What they are drawn from: the mean of ``mu``, and the scale of the inverse Wishart law times
        ``1 + 1 / (kappa + n)``, for the Student-t law of a further value.
    """
    dim = len(m0)
    L, A = np.zeros((dim, dim)), np.zeros((dim, dim))
    inverse, mean = np.empty((dim, dim)), np.empty(dim)
    for k in which:
        n = count[k]
        for d in range(dim):
            step = first[k, d] / n if n > 0.0 else 0.0
            mean[d] = mu[k, d] + step  # the mean of the rows
        shrink = kappa * n / (kappa + n)
        for d in range(dim):
            for e in range(d + 1):
                total = scales[k] * psi[d, e]
                if n > 0.0:
                    total += second[k, d, e] - first[k, d] * first[k, e] / n
                    total += shrink * (mean[d] - m0[d]) * (mean[e] - m0[e])
                L[d, e] = total
                spread[k, d, e] = total * (1.0 + 1.0 / (kappa + n))
                spread[k, e, d] = spread[k, d, e]
        for d in range(dim):  # L becomes its own Cholesky factor
            for e in range(d):
                for f in range(e):
                    L[d, e] -= L[d, f] * L[e, f]
                L[d, e] /= L[e, e]
            least = THINNEST * L[d, d]
            for f in range(d):
                L[d, d] -= L[d, f] * L[d, f]
            L[d, d] = np.sqrt(max(L[d, d], least, 1e-290))
        at = dim
        for d in range(dim):
            A[d, d] = max(chi[k, d], SMALLEST_CHI)
            for e in range(d):
                A[d, e] = z[k, at]
                at += 1
        for d in range(dim):  # root = L A^-T: each row solves A root_d' = L_d'
            for e in range(dim):
                total = L[d, e] if e <= d else 0.0
                for f in range(e):
                    total -= A[e, f] * root[k, d, f]
                root[k, d, e] = total / A[e, e]
        log_det[k] = 0.0
        for d in range(dim):
            log_det[k] += 2.0 * (np.log(L[d, d]) - np.log(A[d, d]))
        for e in range(dim):  # inverse = L^-1
            for d in range(dim):
                total = 1.0 if d == e else 0.0
                for f in range(e, d):
                    total -= L[d, f] * inverse[f, e]
                inverse[d, e] = total / L[d, d] if d >= e else 0.0
        for d in range(dim):  # (A' L^-1), from the first row on
            for e in range(dim):
                total = 0.0
                for f in range(d, dim):
                    total += A[f, d] * inverse[f, e]
                inverse[d, e] = total
        for d in range(dim):
            for e in range(d + 1):
                total, other = 0.0, 0.0
                for f in range(dim):
                    total += root[k, d, f] * root[k, e, f]
                    other += inverse[f, d] * inverse[f, e]
                U[k, d, e] = total
                U[k, e, d] = total
                precision[k, d, e] = other
                precision[k, e, d] = other
        for d in range(dim):
            total = 0.0
            for e in range(dim):
                total += root[k, d, e] * z[k, e]
            centre[k, d] = (kappa * m0[d] + n * mean[d]) / (kappa + n)
            mu[k, d] = centre[k, d] + total / np.sqrt(kappa + n)
