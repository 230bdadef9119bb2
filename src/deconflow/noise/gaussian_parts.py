r"""Noise laws as mixtures of Gaussians, so that closed forms hold for them.

A Gaussian is itself. Student-t, Laplace and other laws with independent values become mixtures
of a few Gaussians in each value (for symmetric laws: scale mixtures), fitted once for all rows
that differ in location and scale only. A law over whole rows that all rows share is fitted to
draws.
"""

from __future__ import annotations

import heapq
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
)

from deconflow.noise import fourier
from deconflow.noise.catalogue import CATALOGUE, Array, as_array
from deconflow.noise.moments import finite_covariance, finite_mean
from deconflow.randomness import isolated_rng

Index = NDArray[np.int64]
Table = tuple[Array, Array, Array]
"""Weights, means and variances of mixtures."""

PARTS_FOR_DIMENSION = {1: 12, 2: 6, 3: 5, 4: 4, 5: 3}
PARTS_BEYOND = 4
"""Gaussians for each value: in few dimensions so few that all their products are kept."""
MOST_PARTS = 256
"""Largest number of Gaussians for a row of independent values."""
ROWS_FOR_A_CHOICE = 100
LARGEST_FITS = 2_000
"""Largest number of values whose laws are fitted one by one."""
MOST_SHAPES = 200
VALUES_FOR_SHAPES = 5_000
QUANTILES = (np.arange(200) + 0.5) / 200
NUMBERS_AT_ONCE = 4_000_000
DRAWS = 20_000


class NoiseMixture(ABC):
    """The noise of each row as a mixture of Gaussians; see :meth:`Noise.as_mixture`."""

    @property
    @abstractmethod
    def n_parts(self) -> int:
        """Number of Gaussians in each row's mixture, over all its values."""

    @abstractmethod
    def take(self, rows: Index | slice | None = None, columns: Index | None = None) -> JointMixture:
        """Write out the mixtures of some rows and some measured values; None for all of them.

        Memory is that of these rows alone.
        """

    @property
    @abstractmethod
    def centred(self) -> bool:
        """Whether all Gaussians have mean zero."""

    @abstractmethod
    def harmonic_covariance(self) -> Array:
        """Inverse of the mean precision of each row, ``(N or 1, M, M)``."""


@dataclass(frozen=True)
class JointMixture(NoiseMixture):
    """``sum_j c_j N(b_j, S_j)`` over whole rows; a leading axis of 1 holds for all rows.

    Attributes
    ----------
    weights, means : array
        ``(N or 1, J)``, and ``(N or 1, J, M)`` or None for zero.
    covariances : array
        ``(N or 1, J, M)`` if diagonal, else ``(N or 1, J, M, M)``.
    """

    weights: Array
    means: Array | None
    covariances: Array

    @property
    def n_parts(self) -> int:
        """Number of Gaussians in each row's mixture."""
        return self.weights.shape[1]

    @property
    def diagonal(self) -> bool:
        """Whether only variances are kept."""
        return self.covariances.ndim == 3

    @property
    def centred(self) -> bool:
        """Whether all Gaussians have mean zero."""
        return self.means is None or not self.means.any()

    def harmonic_covariance(self) -> Array:
        """Inverse of the mean precision of each row, ``(N or 1, M, M)``."""
        if self.diagonal:
            return _diagonal(1 / (self.weights[..., None] / self.covariances).sum(1))
        precisions = self.weights[..., None, None] * np.linalg.inv(self.covariances)
        return np.linalg.inv(precisions.sum(1))

    def take(self, rows: Index | slice | None = None, columns: Index | None = None) -> JointMixture:
        """Mixtures of some rows and some measured values."""
        means, covariances = self.means, self.covariances
        if columns is not None:
            means = None if means is None else means[..., columns]
            covariances = covariances[..., columns]
            if not self.diagonal:
                covariances = covariances[..., columns, :]
        return JointMixture(
            _rows(self.weights, rows),
            None if means is None else _rows(means, rows),
            _rows(covariances, rows),
        )


@dataclass(frozen=True)
class IndependentMixture(NoiseMixture):
    r"""Independent values ``a + s x``, where ``x`` has a mixture out of a table of shapes.

    Over a row, the products of its values' Gaussians. Where these are more than 256, the products
    are put into 256 groups, each a product of ranges of parts, and each group becomes one Gaussian
    with its weight, mean and variances. So weights sum to one, and mean and covariance of the
    noise stay what they are; finer features are an approximation: for Student-t noise of three
    degrees of freedom, the density of the noise differs from the true one by 0.03 nats in eight
    dimensions and 0.12 in twelve, where one Gaussian of its covariance differs by 1.6 and 2.2.

    Attributes
    ----------
    shapes : tuple of array
        Weights, means and variances, each ``(S, J)``.
    which : array
        ``(N or 1, M)``: each value's shape.
    location, scale : array
        ``(N or 1, M)``; no location for zero.
    """

    shapes: Table
    which: Index
    location: Array | None
    scale: Array

    @property
    def n_parts(self) -> int:
        """Number of Gaussians in each row's mixture."""
        return len(self._choice(self.which))

    @property
    def centred(self) -> bool:
        """Whether all Gaussians have mean zero."""
        return self.location is None and not self.shapes[1].any()

    def harmonic_covariance(self) -> Array:
        """Inverse of the mean precision of each row, ``(N or 1, M, M)``."""
        weights, _, variances = self.by_value()
        return _diagonal(1 / (weights / variances).sum(-1))

    def by_value(
        self, rows: Index | slice | None = None, columns: Index | None = None
    ) -> tuple[Array, Array | None, Array]:
        """Weights, means (None for zero) and variances of each value, ``(N or 1, M, J)``."""

        def pick(values: NDArray) -> NDArray:
            return _rows(values if columns is None else values[:, columns], rows)

        weights, means, variances = (table[pick(self.which)] for table in self.shapes)
        scale = pick(self.scale)[..., None]
        variances = variances * scale**2
        if self.centred:
            return weights, None, variances
        means = means * scale
        if self.location is not None:
            means = means + pick(self.location)[..., None]
        return weights, means, variances

    def take(self, rows: Index | slice | None = None, columns: Index | None = None) -> JointMixture:
        """Products of the values' mixtures, for some rows and some measured values."""
        choice = self._choice(self.which if columns is None else self.which[:, columns])
        weights, means, variances = self.by_value(rows, columns)
        if choice.max() >= weights.shape[-1]:
            weights, means, variances = _with_ranges(weights, means, variances)
        value = np.arange(weights.shape[1])
        return JointMixture(
            weights[:, value, choice].prod(-1),
            None if means is None else means[:, value, choice],
            variances[:, value, choice],
        )

    def _choice(self, which: Index) -> Index:
        """Return which part, or range of parts, of each value a Gaussian takes, ``(C, M)``."""
        parts, dim = self.shapes[0].shape[1], which.shape[1]
        if parts**dim <= MOST_PARTS:
            grid = np.meshgrid(*[np.arange(parts)] * dim, indexing="ij")
            return np.stack(grid, -1).reshape(-1, dim)
        last = len(which) - 1
        some = np.linspace(0, last, min(last + 1, ROWS_FOR_A_CHOICE)).astype(np.int64)
        tables = np.stack([table[np.unique(which[some], axis=0)] for table in self.shapes])
        return _grouped(tables.tobytes(), tables.shape)


def _diagonal(variances: Array) -> Array:
    return variances[..., None] * np.eye(variances.shape[-1])


def _rows(values: NDArray, rows: Index | slice | None) -> NDArray:
    return values if rows is None or len(values) == 1 else values[rows]


# -- products of independent values in groups ---------------------------------------------------


def _ranges(parts: int) -> list[tuple[int, int]]:
    """Ranges of neighbouring parts: each by itself, then all longer ones."""
    return [(a, a + size) for size in range(1, parts + 1) for a in range(parts - size + 1)]


def _with_ranges(
    weights: Array, means: Array | None, variances: Array
) -> tuple[Array, Array | None, Array]:
    """Append to parts ``(..., J)`` the Gaussians with the moments of each range of them."""
    centres = np.zeros_like(weights) if means is None else means
    columns = []
    for a, b in _ranges(weights.shape[-1])[weights.shape[-1] :]:
        weight = weights[..., a:b].sum(-1)
        share = weights[..., a:b] / np.maximum(weight, 1e-300)[..., None]
        mean = (share * centres[..., a:b]).sum(-1)
        spread = np.square(centres[..., a:b] - mean[..., None])
        columns.append((weight, mean, (share * (variances[..., a:b] + spread)).sum(-1)))
    merged = [np.stack(column, -1) for column in zip(*columns, strict=True)]
    weights, centres, variances = (
        np.concatenate(pair, -1) for pair in zip((weights, centres, variances), merged, strict=True)
    )
    return weights, None if means is None else centres, variances


@lru_cache(maxsize=1000)
def _grouped(tables: bytes, shape: tuple[int, ...]) -> Index:
    r"""Put the products of parts into groups, each a range of parts in every value: ``(C, M)``.

    All products are one group at first. Again and again the group is split in two, along one
    value, that gains most: with weight :math:`w`, its values' variance :math:`v` and its parts'
    shares :math:`r_j` and variances :math:`v_j` in that value, a group costs at most
    :math:`w (\log v - \sum_j r_j \log v_j) / 2` nats (Runnalls 2007). Variances count relative to
    each other only, so that one choice holds for rows of all scales; of several shapes it takes
    the mean.
    """
    weights, means, variances = np.frombuffer(tables).reshape(shape)
    parts, dim = weights.shape[-1], weights.shape[-2]
    ranges = _ranges(parts)
    number = {span: i for i, span in enumerate(ranges)}
    extended, _, merged = _with_ranges(weights, means, variances)
    log_parts = np.stack([(weights * np.log(variances))[..., a:b].sum(-1) for a, b in ranges], -1)
    cost = 0.5 * (extended * np.log(merged) - log_parts).mean(0)  # (M, ranges)
    share = extended.mean(0)

    def best_split(value: int, span: tuple[int, int]) -> tuple[float, int]:
        a, b = span
        gains = [
            (cost[value, number[span]] - cost[value, number[a, m]] - cost[value, number[m, b]], m)
            for m in range(a + 1, b)
        ]
        gain, middle = max(gains, default=(0.0, a))
        return max(gain, 0.0) / max(share[value, number[span]], 1e-300), middle

    splits = [{span: best_split(value, span) for span in ranges} for value in range(dim)]

    def entry(weight: float, group: tuple[tuple[int, int], ...]) -> tuple:
        gains = [splits[value][span][0] for value, span in enumerate(group)]
        return -weight * max(gains), weight, group, int(np.argmax(gains))

    heap = [entry(1.0, ((0, parts),) * dim)]
    while len(heap) < MOST_PARTS and heap[0][0] < 0:
        _, weight, group, value = heapq.heappop(heap)
        a, b = group[value]
        middle = splits[value][a, b][1]
        for span in ((a, middle), (middle, b)):
            part = weight * share[value, number[span]] / share[value, number[a, b]]
            heapq.heappush(heap, entry(part, (*group[:value], span, *group[value + 1 :])))
    return np.array([[number[span] for span in group] for _, _, group, _ in heap])


# -- laws over whole rows -----------------------------------------------------------------------


def joint_mixture(law: Distribution, unit: torch.Tensor, *, shared: bool) -> JointMixture:
    """Mixture of a distribution with batch ``(N or 1,)``, event ``(D,)``, divided by ``unit``."""
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
        return _fitted_to_draws(law, unit)
    else:
        raise ValueError(
            "Expected noise that XD can write as a mixture of Gaussians: Gaussian, a mixture, "
            "independent values, or one law for all rows; "
            f"got a {type(law).__name__} over whole rows that differs by row."
        )
    covariances = covariances / torch.outer(unit, unit)
    return JointMixture(as_array(weights), as_array(means / unit), as_array(covariances))


def _fitted_to_draws(law: Distribution, unit: torch.Tensor) -> JointMixture:
    with isolated_rng(0):
        draws = as_array(law.sample(torch.Size((DRAWS,)))[:, 0] / unit)
    fit = GaussianMixture(8, tol=1e-5, max_iter=1000, random_state=0)
    with warnings.catch_warnings():  # a fit that might still gain a little is good enough
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit.fit(draws)
    return JointMixture(fit.weights_[None], fit.means_[None], fit.covariances_[None])


# -- laws of independent values -----------------------------------------------------------------


def independent_mixture(
    law: Distribution, unit: torch.Tensor, of_rows: Callable[[slice], Distribution]
) -> IndependentMixture:
    """Mixture of a distribution with batch ``(N or 1, D)``, divided by ``unit``.

    ``of_rows`` gives the distribution of some rows.
    """
    rows, dim = law.batch_shape
    parts = PARTS_FOR_DIMENSION.get(dim, PARTS_BEYOND)
    if type(law) in CATALOGUE:
        location, scale, shape = CATALOGUE[type(law)].standard_form(law)
        values, which = np.unique(shape, return_inverse=True)
        kind: Any = type(law)  # hashable, which mypy does not see
        fits = [_unit_parts(kind, float(value), parts) for value in values]
        shapes = _stacked(fits)
    elif rows * dim > LARGEST_FITS:
        shapes, which, location, scale = _by_shared_shapes(of_rows, rows, parts)
    else:
        shapes, which = _by_value(law, parts), np.arange(rows * dim)
        location, scale = np.zeros((rows, dim)), np.ones((rows, dim))
    scale, location = scale / as_array(unit), location / as_array(unit)
    which = which.reshape(scale.shape)
    return IndependentMixture(shapes, which, location if location.any() else None, scale)


def _stacked(fits: list[Table]) -> Table:
    weights, means, variances = (np.stack(column) for column in zip(*fits, strict=True))
    return weights, means, variances


@lru_cache(maxsize=1000)
def _unit_parts(kind: type[Distribution], shape: float, parts: int) -> Table:
    """Weights, means and variances of the mixture nearest to a law of unit scale."""
    known = CATALOGUE[kind]
    if known.table is None:
        return np.ones(1), np.zeros(1), np.ones(1)
    x, mass = known.table(shape)
    if known.symmetric:
        return _fit_scales(x, mass, parts)
    weights, means, variances = _fit_tables(x[None], mass[None], parts)
    return weights[0], means[0], variances[0]


def _by_value(law: Distribution, parts: int) -> Table:
    """Fit each row's and value's density, tabulated between its extreme quantiles."""
    with isolated_rng(0):
        draws = law.sample(torch.Size((4000,))).sort(0).values
    low, high = draws[4], draws[-5]
    share = torch.linspace(0, 1, 300, dtype=draws.dtype)[:, None, None]
    x = low + (high - low) * share
    p = law.log_prob(x).exp()
    mass = as_array(p / p.sum(0)).reshape(300, -1).T
    return _fit_tables(as_array(x).reshape(300, -1).T, mass, parts)


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
    for start in range(0, rows, fourier.ROWS_AT_ONCE):
        law = of_rows(slice(start, start + fourier.ROWS_AT_ONCE))
        quantiles, location, scale = _unit_quantiles(law)
        which.append(pairwise_distances_argmin(quantiles, distinct))
        locations.append(location)
        scales.append(scale)
    mass = np.full_like(distinct, 1 / len(QUANTILES))
    table = _fit_tables(distinct, mass, parts)
    return table, np.concatenate(which), np.concatenate(locations), np.concatenate(scales)


def _unit_quantiles(law: Distribution) -> tuple[Array, Array, Array]:
    """Quantiles of each value in units of its mean and width, with these; ``(N D, Q)``."""
    location = as_array(finite_mean(law))
    scale = as_array(finite_covariance(law).diagonal(dim1=-2, dim2=-1).sqrt())
    x, mass = fourier.nodes(law)
    x = ((x - location) / scale).reshape(len(x), -1).T
    below = np.cumsum(mass, 0).reshape(len(mass), -1).T
    rows = zip(below, x, strict=True)
    return np.stack([np.interp(QUANTILES, *row) for row in rows]), location, scale


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


def _fit_tables(x: Array, mass: Array, parts: int) -> Table:
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
