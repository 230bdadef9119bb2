r"""Rows that are there more than once, told from rows that rounding has made equal.

Copies fool every choice by held-out rows: what is held out has been fitted, too. But rounding makes
rows equal by chance, and those say as much as any others. Where it does, there are as many pairs a
few steps of rounding apart as there are equal ones, and more: nothing in a smooth density knows
where the rounding cuts. So the pairs up to :math:`4` steps apart, and how their number grows up to
:math:`40`, say how many equal ones chance makes,

.. math:: E = \frac{A_4}{9^q - 1}, \qquad 9^q = \frac{A_{40}}{A_4} - 1,

with :math:`q` the number of dimensions that the rows fill: :math:`2 r + 1` cells a side make
:math:`((2 r + 1)^q - 1) E` pairs within :math:`r` steps. Copies are not in this count, and need no
model of the density. It errs to the safe side where the rows fill few steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from deconflow._types import AnyArray, Array, IntArray
from deconflow.noise import LimitedNoise
from deconflow.observations import Observations

#: Equal pairs are surprising above so many times what is expected, and so many errors of that.
SURPRISE, ERRORS = 5.0, 3.0
#: Different rows below which nothing is said of copies, and values that count as a grid anyway.
FEWEST = 20
MOST_COPIES = 100
#: More equal rows than this, or such a share of all and so many times the usual number, are a value
#: of its own, as zero for what was not detected: no copies of one row.
LARGE_SHARE, TYPICAL_SIZES = 0.05, 10
#: Gaps that are looked at together; in how many parts the smallest of them may be cut to make a
#: step; how near to whole steps the gaps must be, and what share of them.
WINDOW, FRACTIONS, CLOSE, MOST_OF = 16, 8, 0.05, 0.9
#: Steps that stand for any larger gap.
FAR = 1000
NEAR_STEPS, WIDE_STEPS = 4, 40
#: Columns without steps tell rows apart if fewer of the pairs that are equal elsewhere agree.
INFORMATIVE = 0.05
ROUNDING = 8 * np.finfo(np.float64).eps
#: Rows whose neighbours are counted, fewer in more columns, where each has more of them; and among
#: how many rows those far away.
SAMPLE, MANY = 4000, 20_000
#: A near copy is closer than this share of the distance to so many neighbours, or less where chance
#: would make more than a thousandth of the rows such, and than this share of the error bars.
NEIGHBOURS, NEAR, NEAR_BY_CHANCE, OF_ERRORS = 30, 1e-3, 1e-3, 1e-3


@dataclass(frozen=True)
class Copies:
    """What is known of copies among rows.

    Attributes
    ----------
    groups : array
        ``(N,)`` codes from zero, the same for rows that are equal in all that was measured, its
        noise and its projection. Where far too many are equal, each of them is on its own.
    share : float
        Share of rows that have such a copy elsewhere.
    expected : float
        Number of pairs of equal rows that rounding makes by chance.
    surprising : bool
        Whether there are far more.
    near_share : float
        Share of rows with a near copy, that differs by next to nothing; zero unless there are more
        than chance makes, and where nobody asked.
    """

    groups: IntArray
    share: float
    expected: float
    surprising: bool
    near_share: float = 0.0


def find_copies(data: Observations, *, near: bool = True) -> Copies:
    """Look for rows that are there more than once; ``near`` counts near copies, too.

    Examples
    --------
    >>> w = np.random.default_rng(0).normal(size=(50, 2))
    >>> found = find_copies(Observations.from_arrays(np.repeat(w, 2, axis=0), 0.1))
    >>> found.surprising, found.share
    (True, 1.0)
    """
    if not data.noise.additive:  # equal counts are no copies
        return Copies(np.arange(len(data)), 0.0, 0.0, surprising=False)
    columns = _columns(data)
    equal = _codes(columns, len(data))
    groups = _without_piles(equal)
    sizes = np.bincount(groups)
    pairs, share = _pairs(groups), float(sizes[sizes > 1].sum()) / len(groups)
    expected = _expected(columns, _pairs(equal)) if pairs else 0.0
    enough = pairs > SURPRISE * expected + ERRORS * np.sqrt(expected) and len(sizes) >= FEWEST
    return Copies(groups, share, expected, bool(enough), _near_share(data) if near else 0.0)


def keep_copies_together(data: Observations) -> Observations:
    """Let copies of a row be a group, if they are surprising and nobody has said what belongs so.

    Groups that would leave a column to one of them are not made: no fit could do without it. Rows
    with limits are on their own.
    """
    measured = (
        np.ones(len(data), bool) if data.noise.flags is None else (data.noise.flags == 0).all(1)
    )
    if data.groups is not None or not measured.any():
        return data
    some = data
    if isinstance(data.noise, LimitedNoise):  # equal where one limit holds for many
        some = replace(data[measured], noise=data.noise[measured].without_limits())
    found = find_copies(some, near=False)
    if not found.surprising or replace(some, groups=found.groups).fewest_groups() < 2:
        return data
    groups = np.arange(len(data)) + len(data)
    groups[measured] = found.groups
    return replace(data, groups=groups)


# -- equal rows ---------------------------------------------------------------------------------


def _columns(data: Observations) -> list[Array]:
    """All numbers of a row, NaN where a value is missing, without columns that say nothing."""
    parts: list[Any] = [data.measured()]
    if not data.noise.shared:
        seen = True if data.observed is None else data.observed
        parts.append(np.where(seen, data.noise.mean(), 0.0))
        if data.noise.independent:
            parts.append(np.where(seen, np.sqrt(data.noise.variance()), 1.0))
        else:
            parts.append(data.noise.cholesky().reshape(len(data), -1))
    if data.projection is not None:
        parts.append(data.projection.reshape(len(data), -1))
    columns = [column + 0.0 for part in parts for column in part.T]  # no negative zeros
    return [each for each in columns if (each != each[0]).any() and not np.isnan(each).all()]


def _codes(columns: Sequence[AnyArray], n_rows: int) -> IntArray:
    """Number different rows; column by column, until all rows are different."""
    codes = np.zeros(n_rows, np.int64)
    for column in columns:
        _, of_column = np.unique(column, return_inverse=True)
        found, codes = np.unique(codes * len(codes) + of_column, return_inverse=True)
        if len(found) == len(codes):
            break
    return codes.astype(np.int64)


def _pairs(codes: IntArray) -> float:
    """Count the pairs of rows of one code."""
    sizes = np.bincount(codes)
    return float((sizes * (sizes - 1.0) / 2).sum())


def _without_piles(codes: IntArray) -> IntArray:
    """Leave rows on their own that are equal because their value stands for something."""
    sizes = np.bincount(codes)
    large = (sizes > LARGE_SHARE * len(codes)) & (sizes > TYPICAL_SIZES * np.median(sizes))
    alone = ((sizes > MOST_COPIES) | large)[codes]
    if not alone.any():
        return codes
    codes = np.where(alone, len(sizes) + np.arange(len(codes)), codes)
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


# -- equal by chance ----------------------------------------------------------------------------


def _expected(columns: list[Array], pairs: float) -> float:
    """Estimate how many pairs are equal by chance.

    Only values on a grid are. Columns without one either tell the rows apart that are equal on the
    grid, or follow from it, as errors that are computed from the values: then they change nothing.
    Of the pairs that chance makes equal on the grid, those that differ elsewhere are seen.
    """
    cells = [found for column in columns if (found := _cells(column)) is not None]
    if not cells:
        return 0.0
    codes = _codes(cells, len(cells[0]))
    equal = _pairs(codes)
    if pairs < INFORMATIVE * equal:
        return 0.0
    return max(0.0, _by_chance(np.stack(cells, axis=1), codes) - max(0.0, equal - pairs))


def _cells(column: Array) -> Array | None:
    """Number the cells of the grid that a column's values lie on; None if there is no grid.

    Steps may grow with the values, as in numbers of so many digits; a missing value is a cell far
    from all others.
    """
    missing = np.isnan(column)
    values, which, counts = np.unique(column[~missing], return_inverse=True, return_counts=True)
    gaps = np.diff(values)
    same = gaps <= ROUNDING * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    if (~same).sum() < FEWEST:
        steps = (~same).astype(np.float64)
    else:
        steps, single = np.zeros(len(gaps)), values.astype(np.float32)
        finest = np.spacing(np.abs(single)).astype(np.float64) * bool((single == values).all())
        steps[~same] = _steps(gaps[~same], finest[1:][~same])
        on_grid = np.append(steps, 0.0) < FAR
        if counts[on_grid].sum() < 0.5 * counts.sum():
            return None
    cells = np.full(len(column), -10.0 * FAR)
    cells[~missing] = np.append(0.0, np.cumsum(steps))[which]
    return cells


def _steps(gaps: Array, finest: Array) -> Array:
    """Count the steps of gaps between neighbouring values; ``FAR`` where no step explains them.

    Those of a few gaps in a row are one part of the smallest gap, or the ``finest``, if positive.
    """
    size = min(WINDOW, len(gaps))
    starts = np.minimum(np.arange(0, len(gaps), size), len(gaps) - size)
    windows = gaps[starts[:, None] + np.arange(size)]
    step = np.zeros(len(starts))
    for parts in range(1, FRACTIONS + 1):
        tried = windows.min(1) / parts
        counts = windows / tried[:, None]
        whole = (np.abs(counts - np.rint(counts)) < CLOSE).mean(1) >= MOST_OF
        step = np.where((step == 0) & whole, tried, step)
    of_gap = np.repeat(step, size)[: len(gaps)]
    around = np.pad(gaps, 1, mode="edge")
    least = np.minimum(gaps, np.minimum(around[:-2], around[2:]))
    smooth = np.abs(gaps / least - np.rint(gaps / least)) < CLOSE
    if smooth.mean() >= MOST_OF:  # steps that grow from one to the next, as of logarithms
        of_gap = np.where(of_gap > 0, of_gap, least)
    of_gap = np.where(of_gap > 0, of_gap, finest)
    with np.errstate(divide="ignore"):
        return np.clip(np.rint(gaps / of_gap), 1.0, FAR)


def _by_chance(cells: Array, codes: IntArray) -> float:
    """Pairs of all rows in one cell, from those of some rows with their neighbours.

    Far ones are so many that some of the rows are enough to count them, and all take a minute.
    """
    n_rows = len(cells)
    order = np.random.default_rng(0).permutation(n_rows)
    some, many = order[: max(1, SAMPLE // cells.shape[1])], order[:MANY]
    near = _pairs_within(NEAR_STEPS, cells, codes, some) * n_rows / 2
    if near == 0:
        return 0.0
    wide = _pairs_within(WIDE_STEPS, cells[many], codes[many], some=np.arange(len(some)))
    ratio = (2 * WIDE_STEPS + 1) / (2 * NEAR_STEPS + 1)
    growth = wide * n_rows / len(many) * n_rows / 2 / near - 1
    return float(near / (np.clip(growth, ratio, ratio ** cells.shape[1]) - 1))


def _pairs_within(steps: int, cells: Array, codes: IntArray, some: IntArray) -> float:
    """Count the rows of other cells, up to so many steps away, that some rows have on average."""
    _, first, sizes = np.unique(codes, return_index=True, return_counts=True)
    same, within = _tree(cells[first]).count_neighbors(
        _tree(cells[some]), [0.5, steps + 0.5], p=np.inf,
        weights=(sizes.astype(float), np.ones(len(some))),
    )  # fmt: skip
    return float(within - same) / len(some)


def _tree(points: Array) -> cKDTree:
    return cKDTree(points, balanced_tree=False, compact_nodes=False)


# -- near copies --------------------------------------------------------------------------------


def _near_share(data: Observations) -> float:
    """Share of rows with a near copy; rows are compared where they have the same values."""
    w = data.measured()
    sd = np.sqrt(np.broadcast_to(data.noise.variance(), w.shape))
    patterns = _codes(list((~np.isnan(w)).T), len(w))
    by_pattern = np.split(np.argsort(patterns, kind="stable"), np.cumsum(np.bincount(patterns)))
    found = 0.0
    for rows in by_pattern[:-1]:
        seen = ~np.isnan(w[rows[0]])
        found += len(rows) * _near_among(w[rows][:, seen], sd[rows][:, seen])
    return found / len(w)


def _near_among(w: Array, sd: Array) -> float:
    spread = w.std(0)
    w, sd = (each[:, spread > 0] / spread[spread > 0] for each in (w, sd))
    _, first = np.unique(_codes(list(w.T), len(w)), return_index=True)
    w, sd, dim = w[first], sd[first], w.shape[1]
    if len(w) <= FEWEST or dim == 0:
        return 0.0
    some = np.random.default_rng(0).permutation(len(w))[:SAMPLE]
    others = min(NEIGHBOURS, len(w) - 1)
    distance, index = _tree(w).query(w[some], k=others + 1)
    limit = min(NEAR, (NEAR_BY_CHANCE / (others - 1)) ** (1 / dim))
    near = distance[:, 1] < limit * distance[:, -1]
    apart, bars = np.abs(w[index[:, 1]] - w[some]), sd[some]
    near &= ((apart <= OF_ERRORS * bars) | (bars == 0)).all(1)
    by_chance = len(some) * (others - 1) * limit**dim
    few = near.sum() <= by_chance + ERRORS * np.sqrt(by_chance)
    return 0.0 if few else float(near.mean())
