r"""Observations laid out for the kernel: columns of rows, grouped by what the rows have in common.

Rows with the same missing values, or the same projection, form a group: their model is the
mixture of ``R v``, in fewer dimensions. Values are in units in which each column's spread is
about one, so that no product of variances overflows.
"""

from dataclasses import dataclass
from functools import lru_cache

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
        What :func:`deconflow.xd.kernel.passes.pass_over` wants.
    projection : array or None
        ``(M, D)`` for all rows, or None for the identity.
    common : JointMixture or None
        The one noise law of all rows, if it is shared.
    log_unit : array
        ``(1,)`` or ``(n,)``: what to add to the kernel's log-likelihood of each row.
    widest : float
        Largest number in ``s``.
    """

    kind: str
    index: IntArray | None
    w: Array
    s: Array
    log_share: Array
    omega: Array
    projection: Array | None
    common: JointMixture | None
    log_unit: Array
    widest: float

    def __len__(self) -> int:
        return self.w.shape[2]

    @property
    def shared_noise(self) -> tuple[Array, Array]:
        """Means ``(1 or J, M)`` and covariances ``(J, M, M)`` of the noise that all rows share."""
        assert self.common is not None
        size = self.w.shape[1]
        means = np.zeros((1, size)) if self.common.means is None else self.common.means[0]
        return means, full_noise(self.common, np.ones((1, size), bool))[0]


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
    weights : array or None
        ``(N,)`` row weights.
    """

    blocks: list[Block]
    units: Standardiser
    n_rows: int
    dim: int
    weights: Array | None

    @property
    def total_weight(self) -> float:
        """Sum of the row weights."""
        return float(self.n_rows if self.weights is None else self.weights.sum())

    @property
    def n_gaussians(self) -> int:
        """Number of Gaussians that the noise of all rows is made of."""
        commons = [len(b.s) if b.common is None else b.common.n_parts for b in self.blocks]
        return sum(len(b) * parts for b, parts in zip(self.blocks, commons, strict=True))


def lay_out(data: Observations, units: Standardiser | None = None) -> KernelRows:
    """Lay observations out for the kernel, in units of their own unless some are given."""
    units = Standardiser.powers_of_two(data) if units is None else units
    standard = units.observations(data)
    _refuse_far(standard)
    observed = None if data.observed is None else np.asarray(data.observed)
    seen = data.dim if observed is None else observed.sum(1)
    rows = _Rows(
        w=np.asarray(standard.w),
        parts=standard.noise.as_mixture(),
        weights=None if data.weights is None else np.asarray(data.weights),
        observed=observed,
        projection=None if standard.projection is None else np.asarray(standard.projection),
        log_unit=-(np.asarray(units.log_observed_volume(data)) + 0.5 * LOG_2PI * seen),
    )
    groups = rows.groups()
    blocks = [rows.own_projections()] if groups is None else [rows.block(each) for each in groups]
    return KernelRows(blocks, units, len(data), data.latent_dim, rows.weights)


def _refuse_far(standard: Observations) -> None:
    """Raise for rows so far out that squares overflow where components are narrow."""
    for name, sizes in (("w", standard.w), ("noise", noise_sizes(standard.noise))):
        position = first_bad(np.abs(np.asarray(sizes)) > FARTHEST)
        if position is not None:
            raise OutOfReachError(
                f"Expected {name} within {FARTHEST:g} times the usual spread of the data; "
                f"got more at {place(position)}. Leave that row out."
            )


@lru_cache(maxsize=100)
def lower_triangle(dim: int, offset: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of a lower triangle, as ``np.tril_indices``: asked for in every step."""
    return np.tril_indices(dim, offset)


@dataclass(frozen=True)
class _Rows:
    """All rows in the kernel's units, before they are grouped."""

    w: Array
    parts: NoiseMixture
    weights: Array | None
    observed: BoolArray | None
    projection: Array | None
    log_unit: Array

    def groups(self) -> list[IntArray | None] | None:
        """Rows by what they see; None if there are too many ways of seeing."""
        patterns = self.parts.patterns
        if self.observed is None and self.projection is None and patterns is None:
            return [None]
        keys = [] if patterns is None else [patterns]
        if self.observed is not None:
            keys.append(np.packbits(self.observed, axis=1))
        if self.projection is not None:
            if not keys and (self.projection == self.projection[0]).all():
                return [None]
            flat = np.ascontiguousarray(self.projection.reshape(len(self.w), -1))
            keys.append(flat.view(np.uint8))
        key = np.ascontiguousarray(np.concatenate(keys, axis=1))
        single = key.shape[1] == 1  # numbers are sorted much more quickly than bytes
        names = key.ravel() if single else key.view(f"V{key.shape[1]}").ravel()
        _, which, counts = np.unique(names, return_inverse=True, return_counts=True)
        if len(counts) > max(16, len(names) // SMALLEST_GROUP):
            return None
        order = np.argsort(which, kind="stable")
        return list(np.split(order, np.cumsum(counts)[:-1]))

    def block(self, index: IntArray | None) -> Block:
        """Lay out rows that all see the same."""
        first = 0 if index is None else index[0]
        values = self.w if index is None else self.w[index]
        projection = None if self.projection is None else self.projection[first]
        columns = None
        if self.observed is not None and not self.observed[first].all():
            columns = np.flatnonzero(self.observed[first])
            values = values[:, columns]
            projection = (np.eye(self.w.shape[1]) if projection is None else projection)[columns]
        parts = self.parts.take(index, columns)
        common = _same_for_all(parts)
        if common is not None:
            noise = "shared", np.zeros((1, 0, len(values)))
            return self._block(*noise, values.T[None], np.zeros((0, 0)), index, projection, common)
        noise = _noise_by_row(parts, values.shape[1])
        own = _shifted(values, parts), _log_shares(parts, len(values))
        return self._block(*noise, *own, index, projection)

    def own_projections(self) -> Block:
        """Lay out rows that each see in their own way; what a row misses is idle unit noise."""
        n, size = self.w.shape
        parts = self.parts.take()
        seen = np.ones((n, size), dtype=bool) if self.observed is None else self.observed
        means = None if parts.means is None else np.where(seen[:, None], parts.means, 0.0)
        noise = full_noise(parts, seen)
        noise = np.broadcast_to(noise, (n, *noise.shape[1:]))
        parts = JointMixture(parts.weights, means, noise)
        projection = seen[:, :, None] * np.eye(size) if self.projection is None else self.projection
        packed, slopes = _packed(parts.covariances), projection.reshape(n, -1).T
        slopes = np.broadcast_to(slopes, (len(packed), *slopes.shape))
        s = np.concatenate([packed, slopes], axis=1)
        w = _shifted(np.where(seen, self.w, 0.0), parts)
        return self._block("projected", s, w, _log_shares(parts, n))

    def _block(
        self,
        kind: str,
        s: Array,
        w: Array,
        log_share: Array,
        index: IntArray | None = None,
        projection: Array | None = None,
        common: JointMixture | None = None,
    ) -> Block:
        omega = np.zeros(0) if self.weights is None else self.weights
        log_unit = self.log_unit
        if index is not None:
            omega = omega if self.weights is None else omega[index]
            log_unit = log_unit if len(log_unit) == 1 else log_unit[index[:1]]
        s = np.broadcast_to(s, (*s.shape[:2], w.shape[2]))
        w, s, log_share, omega = (
            np.require(each, np.float64, ["C", "W"]) for each in (w, s, log_share, omega)
        )
        widest = float(s.max(initial=0.0))
        return Block(kind, index, w, s, log_share, omega, projection, common, log_unit, widest)


def _same_for_all(parts: JointMixture) -> JointMixture | None:
    """Return the one law that all rows have, or None."""
    arrays = [parts.weights, parts.covariances] + ([] if parts.means is None else [parts.means])
    if all(len(a) == 1 or ((a[1] == a[0]).all() and (a == a[0]).all()) for a in arrays):
        return parts.take(np.zeros(1, dtype=int), None)
    return None


def _noise_by_row(parts: JointMixture, size: int) -> tuple[str, Array]:
    """Lay out noise that differs by row: its kind, and ``s``."""
    if parts.diagonal:
        return "diagonal", parts.covariances.transpose(1, 2, 0)
    if not parts.covariances[..., ~np.eye(size, dtype=bool)].any():
        return "diagonal", np.einsum("njii->jin", parts.covariances)
    return "full", _packed(parts.covariances)


def _packed(covariances: Array) -> Array:
    """Lower triangles ``(J, P, N)`` of matrices ``(N, J, M, M)``."""
    i, j = lower_triangle(covariances.shape[-1])
    return covariances[..., i, j].transpose(1, 2, 0)


def _shifted(values: Array, parts: JointMixture) -> Array:
    """Values less the means of the noise's parts, ``(1 or J, M, N)``."""
    if parts.means is None:
        return values.T[None]
    shape = (len(values), parts.weights.shape[1], values.shape[1])
    return values.T - np.broadcast_to(parts.means, shape).transpose(1, 2, 0)


def _log_shares(parts: JointMixture, n: int) -> Array:
    """Log weights of the noise's parts, ``(J, N)``; ``(0, 0)`` for a single part."""
    n_parts = parts.weights.shape[1]
    if n_parts == 1:
        return np.zeros((0, 0))
    return finite_log(np.broadcast_to(parts.weights, (n, n_parts)).T)


def finite_log(shares: Array) -> Array:
    """Logarithms of shares, of which some may be zero."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(shares), -1e300)


def full_noise(parts: JointMixture, seen: BoolArray) -> Array:
    """Covariances of the noise's parts, ``(N or 1, J, M, M)``, with unit ones where missing."""
    unit = np.eye(seen.shape[1])
    noise = parts.covariances[..., None] * unit if parts.diagonal else parts.covariances
    if seen.all():
        return noise
    return np.where(seen[:, None, :, None] & seen[:, None, None, :], noise, unit)
