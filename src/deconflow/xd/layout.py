r"""Observations laid out for the kernel: columns of rows, grouped by what the rows have in common.

Rows with the same missing values, or the same projection, form a group: their model is the
mixture of ``R v``, in fewer dimensions. Values are in units in which each column's spread is
about one, so that no product of variances overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deconflow.observations import Observations
from deconflow.xd.noise_parts import IndependentParts, JointParts, noise_parts
from deconflow.xd.triangles import lower
from deconflow.xd.units import Units, find_units

Array = NDArray[np.float64]
LOG_2PI = float(np.log(2 * np.pi))
SMALLEST_GROUP = 64
"""Rows a group should have on average; if they have fewer, each row keeps its own projection."""


@dataclass(frozen=True)
class Block:
    """Rows that see the truth through the same projection, or each through its own.

    Attributes
    ----------
    kind : str
        ``"shared"``, ``"diagonal"`` or ``"full"`` noise; ``"projected"`` for rows with a
        projection of their own.
    index : array or None
        Which rows these are; None for all of them, in order.
    w, s, log_share, omega : array
        What :func:`deconflow.xd.driver.pass_over` wants.
    projection : array or None
        ``(M, D)`` for all rows, or None for the identity.
    common : JointParts or None
        The one noise law of all rows, if it is shared.
    log_unit : array
        ``(1,)`` or ``(n,)``: what to add to the kernel's log-likelihood of each row.
    """

    kind: str
    index: NDArray[np.int64] | None
    w: Array
    s: Array
    log_share: Array
    omega: Array
    projection: Array | None
    common: JointParts | None
    log_unit: Array

    def __len__(self) -> int:
        return self.w.shape[2]


@dataclass(frozen=True)
class Rows:
    """All rows of a data set, in blocks.

    Attributes
    ----------
    blocks : list of Block
        The groups.
    units : Units
        The change of units that has been made.
    n_rows, dim : int
        Number of rows, and of dimensions of the truth.
    weights : array or None
        ``(N,)`` row weights.
    """

    blocks: list[Block]
    units: Units
    n_rows: int
    dim: int
    weights: Array | None

    @property
    def total_weight(self) -> float:
        """Sum of the row weights."""
        return float(self.n_rows if self.weights is None else self.weights.sum())


def lay_out(data: Observations, units: Units | None = None) -> Rows:
    """Lay observations out for the kernel."""
    if units is None:
        units = find_units(data)
    parts = noise_parts(data.noise.divide(_tensor(units.channel, data)))
    w = data.w.numpy() / units.channel
    weights = None if data.weights is None else data.weights.numpy()
    observed = None if data.observed is None else data.observed.numpy()
    projection = None
    if data.projection is not None:
        projection = data.projection.numpy() * units.latent / units.channel[:, None]
    groups = _groups(observed, projection)
    if groups is None:
        block = _own_projections(w, parts, weights, observed, projection, units)
        return Rows([block], units, len(w), data.latent_dim, weights)
    blocks = []
    for index in groups:
        first = 0 if index is None else index[0]
        columns = None if observed is None else np.flatnonzero(observed[first])
        if columns is not None and len(columns) == w.shape[1]:
            columns = None
        seen = None if projection is None else projection[first]
        if columns is not None:
            seen = np.eye(w.shape[1])[columns] if seen is None else seen[columns]
        blocks.append(_block(w, parts, weights, index, columns, seen, units))
    return Rows(blocks, units, len(w), data.latent_dim, weights)


def _plain(values: Array) -> Array:
    """Contiguous and writable, as the compiled signature wants it."""
    return np.require(values, np.float64, ["C", "W"])


def _tensor(values: Array, data: Observations):  # noqa: ANN202
    return data.w.new_tensor(values)


def _groups(
    observed: NDArray[np.bool_] | None, projection: Array | None
) -> list[NDArray[np.int64] | None] | None:
    """Rows by what they see; None if there are too many ways of seeing."""
    if observed is None and projection is None:
        return [None]
    keys = []
    if observed is not None:
        keys.append(np.packbits(observed, axis=1))
    if projection is not None:
        if observed is None and (projection == projection[0]).all():
            return [None]
        flat = np.ascontiguousarray(projection.reshape(len(projection), -1))
        keys.append(flat.view(np.uint8))
    key = np.ascontiguousarray(np.concatenate(keys, axis=1))
    names = key.view(f"V{key.shape[1]}").ravel()
    _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
    if len(counts) > max(16, len(names) // SMALLEST_GROUP):
        return None
    order = np.argsort(which, kind="stable")
    return list(np.split(order, np.cumsum(counts)[:-1]))


def _block(
    w: Array,
    parts: JointParts | IndependentParts,
    weights: Array | None,
    index: NDArray[np.int64] | None,
    columns: NDArray[np.int64] | None,
    projection: Array | None,
    units: Units,
) -> Block:
    own = parts.take(index, columns)
    values = w if index is None else w[index]
    if columns is not None:
        values = values[:, columns]
    n, size = values.shape
    log_unit = units.log_volume(columns) - 0.5 * size * LOG_2PI
    omega = np.zeros(0) if weights is None else weights if index is None else weights[index]
    common = _same_for_all(own)
    if common is not None:
        kind, w3 = "shared", values.T[None]
        s, log_share = np.zeros((1, 0, n)), np.zeros((0, 0))
    else:
        kind, w3, s, log_share = _by_row(values, own)
    return Block(
        kind, index, _plain(w3), _plain(s), _plain(log_share), _plain(omega),
        projection, common, np.array([log_unit]),
    )  # fmt: skip


def _same_for_all(parts: JointParts) -> JointParts | None:
    """Return the one law that all rows have, or None."""
    arrays = [parts.weights, parts.covariances] + ([] if parts.means is None else [parts.means])
    if all(len(a) == 1 or ((a[1] == a[0]).all() and (a == a[0]).all()) for a in arrays):
        return parts.take(np.zeros(1, dtype=int), None)
    return None


def _by_row(values: Array, parts: JointParts) -> tuple[str, Array, Array, Array]:
    """Lay out noise that differs by row: kind, ``w``, ``s`` and log shares."""
    n, size = values.shape
    covariances = parts.covariances
    off_diagonal = ~np.eye(size, dtype=bool)
    if parts.diagonal:
        kind, s = "diagonal", covariances.transpose(1, 2, 0)
    elif not covariances[..., off_diagonal].any():
        kind, s = "diagonal", np.einsum("njii->jin", covariances)
    else:
        i, j = lower(size)
        kind, s = "full", covariances[..., i, j].transpose(1, 2, 0)
    n_parts = s.shape[0]
    s = np.broadcast_to(s, (*s.shape[:2], n))
    w = values.T[None]
    if parts.means is not None:
        w = w - np.broadcast_to(parts.means, (n, n_parts, size)).transpose(1, 2, 0)
    log_share = np.zeros((0, 0))
    if n_parts > 1:
        with np.errstate(divide="ignore"):
            log_share = np.log(np.broadcast_to(parts.weights, (n, n_parts)).T)
        log_share = np.maximum(log_share, -1e300)
    return kind, w, s, log_share


def _own_projections(
    w: Array,
    parts: JointParts | IndependentParts,
    weights: Array | None,
    observed: NDArray[np.bool_] | None,
    projection: Array | None,
    units: Units,
) -> Block:
    """Rows that each see the truth in their own way; what a row misses is idle unit noise."""
    n, size = w.shape
    own = parts.take(None, None)
    covariances = own.covariances[..., None] * np.eye(size) if own.diagonal else own.covariances
    seen = np.ones((n, size), dtype=bool) if observed is None else observed
    both = seen[:, None, :, None] & seen[:, None, None, :]
    covariances = np.where(both, covariances, np.eye(size))
    if projection is None:
        projection = seen[:, :, None] * np.eye(size)
    _, w3, s, log_share = _by_row(
        np.where(seen, w, 0.0), JointParts(own.weights, None, covariances)
    )
    if own.means is not None:
        means = np.where(seen[:, None], own.means, 0.0)
        w3 = w3 - means.transpose(1, 2, 0)
    i, j = lower(size)
    packed = covariances[..., i, j].transpose(1, 2, 0)
    slopes = projection.reshape(n, -1).T
    s = np.concatenate([packed, np.broadcast_to(slopes, (len(packed), *slopes.shape))], axis=1)
    log_unit = -(seen * (np.log(units.channel) + 0.5 * LOG_2PI)).sum(1)
    omega = np.zeros(0) if weights is None else weights
    return Block(
        "projected", None, _plain(w3), _plain(s), _plain(log_share), _plain(omega),
        None, None, log_unit,
    )  # fmt: skip
