r"""Cubic B-splines that go on as straight lines, and a log density on a line made of them.

A penalty on derivatives is :math:`S_j = \int \omega_j(x) \, B^{(k)}(x) \, B^{(k)}(x)' \, dx`, with
weights :math:`\omega_j` that sum to one everywhere. A fit has knots and nodes, with straight tails
whose mass counts.

With ``q`` the mass of each node and :math:`A_{ig}` the likelihood of row i there,

.. math:: p_i = \sum_g A_{ig} q_g, \quad r_g = \sum_i c_i A_{ig} q_g / p_i, \quad
          E_i = \sum_g A_{ig} q_g B_g / p_i

are the rows' densities, the expected counts and the posterior means of the basis. Nodes have a hat
around each, and Gaussians are integrated over these hats.

A density that is linear between nodes is :math:`p(v) = \sum_g p_g \Lambda_g(v)`, so that

.. math:: p(w) = \sum_g p_g \int \Lambda_g(v) \, N(w; v, s^2) \, dv

With :math:`F'' = N(\cdot; 0, s^2)`, which is :math:`F(x) = x \Phi(x / s) + s \phi(x / s)`, the
integral is a second difference of F: right for any s, zero included. Where s is wide, a Gaussian
with the hat's variance added is the same without the loss of digits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import BSpline
from scipy.special import ndtr

from deconflow._types import Array
from deconflow.splines.newton import SMALLEST, Penalty, log_start
from deconflow.splines.rows import Rows, binned

DEGREE = 3
GAUSS_POINTS = 6
#: Knot intervals, nodes in each, and smoothing parameters along the line.
INTERVALS, NODES_PER_INTERVAL, LOCAL = 60, 5, 9
#: Length of a tail, in lengths of the domain, and how fast its nodes part.
TAIL, GROWTH = 3.0, 1.1
#: Steps of the answer's grid in one of the fit's.
FINER = 4
#: The answer's tails end where the density is a negligible share of its peak.
NEGLIGIBLE = 1e-9
AT_ONCE = 4_000_000
#: A Gaussian of at least so many distances between nodes hardly sees the form of a hat.
WIDE = 3.0
#: Standard deviations beyond which a Gaussian is zero where differences would lose its digits.
FARTHEST = 9.0


@dataclass(frozen=True)
class Basis:
    """Cubic B-splines between knots, straight beyond them.

    Attributes
    ----------
    knots : array
        Rising; the first and the last are the ends of the domain.
    """

    knots: Array

    @property
    def size(self) -> int:
        """Number of B-splines."""
        return len(self.knots) + DEGREE - 1

    @cached_property
    def _splines(self) -> BSpline:
        return BSpline(np.pad(self.knots, DEGREE, "edge"), np.eye(self.size), DEGREE)

    def design(self, x: Array) -> Array:
        """Values ``(len(x), size)``."""
        inside = np.clip(x, self.knots[0], self.knots[-1])
        beyond = (x - inside)[:, None]
        return np.asarray(self._splines(inside) + beyond * self._splines.derivative()(inside))

    def penalties(self, order: int, n_local: int = 1) -> Array:
        """Integrals of products of derivatives, on parts of the line: ``(n_local, size, size)``.

        The parts overlap and sum to the whole; their weights are linear between knots.
        """
        points, mass = np.polynomial.legendre.leggauss(GAUSS_POINTS)
        half = 0.5 * np.diff(self.knots)[:, None]
        x = (self.knots[:-1, None] + half * (1 + points)).ravel()
        values, at = self._splines.derivative(order)(x), (half * mass).ravel()
        places, centres = (np.linspace(0, 1, n) for n in (len(self.knots), n_local))
        at_knots = [np.interp(places, centres, part) for part in np.eye(n_local)]
        each = [at * np.interp(x, self.knots, weights) for weights in at_knots]
        return np.stack([(values * weights[:, None]).T @ values for weights in each])


def polynomials(bases: tuple[Basis, ...], below: int) -> Array:
    """Coefficients ``(n, K)`` of all polynomials of total degree less than ``below``.

    The constant is the first. A penalty on derivatives of order ``below`` does not see them.
    """
    each = [_powers(basis, below) for basis in bases]
    if len(each) == 1:
        return each[0]
    degrees = [(i, k - i) for k in range(below) for i in range(k + 1)]
    return np.stack([np.kron(each[0][:, i], each[1][:, j]) for i, j in degrees], axis=1)


def _powers(basis: Basis, below: int) -> Array:
    """Coefficients of powers of x, scaled to the domain, by interpolation."""
    low, high = basis.knots[0], basis.knots[-1]
    x = np.linspace(low, high, 4 * basis.size)
    values = np.vander((2 * x - low - high) / (high - low), below, increasing=True)
    return np.asarray(np.linalg.lstsq(basis.design(x), values, rcond=None)[0], dtype=np.float64)


@dataclass(frozen=True)
class Nodes:
    """Nodes of a grid on a line, rising; the outer two have half a hat."""

    x: Array

    @cached_property
    def gaps(self) -> tuple[Array, Array]:
        """Distances to the next node on the left and on the right; none at the ends."""
        gap = np.diff(self.x)
        return np.r_[0.0, gap], np.r_[gap, 0.0]

    @cached_property
    def mass(self) -> Array:
        """Integral of each hat."""
        left, right = self.gaps
        return 0.5 * (left + right)

    def log_likelihood(self, w: Array, variance: Array) -> Array:
        """Log of the mean over each hat of ``N(w; v, variance)``, ``(n, nodes)``."""
        widest = max(gap.max() for gap in self.gaps)
        wide = variance >= np.square(WIDE * widest)
        answer = np.empty((len(w), len(self.x)))
        answer[wide] = self._smooth(w[wide], variance[wide])
        answer[~wide] = self._exact(w[~wide], np.sqrt(variance[~wide]))
        return answer

    def _smooth(self, w: Array, variance: Array) -> Array:
        left, right = self.gaps
        centre = self.x + (right - left) / 3
        total = variance[:, None] + (left**2 + right**2 + left * right) / 18
        return -0.5 * (np.square(w[:, None] - centre) / total + np.log(2 * np.pi * total))

    def _exact(self, w: Array, sd: Array) -> Array:
        x, s = w[:, None] - self.x, sd[:, None]
        z = x / np.where(s > 0, s, 1.0)
        below = np.where(s > 0, ndtr(z), x >= 0)
        bell = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        mean_below = -np.diff(x * below + s * bell, axis=1) / np.diff(self.x)
        steps = np.concatenate([below[:, :1], mean_below, below[:, -1:]], axis=1)
        inside = np.abs(x) - np.maximum(*self.gaps) <= FARTHEST * s
        with np.errstate(divide="ignore"):  # differences of what is far away are rounding errors
            return np.log(
                np.where(inside, np.clip(-np.diff(steps, axis=1), 0, None), 0) / self.mass
            )


@dataclass(frozen=True)
class LineLikelihood:
    """Rows on a line: a table of likelihoods, one row per row or bin of rows.

    Attributes
    ----------
    design : array
        ``(nodes, basis)``.
    mass : array
        ``(nodes,)``.
    table : array
        ``(n, nodes)`` likelihoods, each row to a factor.
    row_counts : array
        ``(n,)``.
    """

    design: Array
    mass: Array
    table: Array
    row_counts: Array

    def values(self, beta: Array) -> Array:
        """Return ``B beta``."""
        return self.design @ beta

    def project(self, counts: Array) -> Array:
        """Return ``B' counts``."""
        return counts @ self.design

    def second(self, counts: Array) -> Array:
        """Return ``B' diag(counts) B``."""
        return (self.design * counts[:, None]).T @ self.design

    def log_likelihood(self, q: Array) -> float:
        """Return ``sum c_i log p_i``."""
        return float(self.row_counts @ np.log(np.maximum(self.table @ q, SMALLEST)))

    def expect(self, q: Array) -> tuple[float, Array, Array, Array]:
        """Expectations under masses ``q``: the log likelihood, and expected counts at the nodes.

        And the counts of the rows that give the curvature, here all, with ``sum c_i E_i E_i'``.
        """
        p = np.maximum(self.table @ q, SMALLEST)
        counts = q * ((self.row_counts / p) @ self.table)
        means = self.table @ (q[:, None] * self.design) * (np.sqrt(self.row_counts) / p)[:, None]
        return float(self.row_counts @ np.log(p)), counts, counts, means.T @ means


class LineFrame:
    """Knots, nodes and penalties that all fits to some rows share.

    Attributes
    ----------
    orders : tuple of int
        Orders of the derivatives that are penalised; answers are averages over them.
    """

    orders = (3, 2)

    def __init__(self, ends: Array, bounds: Array, n_intervals: int | None) -> None:
        (low,), (high,) = ends
        self.basis = Basis(np.linspace(low, high, (n_intervals or INTERVALS) + 1))
        self._tails = np.minimum(TAIL * (high - low), np.abs(bounds - ends)[:, 0])
        self.nodes = Nodes(self._spread(NODES_PER_INTERVAL, GROWTH))
        self._design = self.basis.design(self.nodes.x)

    def _spread(self, per_interval: int, growth: float) -> Array:
        """Nodes of the domain and of tails, which end at a bound."""
        knots = self.basis.knots
        inner = np.linspace(knots[0], knots[-1], (len(knots) - 1) * per_interval + 1)
        before, after = (_fitting(tail, inner[1] - inner[0], growth) for tail in self._tails)
        return np.r_[knots[0] - before[::-1], inner, knots[-1] + after]

    def start(self) -> Array:
        """Coefficients of a law to start from."""
        x = np.linspace(self.basis.knots[0], self.basis.knots[-1], 4 * self.basis.size)
        found = np.linalg.lstsq(self.basis.design(x), log_start(np.square(x)), rcond=None)[0]
        return np.asarray(found, dtype=np.float64)

    def penalty(self, order: int) -> Penalty:
        """Penalties on one order of derivatives along the line."""
        return Penalty(self.basis.penalties(order, LOCAL), polynomials((self.basis,), order))

    def likelihood(self, rows: Rows) -> LineLikelihood:
        """Likelihoods of rows, in bins if there are many."""
        some = self.binned(rows)
        size = max(1, AT_ONCE // (some.weights.shape[1] * len(self.nodes.x)))
        parts = [self._table(some[i : i + size]) for i in range(0, len(some), size)]
        return LineLikelihood(self._design, self.nodes.mass, np.concatenate(parts), some.count)

    def binned(self, rows: Rows) -> Rows:
        """Put rows into bins if there are many."""
        knots = self.basis.knots
        step = (knots[-1] - knots[0]) / ((len(knots) - 1) * NODES_PER_INTERVAL)
        return binned(rows, np.array([step / 4]))

    def _table(self, rows: Rows) -> Array:
        each = self.nodes.log_likelihood(rows.centres.ravel(), rows.covariances.ravel())
        with np.errstate(divide="ignore"):
            each = each.reshape(*rows.weights.shape, -1) + np.log(rows.weights)[..., None]
        top = each.max((1, 2), keepdims=True)
        return np.exp(each - np.where(np.isfinite(top), top, 0.0)).sum(1)

    def grid(self, betas: list[Array]) -> tuple[Array, Array, Array]:
        """First node, step and values of an even grid with the average of some densities."""
        x = self._spread(FINER * NODES_PER_INTERVAL, 1.0)
        x = np.linspace(x[0], x[-1], len(x))
        logs = [self.basis.design(x) @ beta for beta in betas]
        step = x[1] - x[0]
        values = np.mean([_whole(np.exp(log - log.max()), step) for log in logs], axis=0)
        used = np.flatnonzero(values > NEGLIGIBLE * values.max())
        first, last = max(used[0] - 1, 0), min(used[-1] + 2, len(x))
        return x[first : first + 1], x[1:2] - x[:1], _whole(values[first:last], step)


def _fitting(length: float, step: float, growth: float) -> Array:
    """Distances at first about ``step`` apart, each gap ``growth`` times the last, to a length."""
    if length <= 0:
        return np.empty(0)
    ends = np.cumsum(growth ** np.arange(max(1, int(np.ceil(length / step - 1e-9)))))
    ends = ends[: int(np.searchsorted(ends, length / step - 1e-9)) + 1]
    return length * ends / ends[-1]


def _whole(values: Array, step: float) -> Array:
    return values / (step * (values.sum() - 0.5 * (values[0] + values[-1])))
