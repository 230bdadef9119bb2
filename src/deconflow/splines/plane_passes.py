r"""Compiled passes over rows on a plane: likelihoods times masses, added up over cells and rows.

A row is a sum of Gaussians with precisions ``(a, b; b, c)`` in units of the grid's steps. Along a
line of nodes a Gaussian is a product that grows by factors which themselves shrink by a factor,
so that a cell costs two multiplications and no exponential.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from deconflow._types import Array, IntArray

#: Standard deviations to which a Gaussian is followed.
REACH = 5.5


def _compiled(function: Callable) -> Any:
    """Compile without the GIL, once per machine if a cache can be written."""
    make: Any = njit
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        return make(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to write to
        return make(**options)(function)


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
