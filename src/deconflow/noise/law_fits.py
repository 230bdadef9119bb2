r"""The mixture of Gaussians nearest to a law.

Student-t, Laplace and other laws with independent values become mixtures of a few Gaussians in
each value (for symmetric laws: scale mixtures), fitted once for all rows that differ in location
and scale only. A law over whole rows that all rows share is fitted to draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    biject_to,
)

from deconflow.noise.catalogue import CATALOGUE, Array, KnownLaw, as_array
from deconflow.noise.gaussian_parts import IndependentMixture, Index, JointMixture, Table
from deconflow.noise.moments import finite_covariance, finite_mean
from deconflow.noise.support import is_real, support_of
from deconflow.randomness import isolated_rng, lend_generator

PARTS_FOR_DIMENSION = {1: 12, 2: 6, 3: 5, 4: 4, 5: 3}
PARTS_BEYOND = 4
"""Gaussians for each value: in few dimensions so few that all their products are kept."""
LARGEST_FITS = 1_000
"""Largest number of values whose laws are fitted one by one."""
MOST_SHAPES = 200
VALUES_FOR_SHAPES = 5_000
QUANTILES = (np.arange(200) + 0.5) / 200
NUMBERS_AT_ONCE = 4_000_000
DRAWS = 20_000
NODES = 2001
"""Points that cover a law."""
REACH = 10.0
"""They reach to sinh(10) on the line, about 11,000 standard deviations."""
BOUNDED_REACH = 36.0
"""The same for half lines and intervals, in the coordinate of torch's map onto them."""
ROWS_AT_ONCE = 4_000_000 // NODES


# -- laws over whole rows -----------------------------------------------------------------------


def joint_mixture(law: Distribution, *, shared: bool) -> JointMixture:
    """Mixture of a distribution with batch ``(N or 1,)`` and event ``(D,)``."""
    if isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        weights = torch.ones(1, 1)
        means, covariances = law.loc[:, None], law.covariance_matrix[:, None]
    elif isinstance(law, MixtureSameFamily) and isinstance(
        law.component_distribution, MultivariateNormal
    ):
        weights = law.mixture_distribution.probs
        means = law.component_distribution.loc
        covariances = law.component_distribution.covariance_matrix
    elif shared:
        return _fitted_to_draws(law)
    else:
        raise ValueError(
            "Expected noise that XD can write as a mixture of Gaussians: Gaussian, a mixture, "
            "independent values, or one law for all rows; "
            f"got a {type(law).__name__} over whole rows that differs by row."
        )
    return JointMixture(as_array(weights), as_array(means), as_array(covariances))


def _fitted_to_draws(law: Distribution) -> JointMixture:
    with isolated_rng(0), lend_generator():
        draws = as_array(law.sample(torch.Size((DRAWS,)))[:, 0])
    fit = GaussianMixture(8, tol=1e-5, max_iter=1000, random_state=0)
    with warnings.catch_warnings():  # a fit that might still gain a little is good enough
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit.fit(draws)
    return JointMixture(fit.weights_[None], fit.means_[None], fit.covariances_[None])


# -- laws of independent values -----------------------------------------------------------------


def independent_mixture(
    law: Distribution, of_rows: Callable[[slice], Distribution]
) -> IndependentMixture:
    """Mixture of a distribution with batch ``(N or 1, D)``.

    ``of_rows`` gives the distribution of some rows.
    """
    rows, dim = law.batch_shape
    parts = PARTS_FOR_DIMENSION.get(dim, PARTS_BEYOND)
    if type(law) in CATALOGUE:
        known = CATALOGUE[type(law)]
        location, scale, shape = known.standard_form(law)
        values, which = np.unique(shape, return_inverse=True)
        fits = [_unit_parts(known, float(value), parts) for value in values]
        shapes = _stacked(fits)
    elif isinstance(law, MixtureSameFamily) and isinstance(law.component_distribution, Normal):
        return _as_it_is(law)
    elif rows * dim > LARGEST_FITS:
        shapes, which, location, scale = _by_shared_shapes(of_rows, rows, parts)
    else:
        shapes, which = _by_value(law, parts), np.arange(rows * dim)
        location, scale = np.zeros((rows, dim)), np.ones((rows, dim))
    which = which.reshape(scale.shape)
    return IndependentMixture(shapes, which, location if location.any() else None, scale)


def _as_it_is(law: MixtureSameFamily) -> IndependentMixture:
    """Mixture of values that are mixtures of Gaussians already: every value has its own shape."""
    weights, parts = as_array(law.mixture_distribution.probs), law.component_distribution
    assert isinstance(parts, Normal)
    shape, number = weights.shape[:2], weights.shape[-1]
    shapes = (weights, as_array(parts.loc), np.square(as_array(parts.scale)))
    which = np.arange(shape[0] * shape[1]).reshape(shape)
    weights, means, variances = (np.reshape(each, (-1, number)) for each in shapes)
    return IndependentMixture((weights, means, variances), which, None, np.ones(shape))


def _stacked(fits: list[Table]) -> Table:
    weights, means, variances = (np.stack(column) for column in zip(*fits, strict=True))
    return weights, means, variances


@lru_cache(maxsize=1000)
def _unit_parts(known: KnownLaw, shape: float, parts: int) -> Table:
    """Weights, means and variances of the mixture nearest to a law of unit scale."""
    if known.table is None:
        return np.ones(1), np.zeros(1), np.ones(1)
    x, mass = known.table(shape)
    if known.symmetric:
        return _fit_scales(x, mass, parts)
    weights, means, variances = fit_tables(x[None], mass[None], parts)
    return weights[0], means[0], variances[0]


def _by_value(law: Distribution, parts: int) -> Table:
    """Fit each row's and value's density, tabulated between its extreme quantiles."""
    with isolated_rng(0), lend_generator():
        draws = law.sample(torch.Size((4000,))).sort(0).values
    low, high = draws[4], draws[-5]
    share = torch.linspace(0, 1, 300, dtype=draws.dtype)[:, None, None]
    x = low + (high - low) * share
    p = law.log_prob(x).exp()
    mass = as_array(p / p.sum(0)).reshape(300, -1).T
    return fit_tables(as_array(x).reshape(300, -1).T, mass, parts)


def _by_shared_shapes(
    of_rows: Callable[[slice], Distribution], rows: int, parts: int
) -> tuple[Table, Index, Array, Array]:
    """Fit very many laws by the shapes they have in common: table, which, location, scale.

    A shape is a law's quantiles in units of its mean and standard deviation. The shapes of some
    rows are fitted, or the centres of 200 clusters of them; every law takes the nearest.
    """
    shapes = _unit_quantiles(of_rows(slice(0, rows, max(1, rows // VALUES_FOR_SHAPES))))[0]
    distinct = np.unique(shapes.round(3), axis=0)
    if len(distinct) > MOST_SHAPES:
        distinct = KMeans(MOST_SHAPES, n_init=1, random_state=0).fit(shapes).cluster_centers_
    which, locations, scales = [], [], []
    for start in range(0, rows, ROWS_AT_ONCE):
        law = of_rows(slice(start, start + ROWS_AT_ONCE))
        quantiles, location, scale = _unit_quantiles(law)
        which.append(pairwise_distances_argmin(quantiles, distinct))
        locations.append(location)
        scales.append(scale)
    mass = np.full_like(distinct, 1 / len(QUANTILES))
    table = fit_tables(distinct, mass, parts)
    return table, np.concatenate(which), np.concatenate(locations), np.concatenate(scales)


def _unit_quantiles(law: Distribution) -> tuple[Array, Array, Array]:
    """Quantiles of each value in units of its mean and width, with these; ``(N D, Q)``."""
    location = as_array(finite_mean(law))
    scale = as_array(finite_covariance(law).diagonal(dim1=-2, dim2=-1).sqrt())
    x, mass = nodes(law)
    x = ((x - location) / scale).reshape(len(x), -1).T
    below = np.cumsum(mass, 0).reshape(len(mass), -1).T
    rows = zip(below, x, strict=True)
    return np.stack([np.interp(QUANTILES, *row) for row in rows]), location, scale


def nodes(law: Distribution) -> tuple[Array, Array]:
    r"""Points ``(X, N or 1, D)`` that cover a law, and its mass at each of them.

    The line is reached by :math:`x = m + s \sinh z`, half lines and intervals by torch's map onto
    them: in ``z`` the density is smooth and falls off fast, where sums are close to integrals.
    """
    support = support_of(law)
    column = (slice(None), None, None)
    if is_real(support):
        scale = finite_covariance(law).diagonal(dim1=-2, dim2=-1).sqrt()
        z = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)[column]
        x, log_slope = finite_mean(law) + scale * z.sinh(), z.cosh().log() + scale.log()
    else:
        z = torch.linspace(-BOUNDED_REACH, BOUNDED_REACH, NODES, dtype=torch.float64)[column]
        z = z.expand(-1, *law.batch_shape)
        onto = biject_to(support)
        x = onto(z)
        log_slope = onto.log_abs_det_jacobian(z, x)
    log_p = law.log_prob(x)
    # Not defined at rounded ends of a support: no mass there. NaN compares as false.
    log_mass = torch.where(log_p < torch.inf, log_p, -torch.inf) + log_slope
    mass = (log_mass - log_mass.amax(0)).exp()
    return as_array(x), as_array(mass / mass.sum(0))


def _fit_scales(x: Array, mass: Array, parts: int) -> Table:
    """EM for a symmetric density on the half line: a mixture of centred Gaussians."""
    square = x**2
    variances = _quantiles(square, mass, parts) + 1e-6
    weights = np.full(parts, 1 / parts)
    for _ in range(1500):
        log_q = np.log(weights) - 0.5 * (np.log(variances) + square[:, None] / variances)
        q = np.exp(log_q - log_q.max(1, keepdims=True))
        q *= mass[:, None] / q.sum(1, keepdims=True)
        weights = q.sum(0) / q.sum()
        variances = (q.T @ square) / q.sum(0)
    return weights, np.zeros(parts), variances


def fit_tables(x: Array, mass: Array, parts: int) -> Table:
    """EM for many one-dimensional densities, each a table of points and masses."""
    step = max(1, NUMBERS_AT_ONCE // (x.shape[1] * parts))
    pieces = [_fit_some(x[i : i + step], mass[i : i + step], parts) for i in range(0, len(x), step)]
    weights, means, variances = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return weights, means, variances


def _fit_some(x: Array, mass: Array, parts: int) -> Table:
    spread = x[:, -1:] - x[:, :1]
    means = np.stack([_quantiles(*table, parts) for table in zip(x, mass, strict=True)])
    variances = np.repeat((spread / (2 * parts)) ** 2, parts, axis=1)
    weights = np.full_like(means, 1 / parts)
    floor = (spread / 300) ** 2
    for _ in range(200):
        offset = x[:, :, None] - means[:, None]
        log_q = -0.5 * (offset**2 / variances[:, None] + np.log(variances[:, None]))
        log_q += np.log(weights[:, None] + 1e-300)
        q = np.exp(log_q - log_q.max(2, keepdims=True))
        q *= mass[:, :, None] / q.sum(2, keepdims=True)
        total = q.sum(1) + 1e-300
        weights = total / total.sum(1, keepdims=True)
        means = np.einsum("ngj,ng->nj", q, x) / total
        offset = x[:, :, None] - means[:, None]
        variances = np.maximum((q * offset**2).sum(1) / total, floor)
    return weights, means, variances


def _quantiles(x: Array, mass: Array, parts: int) -> Array:
    return np.interp((np.arange(parts) + 0.5) / parts, np.cumsum(mass), x)
