"""A log density on a line: knots and nodes, with straight tails whose mass counts."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from deconflow._types import Array
from deconflow.splines.basis import Basis, line_penalties, polynomials
from deconflow.splines.domain import Domain
from deconflow.splines.hats import Nodes
from deconflow.splines.likelihoods import LineLikelihood
from deconflow.splines.newton import Penalty, log_start
from deconflow.splines.rows import Rows, bins_on_a_line

INTERVALS, NODES_PER_INTERVAL, LOCAL = 60, 5, 9
"""Knot intervals, nodes in each, and smoothing parameters along the line."""
TAIL, GROWTH = 3.0, 1.1
"""Length of a tail, in lengths of the domain, and how fast its nodes part."""
FINER = 4
"""Steps of the answer's grid in one of the fit's."""
NEGLIGIBLE = 1e-9
"""The answer's tails end where the density is a negligible share of its peak."""
AT_ONCE = 4_000_000


class LineFrame:
    """Knots, nodes and penalties that all fits to some rows share.

    Attributes
    ----------
    orders : tuple of int
        Orders of the derivatives that are penalised; answers are averages over them.
    """

    orders = (3, 2)

    def __init__(self, domain: Domain, n_intervals: int | None) -> None:
        self.domain = domain
        intervals = INTERVALS if n_intervals is None else n_intervals
        low, high = float(domain.low[0]), float(domain.high[0])
        self.basis = Basis(np.linspace(low, high, intervals + 1))
        self._step = (high - low) / (intervals * NODES_PER_INTERVAL)
        self.nodes = Nodes(self._spread(NODES_PER_INTERVAL, GROWTH))
        self._design = self.basis.design(self.nodes.x)

    def _spread(self, per_interval: int, growth: float) -> Array:
        """Nodes of the domain and of tails, which end at a bound."""
        knots, domain = self.basis.knots, self.domain
        inner = np.linspace(knots[0], knots[-1], (len(knots) - 1) * per_interval + 1)
        step, length = inner[1] - inner[0], TAIL * (knots[-1] - knots[0])
        low = min(length, knots[0] - float(domain.low_bound[0]))
        high = min(length, float(domain.high_bound[0]) - knots[-1])
        before, after = (_fitting(size, step, growth) for size in (low, high))
        return np.r_[knots[0] - before[::-1], inner, knots[-1] + after]

    @cached_property
    def start(self) -> Array:
        """Coefficients of a law to start from."""
        x = np.linspace(self.basis.knots[0], self.basis.knots[-1], 4 * self.basis.size)
        found = np.linalg.lstsq(self.basis.design(x), log_start(np.square(x)), rcond=None)[0]
        return np.asarray(found, dtype=np.float64)

    def penalty(self, order: int) -> Penalty:
        """Penalties on one order of derivatives along the line."""
        parts = line_penalties(self.basis, order, LOCAL)
        return Penalty(parts, polynomials((self.basis,), order))

    def likelihood(self, rows: Rows) -> LineLikelihood:
        """Likelihoods of rows, in bins if there are many."""
        binned = self.binned(rows)
        n, parts = binned.weights.shape
        table = np.empty((n, len(self.nodes.x)))
        size = max(1, AT_ONCE // (parts * len(self.nodes.x)))
        for i in range(0, n, size):
            table[i : i + size] = self._table(binned[np.arange(i, min(n, i + size))])
        return LineLikelihood(self._design, self.nodes.mass, table, binned.count)

    def binned(self, rows: Rows) -> Rows:
        """Put rows into bins if there are many."""
        return bins_on_a_line(rows, self._step / 4)

    def _table(self, rows: Rows) -> Array:
        n, parts = rows.weights.shape
        each = self.nodes.log_likelihood(rows.centres.ravel(), rows.covariances.ravel())
        with np.errstate(divide="ignore"):
            each = each.reshape(n, parts, -1) + np.log(rows.weights)[..., None]
        top = each.max((1, 2), keepdims=True)
        return np.exp(each - np.where(np.isfinite(top), top, 0.0)).sum(1)

    def grid(self, betas: list[Array]) -> tuple[Array, Array, Array]:
        """First node, step and values of an even grid with the average of some densities."""
        x = self._spread(FINER * NODES_PER_INTERVAL, 1.0)
        x = np.linspace(x[0], x[-1], len(x))
        logs = [self.basis.design(x) @ beta for beta in betas]
        values = np.mean([_normalised(log, x) for log in logs], axis=0)
        used = np.flatnonzero(values > NEGLIGIBLE * values.max())
        first, last = max(used[0] - 1, 0), min(used[-1] + 2, len(x))
        return x[first : first + 1], x[1:2] - x[:1], _whole(values[first:last], x[1] - x[0])


def _fitting(length: float, step: float, growth: float) -> Array:
    """Distances at first about ``step`` apart, each gap ``growth`` times the last, to a length."""
    if length <= 0:
        return np.empty(0)
    most = int(np.ceil(length / step - 1e-9))
    ends = np.cumsum(growth ** np.arange(max(1, most)))
    ends = ends[: int(np.searchsorted(ends, length / step - 1e-9)) + 1]
    return length * ends / ends[-1]


def _normalised(log_p: Array, x: Array) -> Array:
    return _whole(np.exp(log_p - log_p.max()), x[1] - x[0])


def _whole(values: Array, step: float) -> Array:
    return values / (step * (values.sum() - 0.5 * (values[0] + values[-1])))
