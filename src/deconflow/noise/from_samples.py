r"""Noise from draws of each row's posterior."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import multigammaln

from deconflow._types import Array, IntArray
from deconflow.checks import (
    as_floats,
    first_bad,
    refuse_extremes,
    refuse_if,
    refuse_where,
    warn_caller,
)
from deconflow.noise.base import KeptDraws, Noise
from deconflow.noise.gaussian_noise import of_covariance
from deconflow.noise.mixture_noise import gaussian_mixture

#: Largest number of coordinates of draws in a chunk.
NUMBERS_AT_ONCE = 2_000_000
#: So many draws of each row are kept.
MOST_KEPT = 64
#: Rows with fewer effective draws than this for each column and one more are told of.
FEW_DRAWS = 10
#: A smaller scatter of draws, relative to their mean, is none.
ROUNDING = 1e-13
#: Smallest eigenvalue of a correlation matrix of draws.
THINNEST = 1e-10
#: So many rows say how alike covariances are.
MOST_ROWS = 500
#: Degrees of freedom of the prior that are tried, beyond the number of columns less one.
DEGREES = np.geomspace(0.5, 1e4, 25)
#: Rows with fewer degrees of freedom for each column and one more always look at the others.
ENOUGH = 5
STEPS, PRECISION = 200, 1e-6


@dataclass(frozen=True)
class Draws:
    """Weighted draws of each row.

    Attributes
    ----------
    values : sequence of array
        ``(K_i, D)`` for each row.
    log_prior : sequence of array or None
        ``(K_i,)`` for each row; None for a flat prior.
    """

    values: Sequence[Array]
    log_prior: Sequence[Array] | None

    @property
    def dim(self) -> int:
        """Number of values of a draw."""
        return self.values[0].shape[1]

    @property
    def counts(self) -> IntArray:
        """Number of draws of each row."""
        return np.array([len(row) for row in self.values])

    def chunks(self) -> Iterator[tuple[IntArray, Array, Array]]:
        """Walk through rows: their numbers, draws ``(n, K, D)``, weights ``(n, K)``.

        Weights sum to one; where a row has fewer draws than others they are zero.
        """
        counts = self.counts
        rows = np.argsort(counts, kind="stable")
        while len(rows):
            sizes = np.arange(1, len(rows) + 1) * counts[rows] * self.dim
            n = max(1, int(np.searchsorted(sizes, NUMBERS_AT_ONCE)))
            yield rows[:n], *self._padded(rows[:n], int(counts[rows[n - 1]]))
            rows = rows[n:]

    def _padded(self, rows: IntArray, width: int) -> tuple[Array, Array]:
        x = np.empty((len(rows), width, self.dim))
        log_weight = np.full((len(rows), width), -np.inf)
        for i, row in enumerate(rows):
            draws = self.values[row]
            x[i, : len(draws)], x[i, len(draws) :] = draws, draws[0]
            log_weight[i, : len(draws)] = 0.0 if self.log_prior is None else -self.log_prior[row]
        weight = np.exp(log_weight - log_weight.max(1, keepdims=True))
        return x, weight / weight.sum(1, keepdims=True)


class FewDrawsWarning(UserWarning):
    """Rows have so few draws that what they say of the truth is rough."""


def from_samples(
    draws: ArrayLike | Sequence[Any],
    log_prior: ArrayLike | Sequence[Any] | Callable[[Array], Array] | None = None,
) -> tuple[Array, Noise]:
    r"""Make measurements and their noise from draws of each row's posterior.

    What a row says of the truth ``v`` is its posterior divided by the prior that it was made with:
    draws with weights ``1 / prior``. Each row's weighted draws become a Gaussian, or two to four
    where these fit better.

    Parameters
    ----------
    draws
        ``(N, K, D)``, or a list of ``N`` arrays ``(K_i, D)``: independent draws of each row's
        posterior. Or a :class:`astropy.uncertainty.Distribution` of shape ``(N,)`` or ``(N, D)``.
    log_prior
        Log density of that prior at the draws, up to a constant: ``(N, K)``, a list of arrays
        ``(K_i,)``, or a function of points ``(K, D)``. None for a flat prior.

    Returns
    -------
    w : array
        ``(N, D)``: means of the weighted draws.
    noise : Noise
        The law of ``w - v``: Gaussian if that is enough for all rows, else a mixture.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> measured = rng.normal(size=(500, 1, 1))
    >>> w, n = from_samples(measured + 0.5 * rng.normal(size=(500, 100, 1)))
    >>> n
    GaussianNoise(rows=500, dim=1, shared=False)
    """
    if hasattr(draws, "distribution") and hasattr(draws, "n_samples"):  # astropy's, draws last
        values = draws.distribution
        draws = np.moveaxis(values[:, None] if values.ndim == 2 else values, -1, 1)
    rows = checked_draws(draws, log_prior)
    mean, scatter, size = _moments(rows)
    _check_moments(rows, mean, scatter, size)
    from deconflow.noise.draw_mixtures import fit_mixtures  # numba takes a second to import

    covariance = predictive_covariance(scatter, size)
    factor: Array = np.linalg.cholesky(scatter / size[:, None, None]).astype(np.float64)
    inverse = np.linalg.inv(factor)
    whitened = (
        (some, (x - mean[some][:, None]) @ inverse[some].swapaxes(1, 2), weight)
        for some, x, weight in rows.chunks()
    )
    mixture = fit_mixtures(whitened, size, factor, covariance)
    law = of_covariance(covariance) if mixture is None else gaussian_mixture(*mixture)
    return mean, replace(law, kept=_kept(rows, mean))


def _moments(rows: Draws) -> tuple[Array, Array, Array]:
    """Means, scatters about them, and effective numbers of draws.

    A scatter is scaled so that, divided by the effective number less one, it is the covariance.
    """
    n, dim = len(rows.values), rows.dim
    mean, scatter, size = np.empty((n, dim)), np.empty((n, dim, dim)), np.empty(n)
    for some, x, weight in rows.chunks():
        mean[some] = np.einsum("nk,nkd->nd", weight, x)
        rest = x - mean[some][:, None]
        size[some] = 1 / np.square(weight).sum(1)
        scatter[some] = size[some, None, None] * np.einsum(
            "nk,nki,nkj->nij", weight, rest, rest, optimize=True
        )
    return mean, scatter, size


def _check_moments(rows: Draws, mean: Array, scatter: Array, size: Array) -> None:
    """Refuse rows with too few draws by their weights, or draws on a plane; tell of few."""
    bad = first_bad(size < rows.dim + 2 - 1e-6)
    if bad is not None:
        raise ValueError(
            f"Expected at least {rows.dim + 2} draws that count in every row; got {size[bad]:.1f} "
            f"of {rows.counts[bad]} in row {bad[0]}, since its weights 1 / prior are so unequal. "
            "Draw more, or with a wider prior."
        )
    sd = np.sqrt(np.diagonal(scatter, axis1=1, axis2=2))
    equal = sd <= ROUNDING * np.abs(mean)
    refuse_where(equal, "draws that differ in every row and column", got="equal ones")
    correlation = scatter / (sd[:, :, None] * sd[:, None])
    refuse_where(
        np.linalg.eigvalsh(correlation)[:, 0] < THINNEST,
        "draws with a covariance",
        got="draws on a line or a plane",
        advice="Leave out a column that others determine.",
    )
    needed = FEW_DRAWS * (rows.dim + 1)
    worst = int(size.argmin())
    if size[worst] < needed:
        warn_caller(
            f"{(size < needed).sum()} of {len(size)} rows have fewer than {needed} draws that "
            f"count (row {worst} {size[worst]:.0f} of {rows.counts[worst]}): what they say of the "
            "truth is rough. Draw more of their posteriors.",
            FewDrawsWarning,
        )


def _kept(rows: Draws, mean: Array) -> KeptDraws:
    """Keep draws from all over each row's, for the certificate."""
    most = min(MOST_KEPT, int(rows.counts.max()))
    offsets, weights = np.zeros((len(mean), most, rows.dim)), np.zeros((len(mean), most))
    for some, x, weight in rows.chunks():
        at = np.linspace(0, rows.counts[some] - 1, most).astype(int).T
        new = np.diff(at, axis=1, prepend=-1) > 0  # a row with few draws has each of them once
        offsets[some] = np.take_along_axis(x, at[..., None], 1) - mean[some][:, None]
        weights[some] = np.take_along_axis(weight, at, 1) * new
    return KeptDraws(offsets.astype(np.float32), weights.astype(np.float32))


# -- draws, checked -------------------------------------------------------------------------------


def checked_draws(draws: Any, log_prior: Any) -> Draws:
    """Check draws ``(N, K, D)``, or a sequence of ``(K_i, D)``, and the prior at them."""
    values = _rows(draws, "draws", 2)
    refuse_if(
        len(values) == 0,
        "Expected draws of one row or more; got none.",
    )
    counts, columns = (np.array([row.shape[axis] for row in values]) for axis in (0, 1))
    dim = columns[0]
    refuse_where(
        (columns != dim) | (dim == 0),
        f"draws of {dim or 'one or more'} columns in every row, as in row 0",
        columns,
        "{}",
    )
    refuse_where([not np.isfinite(row).all() for row in values], "finite draws", got="NaN or inf")
    for i, row in enumerate(values):
        refuse_extremes(f"draws of row {i}", row)
    refuse_where(
        counts < dim + 2,
        f"at least {dim + 2} draws in every row, for the covariance of {dim} values",
        counts,
        "{}",
    )
    return Draws(values, None if log_prior is None else _checked_prior(log_prior, values))


def _rows(values: Any, name: str, ndim: int) -> Sequence[Array]:
    """An array, or a sequence of arrays for each row, as a sequence of arrays."""
    if not isinstance(values, list | tuple):
        array = as_floats(values, name)
        shape = "(N, K, D)" if ndim == 2 else "(N, K)"
        hint = " For one column pass draws[:, :, None]." if (ndim, array.ndim) == (2, 2) else ""
        refuse_if(
            array.ndim != ndim + 1,
            f"Expected {name} of shape {shape}, or a list of N arrays; got {array.shape}.{hint}",
        )
        return [*array]
    columns = [[*map(str, getattr(row, "columns", []))] for row in values]
    for i, names in enumerate(columns):
        if names and names != columns[0]:
            raise ValueError(
                f"Expected {name} of every row with the columns {', '.join(columns[0]) or 'none'}, "
                f"as in row 0; got {', '.join(names)} in row {i}."
            )
    rows = [as_floats(row, f"{name} of row {i}") for i, row in enumerate(values)]
    for i, row in enumerate(rows):
        refuse_if(
            row.ndim != ndim,
            f"Expected {name} of each row of shape {'(K, D)' if ndim == 2 else '(K,)'}; "
            f"got {row.shape} in row {i}.",
        )
    return rows


def _checked_prior(
    log_prior: Any | Callable[[Array], Array], values: Sequence[Array]
) -> Sequence[Array]:
    """Check that the prior is a positive number at every draw."""
    if callable(log_prior):
        log_prior = [as_floats(log_prior(row), "log_prior") for row in values]
    prior = _rows(log_prior, "log_prior", 1)
    refuse_if(
        len(prior) != len(values),
        f"Expected log_prior of {len(values)} rows, as draws have; got {len(prior)}.",
    )
    for i, (row, draws) in enumerate(zip(prior, values, strict=True)):
        refuse_if(
            len(row) != len(draws),
            f"Expected log_prior of {len(draws)} draws in row {i}; got {len(row)}.",
        )
    refuse_where(
        [(row == -np.inf).any() for row in prior],
        "a prior that is positive at every draw",
        got="log_prior -inf",
        advice="A posterior has no draws where its prior vanishes.",
    )
    refuse_where(
        [not np.isfinite(row).all() for row in prior],
        "finite values of log_prior",
        got="NaN or inf",
    )
    return prior


# -- what the covariances of all rows' draws tell of each row's own --------------------------------


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
    if degrees > freedom.mean():
        scale = scatter.sum(0) / freedom.sum() * degrees
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
