r"""What the covariances of all rows' draws tell of each row's own."""

import numpy as np
from scipy.special import multigammaln

from deconflow._types import Array

#: So many rows say how alike covariances are.
MOST_ROWS = 500
#: Degrees of freedom of the prior that are tried, beyond the number of columns less one.
DEGREES = np.geomspace(0.5, 1e4, 25)
#: Rows with fewer degrees of freedom for each column and one more always look at the others.
ENOUGH = 5
STEPS, PRECISION = 200, 1e-6


def predictive_covariance(scatter: Array, size: Array) -> Array:
    r"""Covariance ``(N, D, D)`` of the truth about the mean of a row's draws.

    Covariances :math:`S_i` have an inverse Wishart law whose scale and degrees of freedom
    :math:`\nu` are those that make the scatter :math:`A_i` of the draws most probable. Given
    :math:`K` draws :math:`S_i` then has the mean :math:`(\Psi + A_i) / (\nu + K - D - 2)`, and the
    mean of the draws errs by another :math:`S_i / K`. So covariances that differ no more than by
    chance become one. Rows whose own draws say more than all others keep their own: the law of
    covariances is a guess, which would widen the best rows of a table of very different ones.

    Parameters
    ----------
    scatter
        ``(N, D, D)``: sums of squares and products of a row's draws about their mean.
    size
        ``(N,)``: effective number of its draws.
    """
    dim = scatter.shape[-1]
    some = np.random.default_rng(0).permutation(len(size))[:MOST_ROWS]
    units = np.sqrt(np.exp(np.log(np.diagonal(scatter, axis1=1, axis2=2)).mean(0)))
    A, freedom = scatter / np.outer(units, units), size - 1
    degrees, scale = _most_probable(A[some], freedom[some])
    shrunk = (freedom <= degrees) | (freedom <= ENOUGH * (dim + 1))
    A = A + shrunk[:, None, None] * scale
    inflation = (1 + 1 / size) / (freedom + shrunk * degrees - dim - 1).clip(min=0.5)
    return A * inflation[:, None, None] * np.outer(units, units)


def _most_probable(scatter: Array, freedom: Array) -> tuple[float, Array]:
    """Degrees of freedom and scale of the prior with the largest marginal likelihood."""
    dim = scatter.shape[-1]
    best, found = -np.inf, (0.0, np.zeros((dim, dim)))
    scale = np.eye(dim)
    for degrees in dim - 1 + DEGREES:
        scale = _best_scale(scatter, freedom, degrees, scale)
        log_p = _log_marginal(scatter, freedom, degrees, scale)
        if log_p > best:
            best, found = log_p, (float(degrees), scale)
    return found


def _best_scale(scatter: Array, freedom: Array, degrees: float, scale: Array) -> Array:
    r"""Solve :math:`\nu \Psi^{-1} = E\, (\nu + n_i)(\Psi + A_i)^{-1}` by iteration.

    Near :math:`\nu = \infty` steps are short: :math:`\Psi / \nu` is then the pooled covariance,
    with which it begins.
    """
    pooled = scatter.sum(0) / freedom.sum()
    if degrees > freedom.mean():
        scale = pooled * degrees
    for _ in range(STEPS):
        precision = np.linalg.inv(scale + scatter) * (degrees + freedom)[:, None, None]
        new = np.linalg.inv(precision.mean(0)) * degrees
        step = np.abs(new - scale).max() / np.abs(new).max()
        scale = new
        if step < PRECISION:
            break
    return scale


def _log_marginal(scatter: Array, freedom: Array, degrees: float, scale: Array) -> float:
    """Mean log density of scatters, but for what does not depend on the prior."""
    dim = scatter.shape[-1]
    both = degrees + freedom
    log_p = degrees * np.linalg.slogdet(scale)[1] - both * np.linalg.slogdet(scale + scatter)[1]
    gammas = np.array([multigammaln(each / 2, dim) for each in both])
    return float((0.5 * log_p + gammas).mean() - multigammaln(degrees / 2, dim))
