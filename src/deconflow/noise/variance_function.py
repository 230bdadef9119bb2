r"""The variance of replicates as a smooth function of their mean."""

from collections.abc import Callable

import numpy as np

from deconflow._types import Array, IntArray

#: So many knots at quantiles of the means: a curve with three terms beside the constant.
KNOTS = 4
#: With fewer rows that have replicates there are fewer knots.
ROWS_PER_KNOT = 10
#: Fisher's steps, at most.
STEPS = 100


def fitted_variance(
    mean: Array, squares: Array, degrees: IntArray, column: int = 0
) -> Callable[[Array], Array]:
    r"""Return the error variance of one replicate as a function of the true value.

    Sums of squares are :math:`\sigma^2(x)` times a chi-square number of so many degrees of
    freedom. The maximum of that likelihood for :math:`\log \sigma^2(x)` a natural cubic spline is
    found by Fisher's scoring. Unlike logarithms of variances, whose mean is too low, this needs no
    correction, and replicates that rounding has made equal do no harm. Beyond the means of the
    rows the function is constant.

    Parameters
    ----------
    mean, squares, degrees
        ``(N,)`` means, sums of squares about them, and their degrees of freedom, which may be 0.
    column
        Its number, for the words of an error.
    """
    used = degrees > 0
    if squares[used].sum() == 0:
        raise ValueError(
            f"Expected rows with two replicates or more that differ; got none in column {column}."
        )
    knots = _knots(mean[used])
    b = _scored(
        spline_terms(mean[used], knots), squares[used] / degrees[used], degrees[used].astype(float)
    )
    low, high = mean.min(), mean.max()
    return lambda v: np.exp(spline_terms(np.clip(v, low, high), knots) @ b)


def _scored(X: Array, s: Array, degrees: Array) -> Array:
    """Coefficients of the log variance, of mean squares with so many degrees of freedom."""
    b = np.zeros(X.shape[1])
    b[0] = np.log(np.average(s, weights=degrees))
    curvature = X.T @ (degrees[:, None] * X)
    for _ in range(STEPS):
        step = np.linalg.solve(curvature, X.T @ (degrees * (s * np.exp(-X @ b) - 1)))
        size = float(np.abs(X @ step).max())
        b += step / max(1.0, size)  # the start may be far away
        if size < 1e-8:
            break
    return b


def _knots(x: Array) -> Array:
    """Quantiles, fewer of few rows; none for a constant."""
    n_knots = min(KNOTS, len(x) // ROWS_PER_KNOT)
    knots = np.unique(np.quantile(x, np.linspace(0.05, 0.95, max(n_knots, 2))))
    return knots if n_knots > 1 and len(knots) > 1 else np.empty(0)


def spline_terms(x: Array, knots: Array) -> Array:
    """Natural cubic spline, ``(..., terms)``: straight lines beyond the outer knots."""
    if not len(knots):
        return np.ones((*x.shape, 1))
    z, k = (x - knots[0]) / (knots[-1] - knots[0]), (knots - knots[0]) / (knots[-1] - knots[0])

    def bent(j: int) -> Array:
        return (np.maximum(z - k[j], 0) ** 3 - np.maximum(z - 1, 0) ** 3) / (1 - k[j])

    last = len(k) - 2
    return np.stack([np.ones_like(z), z, *(bent(j) - bent(last) for j in range(last))], -1)
