r"""Noise from draws of each row's posterior."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, IntArray
from deconflow.checks import first_bad, place, warn_caller
from deconflow.noise.base import KeptDraws, Noise
from deconflow.noise.covariance_prior import predictive_covariance
from deconflow.noise.draw_mixtures import MOST_PARTS, Parts, choose, try_parts
from deconflow.noise.draws import Draws, checked_draws
from deconflow.noise.gaussian_noise import GaussianNoise, gaussian
from deconflow.noise.table_noise import MixtureNoise, gaussian_mixture

#: So many draws of each row are kept.
MOST_KEPT = 64
#: Rows with fewer effective draws than this for each column and one more are told of.
FEW_DRAWS = 10

#: A smaller scatter of draws, relative to their mean, is none.
ROUNDING = 1e-13
#: Smallest eigenvalue of a correlation matrix of draws.
THINNEST = 1e-10


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
    rows = checked_draws(_draws_first(draws), log_prior)
    mean, scatter, size = _moments(rows)
    _check_sizes(rows, size)
    _check_scatter(mean, scatter)
    _warn_of_few(rows, size)
    return mean, replace(_noise(rows, mean, scatter, size), kept=_kept(rows, mean))


def _draws_first(draws: Any) -> Any:
    """Turn a distribution of astropy, whose draws are its last axis, into an array."""
    if not (hasattr(draws, "distribution") and hasattr(draws, "n_samples")):
        return draws
    values = draws.distribution
    return np.moveaxis(values[:, None] if values.ndim == 2 else values, -1, 1)


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
        products = np.einsum("nk,nki,nkj->nij", weight, rest, rest, optimize=True)
        scatter[some] = products * size[some, None, None]
    return mean, scatter, size


def _check_sizes(rows: Draws, size: Array) -> None:
    """Refuse rows of which the weights leave too little."""
    bad = first_bad(size < rows.dim + 2 - 1e-6)
    if bad is not None:
        raise ValueError(
            f"Expected at least {rows.dim + 2} draws that count in every row; got {size[bad]:.1f} "
            f"of {rows.counts[bad]} in row {bad[0]}, since its weights 1 / prior are so unequal. "
            "Draw more, or with a wider prior."
        )


def _check_scatter(mean: Array, scatter: Array) -> None:
    """Refuse rows whose draws lie on a point or a plane."""
    sd = np.sqrt(np.diagonal(scatter, axis1=1, axis2=2))
    bad = first_bad(sd <= ROUNDING * np.abs(mean))
    if bad is not None:
        raise ValueError(
            f"Expected draws that differ in every row and column; got equal ones at {place(bad)}."
        )
    correlation = scatter / (sd[:, :, None] * sd[:, None])
    bad = first_bad(np.linalg.eigvalsh(correlation)[:, 0] < THINNEST)
    if bad is not None:
        raise ValueError(
            f"Expected draws with a covariance; got draws on a line or a plane in row {bad[0]}. "
            "Leave out a column that others determine."
        )


def _warn_of_few(rows: Draws, size: Array) -> None:
    """Say how many rows have few draws, and what the fewest are."""
    needed = FEW_DRAWS * (rows.dim + 1)
    few = size < needed
    if few.any():
        worst = int(size.argmin())
        warn_caller(
            f"{few.sum()} of {len(size)} rows have fewer than {needed} draws that count (row "
            f"{worst} {size[worst]:.0f} of {rows.counts[worst]}): what they say of the truth is "
            "rough. Draw more of their posteriors.",
            FewDrawsWarning,
        )


def _kept(rows: Draws, mean: Array) -> KeptDraws:
    """Keep draws from all over each row's, for the certificate."""
    most = min(MOST_KEPT, int(rows.counts.max()))
    offsets, weights = np.zeros((len(mean), most, rows.dim)), np.zeros((len(mean), most))
    for some, x, weight in rows.chunks():
        counts = rows.counts[some]
        at = np.linspace(0, counts - 1, most).astype(int).T
        new = np.diff(at, axis=1, prepend=-1) > 0  # a row with few draws has each of them once
        offsets[some] = np.take_along_axis(x, at[..., None], 1) - mean[some][:, None]
        weights[some] = np.take_along_axis(weight, at, 1) * new
    return KeptDraws(offsets.astype(np.float32), weights.astype(np.float32))


def _noise(rows: Draws, mean: Array, scatter: Array, size: Array) -> GaussianNoise | MixtureNoise:
    """Law of ``mean - v``."""
    covariance = predictive_covariance(scatter, size)
    factor: Array = np.linalg.cholesky(scatter / size[:, None, None]).astype(np.float64)
    evidence, found = _tried(rows, mean, factor, size)
    number = choose(evidence)
    if number.max() == 1:
        return (
            gaussian(sd=np.sqrt(covariance[..., 0]))
            if rows.dim == 1
            else gaussian(covariance=covariance)
        )
    return gaussian_mixture(*_put_together(number, found, factor, covariance))


def _tried(
    rows: Draws, mean: Array, factor: Array, size: Array
) -> tuple[Array, list[tuple[IntArray, list[Parts]]]]:
    """Fit all numbers of Gaussians, chunk by chunk."""
    evidence = np.empty((len(mean), MOST_PARTS))
    inverse = np.linalg.inv(factor)
    found = []
    for some, x, weight in rows.chunks():
        white = (x - mean[some][:, None]) @ inverse[some].swapaxes(1, 2)
        evidence[some], fits = try_parts(white, weight, size[some])
        found.append((some, fits))
    return evidence, found


def _put_together(
    number: IntArray,
    found: list[tuple[IntArray, list[Parts]]],
    factor: Array,
    covariance: Array,
) -> tuple[Array, Array, Array]:
    """Weights, means and covariances of ``mean - v``; rows with fewer Gaussians have idle ones."""
    (n, dim), most = factor.shape[:2], number.max()
    weights, means = np.zeros((n, most)), np.zeros((n, most, dim))
    covariances = np.repeat(covariance[:, None], most, 1)
    weights[:, 0] = 1.0
    for some, fits in found:
        for j, fit in enumerate(fits[: most - 1], start=2):
            used = number[some[fit.rows]] == j
            at = some[fit.rows[used]]
            L = factor[at][:, None]
            weights[at, :j] = fit.weights[used] / fit.weights[used].sum(1, keepdims=True)
            means[at, :j] = -(L @ fit.means[used][..., None])[..., 0]
            covariances[at, :j] = L @ fit.covariances[used] @ L.swapaxes(-1, -2)
    return weights, means, covariances
