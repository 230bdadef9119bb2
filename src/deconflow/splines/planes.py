r"""A log density on a plane, a product of two bases on a lattice, and the rows that see it.

Expected counts are sums over all rows. The curvature of the likelihood,
:math:`\sum_i c_i E_i E_i'`, is a sum over a sample of at most ``MOST_CURVED`` rows or bins, which
stands for all: it shapes steps and smoothing, while the answer is where the gradient of all rows
is zero.

In the compiled passes a row is a sum of Gaussians with precisions ``(a, b; b, c)`` in units of the
grid's steps. Along a line of nodes a Gaussian is a product that grows by factors which themselves
shrink by a factor, so that a cell costs two multiplications and no exponential.
"""

from dataclasses import dataclass
from functools import partial
from math import comb

import numpy as np

from deconflow._types import Array, BoolArray, IntArray
from deconflow.splines.line import Basis, polynomials
from deconflow.splines.newton import Penalty, log_start
from deconflow.splines.rows import Rows, binned
from deconflow.xd import compiled_rows

MOST_CURVED = 4_000
#: Least width of a likelihood in steps of the grid: narrower ones would fall between nodes.
NARROWEST = 0.5
INTERVALS, NODES_PER_INTERVAL = 16, 4
#: Share of its length by which the domain is widened to both sides, within bounds.
MARGIN = 0.05
#: Steps of the answer's grid in one of the fit's.
FINER = 2
#: Standard deviations to which a Gaussian is followed.
REACH = 5.5

_compiled = partial(compiled_rows, fastmath={"contract", "reassoc", "nsz"})


@_compiled
def _fill(q: Array, part: Array, cell: Array, spans: IntArray) -> float:
    """Add a Gaussian times the masses to ``cell``; ``spans`` has the lines' first and last node."""
    cx, cy, a, b, c, log_weight = part
    n_x, n_y = q.shape
    along = a if c == 0.0 else a - b * b / c
    reach = REACH / np.sqrt(along) if along > 0.0 else 1e9
    wide = REACH / np.sqrt(c) if c > 0.0 else 1e9
    slope = b / c if c > 0.0 else 0.0
    shrink = np.exp(-c)
    total = 0.0
    for i in range(
        max(0, int(np.ceil(max(cx - reach, -1.0)))), int(min(n_x - 1.0, cx + reach)) + 1
    ):
        centre = cy - slope * (i - cx)
        first = max(0, int(np.ceil(max(centre - wide, -1.0))))
        last = int(min(n_y - 1.0, max(centre + wide, -1.0)))
        if last < first:
            continue
        spans[i, 0], spans[i, 1] = min(spans[i, 0], first), max(spans[i, 1], last)
        y = first - centre
        value = np.exp(log_weight - 0.5 * (along * (i - cx) ** 2 + c * y * y))
        factor = np.exp(-c * (y + 0.5))
        for j in range(first, last + 1):
            here = value * q[i, j]
            cell[i, j] += here
            total += here
            value *= factor
            factor *= shrink
    return total


@_compiled
def _clear(cell: Array, spans: IntArray) -> None:
    """Set what was filled to zero, and forget where."""
    for i in range(len(spans)):
        for j in range(spans[i, 0], spans[i, 1] + 1):
            cell[i, j] = 0.0
        spans[i, 0], spans[i, 1] = cell.shape[1], -1


@_compiled
def add_rows(q: Array, parts: Array, starts: IntArray, row_counts: Array) -> tuple[float, Array]:
    """Sum of ``count log p``, and expected counts; rows out of reach count nowhere."""
    counts, cell = np.zeros(q.shape), np.zeros(q.shape)
    spans = np.empty((len(q), 2), np.int64)
    spans[:, 0], spans[:, 1] = q.shape[1], -1
    log_p = 0.0
    for row in range(len(row_counts)):
        if row_counts[row] == 0.0:
            continue
        p = 0.0
        for k in range(starts[row], starts[row + 1]):
            p += _fill(q, parts[k], cell, spans)
        log_p += row_counts[row] * np.log(max(p, 1e-200))  # else losing a row would be a gain
        if p > 1e-200:
            share = row_counts[row] / p
            for i in range(len(spans)):
                for j in range(spans[i, 0], spans[i, 1] + 1):
                    counts[i, j] += share * cell[i, j]
        _clear(cell, spans)
    return log_p, counts


@_compiled
def basis_means(
    q: Array,
    parts: Array,
    starts: IntArray,
    rows: IntArray,
    first_x: IntArray,
    value_x: Array,
    first_y: IntArray,
    value_y: Array,
    size_x: int,
    size_y: int,
) -> Array:
    """Posterior means of the basis for some rows, ``(rows, size_x * size_y)``."""
    cell = np.zeros(q.shape)
    spans = np.empty((len(q), 2), np.int64)
    spans[:, 0], spans[:, 1] = q.shape[1], -1
    answer = np.zeros((len(rows), size_x * size_y))
    line = np.zeros(size_y)
    for n in range(len(rows)):
        row = rows[n]
        total = 0.0
        for k in range(starts[row], starts[row + 1]):
            total += _fill(q, parts[k], cell, spans)
        scale = 1.0 / total if total > 1e-200 else 0.0
        for i in range(len(spans)):
            low, high = spans[i, 0], spans[i, 1]
            if high < low:
                continue
            line[:] = 0.0
            for j in range(low, high + 1):
                here = scale * cell[i, j]
                for s in range(4):
                    line[first_y[j] + s] += here * value_y[j, s]
            for s in range(4):
                at = (first_x[i] + s) * size_y
                for t in range(first_y[low], first_y[high] + 4):
                    answer[n, at + t] += value_x[i, s] * line[t]
        _clear(cell, spans)
    return answer


def local_values(design: Array) -> tuple[IntArray, Array]:
    """First B-spline that is not zero at each node, and the values of it and the next three."""
    first = np.minimum((design != 0).argmax(1), design.shape[1] - 4)
    return first, np.take_along_axis(design, first[:, None] + np.arange(4), 1)


@dataclass(frozen=True)
class Lattice:
    """Nodes of a grid on a plane: the first of each axis, steps and numbers."""

    low: Array
    step: Array
    shape: tuple[int, int]

    def axis(self, d: int) -> Array:
        """Nodes of an axis."""
        return self.low[d] + self.step[d] * np.arange(self.shape[d])

    @property
    def mass(self) -> Array:
        """Integrals of the hats, flat; those at an edge are cut."""
        ends = [np.r_[0.5, np.ones(n - 2), 0.5] for n in self.shape]
        return (np.outer(*ends) * self.step.prod()).ravel()


class PlaneLikelihood:
    """Rows on a plane, as they see a lattice and a product of two bases."""

    def __init__(self, lattice: Lattice, designs: tuple[Array, Array], rows: Rows) -> None:
        self.lattice, self.designs = lattice, designs
        self.mass = lattice.mass
        self.sizes = designs[0].shape[1], designs[1].shape[1]
        self.row_counts = np.ascontiguousarray(rows.count)
        self._parts, self._starts = _gaussians(rows, lattice)
        self._local = [local_values(design) for design in designs]
        self._products = [
            (design[:, :, None] * design[:, None]).reshape(len(design), -1) for design in designs
        ]
        self._sample_counts = _sampled(self.row_counts)
        self._sample = np.flatnonzero(self._sample_counts)

    def values(self, beta: Array) -> Array:
        """Return ``B beta``, flat."""
        return (self.designs[0] @ beta.reshape(self.sizes) @ self.designs[1].T).ravel()

    def project(self, counts: Array) -> Array:
        """Return ``B' counts``."""
        return (self.designs[0].T @ counts.reshape(self.lattice.shape) @ self.designs[1]).ravel()

    def second(self, counts: Array) -> Array:
        """Return ``B' diag(counts) B``."""
        (m, n), table = self.sizes, counts.reshape(self.lattice.shape)
        inner = (self._products[0].T @ table @ self._products[1]).reshape(m, m, n, n)
        return inner.transpose(0, 2, 1, 3).reshape(m * n, m * n)

    def log_likelihood(self, q: Array) -> float:
        """Return ``sum c_i log p_i``."""
        table = np.ascontiguousarray(q.reshape(self.lattice.shape))
        return float(add_rows(table, self._parts, self._starts, self.row_counts)[0])

    def expect(self, q: Array) -> tuple[float, Array, Array, Array]:
        """Expectations under masses ``q``: the log likelihood, and expected counts at the nodes.

        And the counts of the rows that give the curvature, with ``sum c_i E_i E_i'`` of these.
        """
        table = np.ascontiguousarray(q.reshape(self.lattice.shape))
        log_p, counts = add_rows(table, self._parts, self._starts, self.row_counts)
        (first_x, value_x), (first_y, value_y) = self._local
        means = basis_means(
            table, self._parts, self._starts, self._sample,
            first_x, value_x, first_y, value_y, *self.sizes,
        )  # fmt: skip
        means *= np.sqrt(self._sample_counts[self._sample])[:, None]
        curved = counts
        if len(self._sample) < len(self.row_counts):
            _, curved = add_rows(table, self._parts, self._starts, self._sample_counts)
        return log_p, counts.ravel(), curved.ravel(), means.T @ means


class PlaneFrame:
    """Knots, lattice and penalty that all fits to some rows share.

    Attributes
    ----------
    orders : tuple of int
        Orders of the derivatives that are penalised; answers are averages over them.
    """

    orders = (3,)

    def __init__(self, ends: Array, bounds: Array, n_intervals: int | None) -> None:
        margin = MARGIN * (ends[1] - ends[0])
        knots = np.linspace(
            np.maximum(ends[0] - margin, bounds[0]),
            np.minimum(ends[1] + margin, bounds[1]),
            (n_intervals or INTERVALS) + 1,
        )
        self.bases = Basis(knots[:, 0]), Basis(knots[:, 1])
        self.lattice, self._designs = self._nodes(NODES_PER_INTERVAL)

    def _nodes(self, per_interval: int) -> tuple[Lattice, tuple[Array, Array]]:
        """Nodes, and the bases along both axes."""
        x, y = (basis.knots for basis in self.bases)
        low, high, n = np.array([x[0], y[0]]), np.array([x[-1], y[-1]]), (len(x) - 1) * per_interval
        lattice = Lattice(low, (high - low) / n, (n + 1, n + 1))
        first, second = (basis.design(lattice.axis(d)) for d, basis in enumerate(self.bases))
        return lattice, (first, second)

    def start(self) -> Array:
        """Coefficients of a law to start from."""
        x, y = (np.square(self.lattice.axis(d)) for d in (0, 1))
        first, second = (np.linalg.pinv(design) for design in self._designs)
        return (first @ log_start(np.add.outer(x, y)) @ second.T).ravel()

    def penalty(self, order: int) -> Penalty:
        """Penalty on one order of derivatives."""
        return Penalty(plane_penalty(self.bases, order), polynomials(self.bases, order))

    def likelihood(self, rows: Rows) -> PlaneLikelihood:
        """Likelihoods of rows, in bins if many share their noise."""
        return PlaneLikelihood(self.lattice, self._designs, self.binned(rows))

    def binned(self, rows: Rows) -> Rows:
        """Put rows into bins if many share their noise."""
        return binned(rows, self.lattice.step / 4)

    def grid(self, betas: list[Array]) -> tuple[Array, Array, Array]:
        """First node, steps and values of a grid with the average of some densities."""
        lattice, (first, second) = self._nodes(FINER * NODES_PER_INTERVAL)
        mass = lattice.mass.reshape(lattice.shape)
        values = np.zeros(lattice.shape)
        for beta in betas:
            log_p = first @ beta.reshape(first.shape[1], -1) @ second.T
            p = np.exp(log_p - log_p.max())
            values += p / (p * mass).sum() / len(betas)
        return lattice.low, lattice.step, values


def plane_penalty(bases: tuple[Basis, Basis], order: int) -> Array:
    """Penalty ``(1, n, n)`` on all derivatives of one order, for the product of two bases.

    It knows no directions: for order 3 it is the integral of
    :math:`l_{xxx}^2 + 3 l_{xxy}^2 + 3 l_{xyy}^2 + l_{yyy}^2`, by Kronecker products.
    """
    first, second = ([basis.penalties(k)[0] for k in range(order + 1)] for basis in bases)
    terms = [comb(order, k) * np.kron(first[k], second[order - k]) for k in range(order + 1)]
    return np.sum(terms, axis=0)[None]


def _sampled(row_counts: Array) -> Array:
    """Counts of a sample that stands for all rows in the curvature; zero for the others.

    Rows are drawn at even distances along the sum of the counts, in random order.
    """
    n = len(row_counts)
    if n <= MOST_CURVED:
        return row_counts
    order = np.random.default_rng(0).permutation(n)
    along = np.cumsum(row_counts[order])
    spots = (np.arange(MOST_CURVED) + 0.5) / MOST_CURVED * along[-1]
    chosen = order[np.searchsorted(along, spots)]
    return np.bincount(chosen, minlength=n) * (along[-1] / MOST_CURVED)


def _gaussians(rows: Rows, lattice: Lattice) -> tuple[Array, IntArray]:
    """Gaussians ``(P, 6)`` of all rows in steps of the lattice, and where each row's begin.

    Centre, precision, and logarithm of the weight, the widest part of a row at about one.
    """
    n, parts = rows.weights.shape
    units = np.outer(lattice.step, lattice.step)
    covariance = rows.covariances / units + np.eye(2) / 6  # the hat's own variance
    seen = np.broadcast_to(rows.observed[:, None], rows.centres.shape)
    with np.errstate(over="ignore"):
        precision, log_det = _precisions(covariance, seen)
    centres = np.where(seen, (rows.centres - lattice.low) / lattice.step, 0.0)
    with np.errstate(divide="ignore"):
        log_weight = np.log(rows.weights) - 0.5 * log_det
    log_weight -= log_weight.max(1, keepdims=True)
    a, b, c = precision[..., 0, 0], precision[..., 0, 1], precision[..., 1, 1]
    table = np.stack([centres[..., 0], centres[..., 1], a, b, c, log_weight], -1).reshape(-1, 6)
    return np.ascontiguousarray(table), parts * np.arange(n + 1)


def _precisions(covariance: Array, seen: BoolArray) -> tuple[Array, Array]:
    """Inverse covariances, no wider than nodes can see, zero for what was not observed.

    And the logarithm of the covariance's determinant over what was observed.
    """
    both = seen[..., None] & seen[..., None, :]
    values, vectors = np.linalg.eigh(np.where(both, covariance, np.eye(2)))
    values = np.maximum(values, NARROWEST**2)
    answer = (vectors / values[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.where(both, answer, 0.0), np.log(values).sum(-1)
