r"""Observations laid out for the kernel: columns of rows, grouped by what the rows have in common.

Rows with the same missing values, or the same projection, form a group: their model is the
mixture of ``R v``, in fewer dimensions. Values are in units in which each column's spread is
about one, so that no product of variances overflows.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import first_bad, place
from deconflow.noise import JointMixture, NoiseMixture
from deconflow.observations import Observations, OutOfReachError, noise_sizes
from deconflow.standardising import Standardiser

LOG_2PI = float(np.log(2 * np.pi))
#: Largest number in the units of the rows: its square over a narrow component's is finite.
FARTHEST = 1e140
#: Rows a group should have on average; if they have fewer, each row keeps its own projection.
SMALLEST_GROUP = 64

#: Noise of rows whose own is elsewhere, because they share it.
NOTHING = JointMixture(np.ones((1, 1)), None, np.zeros((1, 1, 1)))
Rows = IntArray | slice


@dataclass(frozen=True)
class Block:
    """Rows that see the truth through the same projection, or each through its own.

    Attributes
    ----------
    kind : str
        ``"shared"``, ``"diagonal"`` or ``"full"`` noise; ``"projected"`` for rows with a
        projection of their own.
    index : array or slice
        Which rows these are.
    w, s, log_share, omega : array
        What :func:`deconflow.xd.kernel.passes.pass_over` wants.
    log_unit : array
        ``(1,)`` or ``(n,)``: what to add to the kernel's log-likelihood of each row.
    widest : float
        Largest number in ``s``.
    projection : array or None
        ``(M, D)`` for all rows, or None for the identity.
    common : tuple of array or None
        Weights ``(J,)``, means ``(1 or J, M)`` and covariances ``(J, M, M)`` of the noise that all
        rows share.
    """

    kind: str
    index: Rows
    w: Array
    s: Array
    log_share: Array
    omega: Array
    log_unit: Array
    widest: float
    projection: Array | None = None
    common: tuple[Array, Array, Array] | None = None


@dataclass(frozen=True)
class KernelRows:
    """All rows of a data set, in blocks.

    Attributes
    ----------
    blocks : list of Block
        The groups.
    units : Standardiser
        The change of units that has been made.
    n_rows, dim : int
        Number of rows, and of dimensions of the truth.
    weights : array
        ``(N,)`` row weights, ones if there are none.
    total_weight : float
        Their sum.
    """

    blocks: list[Block]
    units: Standardiser
    n_rows: int
    dim: int
    weights: Array
    total_weight: float

    @property
    def n_gaussians(self) -> int:
        """Number of Gaussians that the noise of all rows is made of."""
        return sum(
            block.w.shape[2] * len(block.s if block.common is None else block.common[0])
            for block in self.blocks
        )


def lay_out(data: Observations, units: Standardiser | None = None) -> KernelRows:
    """Lay observations out for the kernel, in units of their own unless some are given."""
    units = Standardiser.powers_of_two(data) if units is None else units
    standard = units.observations(data)
    for name, sizes in (("w", standard.w), ("noise", noise_sizes(standard.noise))):
        position = first_bad(np.abs(sizes) > FARTHEST)
        if position is not None:  # squares would overflow where components are narrow
            raise OutOfReachError(
                f"Expected {name} within {FARTHEST:g} times the usual spread of the data; "
                f"got more at {place(position)}. Leave that row out."
            )
    noise = standard.noise.as_mixture()
    seen = data.dim if data.observed is None else data.observed.sum(1)
    log_unit = -(units.log_observed_volume(data) + 0.5 * LOG_2PI * seen)
    groups = _groups(standard, noise.patterns)
    if groups is None:
        blocks = [_own_projections(standard, noise.take(), log_unit)]
    else:
        blocks = [_block(standard, rows, noise, log_unit) for rows in groups]
    weights = row_weights(data)
    return KernelRows(blocks, units, len(data), data.latent_dim, weights, float(weights.sum()))


def row_weights(data: Observations) -> Array:
    """Weights of the rows, ones if there are none."""
    return np.ones(len(data)) if data.weights is None else np.asarray(data.weights)


@lru_cache(maxsize=100)
def lower_triangle(dim: int, offset: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a lower triangle, as ``np.tril_indices``: asked for in every step."""
    return np.tril_indices(dim, offset)


def _groups(data: Observations, patterns: NDArray[np.uint8] | None) -> list[Rows] | None:
    """Rows by what they see; None if there are too many ways of seeing."""
    keys = [] if patterns is None else [patterns]
    if data.observed is not None:
        keys.append(np.packbits(data.observed, axis=1))
    if data.projection is not None and (keys or (data.projection != data.projection[0]).any()):
        keys.append(np.ascontiguousarray(data.projection.reshape(len(data), -1)).view(np.uint8))
    if not keys:
        return [slice(None)]
    key = np.ascontiguousarray(np.concatenate(keys, axis=1))
    single = key.shape[1] == 1  # numbers are sorted much more quickly than bytes
    names = key.ravel() if single else key.view(f"V{key.shape[1]}").ravel()
    _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    if len(counts) > max(16, len(names) // SMALLEST_GROUP):
        return None
    return list(np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1]))


def _block(data: Observations, rows: Rows, noise: NoiseMixture, log_unit: Array) -> Block:
    """Lay out rows that all see the same."""
    values, columns = data.w[rows], None
    projection = None if data.projection is None else data.projection[rows][0]
    if data.observed is not None and not data.observed[rows][0].all():
        columns = np.flatnonzero(data.observed[rows][0])
        values = values[:, columns]
        projection = (np.eye(data.dim) if projection is None else projection)[columns]
    parts, size = noise.take(rows, columns), values.shape[1]
    log_unit = log_unit if len(log_unit) == 1 else log_unit[rows][:1]
    arrays = [parts.weights, parts.covariances] + ([] if parts.means is None else [parts.means])
    if all(len(a) == 1 or ((a[1] == a[0]).all() and (a == a[0]).all()) for a in arrays):
        means = np.zeros((1, size)) if parts.means is None else parts.means[0]
        covariances = full_noise(parts.take(slice(1)), np.ones((1, size), bool))[0]
        common = parts.weights[0], means, covariances
        return _finished(
            "shared",
            data,
            rows,
            values,
            np.zeros((1, 0, 1)),
            NOTHING,
            projection=projection,
            common=common,
            log_unit=log_unit,
        )
    if parts.covariances.ndim == 3:
        kind, s = "diagonal", parts.covariances.transpose(1, 2, 0)
    elif parts.covariances[..., ~np.eye(size, dtype=bool)].any():
        kind, s = "full", _packed(parts.covariances)
    else:
        kind, s = "diagonal", np.einsum("njii->jin", parts.covariances)
    return _finished(kind, data, rows, values, s, parts, projection=projection, log_unit=log_unit)


def _own_projections(data: Observations, parts: JointMixture, log_unit: Array) -> Block:
    """Lay out rows that each see in their own way; what a row misses is idle unit noise."""
    n, size = data.w.shape
    seen = np.ones((n, size), dtype=bool) if data.observed is None else data.observed
    means = None if parts.means is None else np.where(seen[:, None], parts.means, 0.0)
    projection = seen[:, :, None] * np.eye(size) if data.projection is None else data.projection
    packed, slopes = _packed(full_noise(parts, seen)), projection.reshape(n, -1).T
    s = np.empty((len(packed), packed.shape[1] + len(slopes), n))
    s[:, : packed.shape[1]], s[:, packed.shape[1] :] = packed, slopes
    parts = replace(parts, means=means)
    return _finished(
        "projected", data, slice(None), np.where(seen, data.w, 0.0), s, parts, log_unit=log_unit
    )


def _finished(
    kind: str,
    data: Observations,
    rows: Rows,
    values: Array,
    s: Array,
    parts: JointMixture,
    **others: Any,
) -> Block:
    """Shift values by the means of the noise's parts, and arrange all columns for the kernel."""
    n, n_parts = len(values), parts.weights.shape[1]
    shifts = np.zeros((1, 1, 1)) if parts.means is None else parts.means
    shares = np.broadcast_to(parts.weights, (n, n_parts)).T
    w, s, log_share, omega = (
        np.require(each, np.float64, ["C", "W"])
        for each in (
            values.T - shifts.transpose(1, 2, 0),
            np.broadcast_to(s, (*s.shape[:2], n)),
            finite_log(shares) if n_parts > 1 else np.zeros((0, 0)),
            np.zeros(0) if data.weights is None else data.weights[rows],
        )
    )
    return Block(kind, rows, w, s, log_share, omega, widest=float(s.max(initial=0.0)), **others)


def _packed(covariances: Array) -> Array:
    """Lower triangles ``(J, P, N)`` of matrices ``(N, J, M, M)``."""
    i, j = lower_triangle(covariances.shape[-1])
    return covariances[..., i, j].transpose(1, 2, 0)


def finite_log(shares: Array) -> Array:
    """Logarithms of shares, of which some may be zero."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(shares), -1e300)


def full_noise(parts: JointMixture, seen: BoolArray) -> Array:
    """Covariances of the noise's parts, ``(N or 1, J, M, M)``, with unit ones where missing."""
    unit = np.eye(seen.shape[1])
    noise = parts.covariances
    noise = noise[..., None] * unit if noise.ndim == 3 else noise
    if seen.all():
        return noise
    return np.where(seen[:, None, :, None] & seen[:, None, None, :], noise, unit)
