r"""Rows as mixtures of Gaussians: what a likelihood on a grid is made of, and bins of them.

Row i says :math:`p(w_i \mid v) = \sum_j a_{ij} N(w_i - b_{ij}; v, S_{ij})`, with one Gaussian for
Gaussian noise. Many rows on a line are put into bins: in classes of noise whose widths differ by a
tenth, in each at points a fifth of the noise apart. A row is divided between the neighbouring
points so that its mean stays; that adds :math:`h^2 / 6` to its variance, on average, which is
taken off the noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations

FEW_ROWS = 1_500
"""As many rows on a line are not put into bins."""
CLASS_RATIO = 0.1
"""Logarithm of the ratio of two neighbouring widths of noise."""
BINS_PER_SD = 5.0
SMALLEST_WEIGHT = {1: 1e-9, 2: 1e-4}
"""Gaussians of less weight in every row are left out, per number of columns: on a plane a law has
up to 256, most of them negligible."""


@dataclass(frozen=True)
class Rows:
    """Rows in standardised units, or bins of them.

    Attributes
    ----------
    count : array
        ``(n,)`` weights.
    weights : array
        ``(n, J)`` weights of each row's Gaussians.
    centres : array
        ``(n, J, D)``: measurements less the means of the noise's Gaussians.
    covariances : array
        ``(n, J, D, D)``.
    observed : array or None
        ``(n, D)``; None for complete rows.
    """

    count: Array
    weights: Array
    centres: Array
    covariances: Array
    observed: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, which: NDArray) -> Rows:
        observed = None if self.observed is None else self.observed[which]
        return Rows(
            self.count[which],
            self.weights[which],
            self.centres[which],
            self.covariances[which],
            observed,
        )

    @property
    def location(self) -> Array:
        """Mean of each row's Gaussians, ``(n, D)``: where it says the truth is."""
        return np.einsum("nj,njd->nd", self.weights, self.centres)

    @property
    def sd(self) -> Array:
        """Widths of the noise's core, ``(n, D)``: from the mean precision of its Gaussians."""
        variance = np.diagonal(self.covariances, axis1=2, axis2=3)
        with np.errstate(divide="ignore"):
            return np.sqrt(1 / np.einsum("nj,njd->nd", self.weights, 1 / variance))


def as_rows(data: Observations) -> Rows:
    """Write rows out, each with its own noise; what was not observed has mean 0 and variance 1."""
    rows = _written_out(data)
    if rows.observed is None:
        return rows
    seen = rows.observed[:, None]
    both = seen[..., None] & seen[..., None, :]
    return replace(
        rows,
        centres=np.where(seen, rows.centres, 0.0),
        covariances=np.where(both, rows.covariances, np.eye(seen.shape[-1])),
    )


def _written_out(data: Observations) -> Rows:
    w = data.w.double().numpy()
    n, dim = w.shape
    count = np.ones(n) if data.weights is None else data.weights.double().numpy()
    observed = None if data.observed is None else data.observed.numpy()
    if isinstance(data.noise, GaussianNoise):
        covariance = data.noise.covariance().double().numpy()[:, None]
        covariance = np.broadcast_to(covariance, (n, 1, dim, dim))
        return Rows(count, np.ones((n, 1)), w[:, None], covariance, observed)
    parts = data.noise.as_mixture().take(slice(None))
    kept = parts.weights.max(0) > SMALLEST_WEIGHT[dim]
    weights, covariances = parts.weights[:, kept], parts.covariances[:, kept]
    if parts.diagonal:
        covariances = covariances[..., None] * np.eye(dim)
    means = 0.0 if parts.means is None else parts.means[:, kept]
    shape = (n, int(kept.sum()), dim)
    return Rows(
        count,
        np.broadcast_to(weights / weights.sum(1, keepdims=True), shape[:2]),
        np.broadcast_to(w[:, None] - means, shape),
        np.broadcast_to(covariances, (*shape, dim)),
        observed,
    )


def bins_on_a_line(rows: Rows, finest: float) -> Rows:
    """Put rows with Gaussian noise into bins, no finer than ``finest``; others stay as they are."""
    if len(rows) <= FEW_ROWS:
        return rows
    if rows.weights.shape[1] > 1:
        return _bins_of_equal_laws(rows, finest)
    variance = rows.covariances[:, 0, 0, 0]
    w = rows.centres[:, 0, 0]
    place = np.log(np.maximum(np.sqrt(variance), 0.1 * finest)) / CLASS_RATIO
    place -= place.min()
    lower = np.floor(place)
    upper_share = np.where(place == lower, 0.0, place - lower)
    made = []
    for step in (0, 1):
        share = upper_share if step else 1 - upper_share
        made += [(lower + step, share)]
    number = np.concatenate([m[0] for m in made]).astype(np.int64)
    share = np.concatenate([m[1] for m in made])
    row = np.tile(np.arange(len(rows)), 2)
    return _in_classes(w, variance, rows.count, number, share, row, finest)


def _in_classes(
    w: Array,
    variance: Array,
    count: Array,
    number: NDArray[np.int64],
    share: Array,
    row: NDArray[np.int64],
    finest: float,
) -> Rows:
    """Bin the rows of each class of noise by themselves."""
    used = share > 0
    number, share, row = number[used], share[used], row[used]
    order = np.argsort(number, kind="stable")
    edges = np.flatnonzero(np.diff(number[order])) + 1
    found = []
    for mine in np.split(order, edges):
        which, weight = row[mine], share[mine] * count[row[mine]]
        typical = float(np.average(variance[which], weights=weight))
        step = max(np.sqrt(typical) / BINS_PER_SD, finest)
        places, counts = _divided(w[which], weight, step)
        found.append((places, counts, np.full(len(places), max(typical - step**2 / 6, 0.0))))
    places, counts, variances = (np.concatenate(part) for part in zip(*found, strict=True))
    ones = np.ones((len(places), 1))
    return Rows(counts, ones, places[:, None, None], variances[:, None, None, None])


def _bins_of_equal_laws(rows: Rows, finest: float) -> Rows:
    """Bin rows that share one law with others, up to where it lies."""
    shape = np.concatenate(
        [rows.weights, (rows.centres - rows.centres[:, :1])[..., 0], rows.covariances[..., 0, 0]], 1
    )
    first, which = alike(shape)
    if len(first) > len(rows) / 20:
        return rows
    made = []
    for law, head in enumerate(first):
        mine = np.flatnonzero(which == law)
        step = max(float(rows.sd[head, 0]) / BINS_PER_SD, finest)
        places, counts = _divided(rows.centres[mine, 0, 0], rows.count[mine], step)
        offset = rows.centres[head] - rows.centres[head, :1]
        variance = np.maximum(rows.covariances[head] - step**2 / 6, 0.0)
        n = len(places)
        made.append(
            Rows(
                counts,
                np.broadcast_to(rows.weights[head], (n, rows.weights.shape[1])),
                places[:, None, None] + offset,
                np.broadcast_to(variance, (n, *variance.shape)),
            )
        )
    return joined(made)


def joined(parts: list[Rows]) -> Rows:
    """Put rows one after another."""
    seen = [part.observed for part in parts if part.observed is not None]
    return Rows(
        np.concatenate([part.count for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.centres for part in parts]),
        np.concatenate([part.covariances for part in parts]),
        np.concatenate(seen) if seen else None,
    )


def alike(values: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First of each kind of rows that agree to nine digits, and the kind of each row."""
    size = np.abs(values).max(0) + np.finfo(float).tiny
    rounded = np.round(values / size, 9)
    _, first, which = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return first, which.ravel()


def _divided(w: Array, weight: Array, step: float) -> tuple[Array, Array]:
    """Points ``step`` apart, and what of the rows' weights goes to each."""
    start = w.min()
    place = (w - start) / step
    lower = np.floor(place).astype(np.int64)
    upper = weight * (place - lower)
    both = np.r_[lower, lower + 1]
    numbers, which = np.unique(both, return_inverse=True)
    counts = np.bincount(which, np.r_[weight - upper, upper]).astype(np.float64)
    used = counts > 0
    return start + step * numbers[used], counts[used]
