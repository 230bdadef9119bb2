r"""Noise from repeated measurements of the same rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import (
    as_floats,
    check_choice,
    first_bad,
    refuse_extremes,
    refuse_if,
    refuse_where,
)
from deconflow.noise.base import Noise, Table
from deconflow.noise.distributions import student_t
from deconflow.noise.gaussian_noise import of_covariance
from deconflow.noise.mixture_fits import fit_tables
from deconflow.noise.mixture_noise import ValueMixtures

WAYS = ("mean", "pooled", "rows")
#: Gaussians for what a mean says of the truth where errors change with it.
PARTS = 2
#: Its table goes so many standard errors to both sides of the mean, with so many points.
REACH, POINTS = 8.0, 161
#: So many means have tables of their own.
NODES = 100
#: A smaller difference of replicates, relative to their mean, is none.
ROUNDING = 1e-14
#: Knots of the variance function at quantiles of the means: a curve with three terms beside the
#: constant. With fewer rows that have replicates there are fewer.
KNOTS, ROWS_PER_KNOT = 4, 10
#: Fisher's steps, at most.
STEPS = 100


def from_replicates(
    values: ArrayLike, how: str = "pooled", *, covariance: ArrayLike | None = None
) -> tuple[Array, Noise]:
    r"""Make measurements and their noise from replicates: what scatters within a row is error.

    Parameters
    ----------
    values
        ``(N, R, D)``: ``R`` measurements of each row's ``D`` values, with NaN for missing ones.
    how
        What is taken to be the same, and so is learned from how many replicates:

        - ``"pooled"``: all rows have errors of the same covariance,
          :math:`S = \sum_i \sum_r (x_{ir} - \bar x_i)(x_{ir} - \bar x_i)' / \sum_i (R_i - 1)`; the
          mean of a row has :math:`S / R_i`;
        - ``"rows"``: each row has a variance of its own, known from its own replicates only, so
          that the noise of its mean has Student's law with :math:`R_i - 1` degrees of freedom
          and scale :math:`s_i / \sqrt{R_i}`;
        - ``"mean"``: the error variance of each column is a smooth function of its true value,
          learned at the rows' means.

        Errors of different columns may go together if pooled, and are independent otherwise.
    covariance
        ``(D, D)``: :math:`S`, if other rows have told it; see :func:`replicate_covariance`.

    Returns
    -------
    w : array
        ``(N, D)``: means of the replicates, NaN where a value has none.
    noise : Noise
        The law of the error of these means.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(1000, 1, 1))
    >>> w, n = from_replicates(truth + 0.5 * rng.normal(size=(1000, 2, 1)))
    >>> w.shape, round(n.variance().item(), 2)  # 0.5^2 / 2
    ((1000, 1), 0.13)
    """
    check_choice("how", how, WAYS)
    w, residual, seen = _read(values)
    if covariance is not None:
        return w, _pooled(seen, _checked_covariance(covariance, how, w.shape[1]))
    if how == "pooled":
        return w, _pooled(seen, _pooled_covariance(residual, seen))
    count = seen.sum(1)
    squares = np.square(residual).sum(1)
    if how == "mean":
        return w, _of_means(w, squares, count)
    where, advice = 'in every row for how="rows"', 'Use how="pooled" or how="mean".'
    refuse_where(count < 2, f"two replicates or more {where}", count, advice=advice)
    refuse_where(squares == 0, f"replicates that differ {where}", got="equal ones", advice=advice)
    degrees = count - 1.0
    return w, student_t(scale=np.sqrt(squares / degrees / count), df=degrees)


def replicate_covariance(values: ArrayLike) -> Array:
    """Covariance ``(D, D)`` of the errors of one replicate, pooled over rows ``(N, R, D)``.

    Rows that come later can be read by it: ``from_replicates(others, covariance=...)``.
    """
    return _pooled_covariance(*_read(values)[1:])


def _read(values: Any) -> tuple[Array, Array, BoolArray]:
    """Means of checked replicates, what these differ from them by, and where there are any."""
    x = as_floats(values, "values")
    hint = " For one column pass values[:, :, None]." if x.ndim == 2 else ""
    refuse_if(
        x.ndim != 3 or 0 in x.shape,
        f"Expected values of shape (N, R, D), R replicates of each row; got {x.shape}.{hint}",
    )
    bad = first_bad(np.isinf(x))
    if bad is not None:
        raise ValueError(
            f"Expected finite values, or NaN for missing ones; got {x[bad]} in row {bad[0]}, "
            f"replicate {bad[1]}."
        )
    refuse_extremes("values", x)
    refuse_where(np.isnan(x).all((1, 2)), "a replicate or more in every row", got="none")
    seen = ~np.isnan(x)
    total, count = np.nansum(x, 1), seen.sum(1)
    w = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    residual = np.where(seen, x - w[:, None], 0.0)
    rounding = ROUNDING * np.abs(w[:, None])  # is no difference
    return w, np.where(np.abs(residual) > rounding, residual, 0.0), seen


def _checked_covariance(covariance: Any, how: str, dim: int) -> Array:
    """Check a covariance that other rows have told."""
    refuse_if(
        how != "pooled",
        f'Expected a covariance only beside how="pooled"; got how={how!r}.',
    )
    found = as_floats(covariance, "covariance")
    refuse_if(
        found.shape != (dim, dim),
        f"Expected covariance of shape {(dim, dim)}; got {found.shape}.",
    )
    refuse_if(
        not np.isfinite(found).all() or not np.allclose(found, found.T),
        "Expected a finite, symmetric covariance; got another.",
    )
    refuse_if(
        np.linalg.eigvalsh(found)[0] < 0,
        "Expected a covariance without negative eigenvalues; got one with some.",
    )
    return found


def _pooled(seen: BoolArray, covariance: Array) -> Noise:
    """Noise of means whose replicates all have one covariance."""
    together = np.einsum("nri,nrj->nij", seen.astype(float), seen.astype(float))
    count = np.maximum(np.diagonal(together, axis1=1, axis2=2), 1)
    # Two means have in common what both were measured in: S_ab n_ab / (n_a n_b).
    share = together / (count[:, :, None] * count[:, None])
    missing = np.diagonal(together, axis1=1, axis2=2) == 0
    idle = missing[:, :, None] * np.eye(len(covariance))
    same = (share == share[0]).all() and not missing.any()
    each = covariance * (share + idle)
    return of_covariance(each[0] if same else each)


def _pooled_covariance(residual: Array, seen: BoolArray) -> Array:
    """Covariance of one replicate's errors, from those replicates in which nothing is missing."""
    whole = np.asarray(seen.all(-1))
    degrees = np.maximum(whole.sum(1) - 1, 0).sum()
    dim = residual.shape[-1]
    refuse_if(
        degrees < dim,
        f"Expected at least {dim} replicates beyond the first of their rows, for the errors of "
        f"{dim} column{'s' if dim > 1 else ''}; got {degrees}. Give the errors by "
        "noise.gaussian(sd=...).",
    )
    rest = residual[whole.sum(1) > 1]
    there = whole[whole.sum(1) > 1][..., None]
    centre = (rest * there).sum(1, keepdims=True) / there.sum(1, keepdims=True)
    rest = np.where(there, rest - centre, 0.0)
    covariance = np.einsum("nri,nrj->ij", rest, rest) / degrees
    column = int(np.argmin(np.diagonal(covariance)))
    refuse_if(
        covariance[column, column] == 0,
        f"Expected replicates that differ; got equal ones in every row of column {column}.",
    )
    return covariance


def _of_means(w: Array, squares: Array, count: IntArray) -> Noise:
    """Noise whose variance is a smooth function of the truth, column by column."""
    ones = np.ones((*w.shape, PARTS))
    parts = [ones / PARTS, 0 * ones, ones]
    for d in range(w.shape[1]):
        there = count[:, d] > 0
        x, n = w[there, d], count[there, d]
        variance = fitted_variance(x, squares[there, d], n - 1, d)
        for values, found in zip(parts, _likelihoods(x, n, variance), strict=True):
            values[there, d] = found
    weights, means, variances = parts
    return ValueMixtures(weights, means, np.sqrt(variances), n_rows=len(w))


def _likelihoods(mean: Array, count: IntArray, variance: Callable[[Array], Array]) -> Table:
    """Write what each mean says of the truth as Gaussians of ``mean - v``, ``(N, PARTS)`` each.

    They change smoothly with the mean: made at some means, and interpolated.
    """
    sd = np.sqrt(variance(mean) / count)[:, None]
    found = np.empty((3, len(mean), PARTS))
    for number in np.unique(count):
        rows = count == number
        at = np.linspace(mean[rows].min(), mean[rows].max(), NODES)
        made = _unit_likelihoods(at, variance, int(number))
        for values, table in zip(found, made, strict=True):
            values[rows] = np.stack([np.interp(mean[rows], at, part) for part in table.T], -1)
    weights, means, variances = found
    return weights, means * sd, variances * sd**2


def _unit_likelihoods(mean: Array, variance: Callable[[Array], Array], count: int) -> Table:
    r"""Gaussians for some means, in units of the error there.

    :math:`N(\bar x; v, \sigma^2(v) / R)` is a Gaussian in the mean, but not in the truth ``v``:
    where errors grow, larger truths are nearer to the mean in units of their error.
    """
    sd = np.sqrt(variance(mean) / count)[:, None]
    z = np.broadcast_to(np.linspace(-REACH, REACH, POINTS), (len(mean), POINTS))
    errors = variance(mean[:, None] - sd * z) / count / sd**2
    log_p = -0.5 * (np.square(z) / errors + np.log(errors))
    mass = np.exp(log_p - log_p.max(1, keepdims=True))
    return fit_tables(z, mass / mass.sum(1, keepdims=True), PARTS)


# -- the variance as a smooth function of the true value -------------------------------------------


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
    refuse_if(
        squares[used].sum() == 0,
        f"Expected rows with two replicates or more that differ; got none in column {column}.",
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
