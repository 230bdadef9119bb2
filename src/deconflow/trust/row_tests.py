"""Whether the rows are what they should be: independent, and complete at their edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from deconflow._types import Array
from deconflow.findings import Finding
from deconflow.observations import Observations
from deconflow.trust.comparison import of_smallest, one_sided
from deconflow.trust.lens import Rows, below
from deconflow.trust.table import Table

ROWS_IN_ORDER, BLOCKS = 20_000, 10
"""So many rows, in so many runs, say whether neighbours are alike."""
FEWEST_SAMPLES, MOST_UNCOVERED = 2.0, 0.05
"""Rows of which fewer kept samples count are not covered; of so many it is told."""
SORTED = 0.98
"""A column of which so many steps go the same way is sorted."""


def coverage(data: Observations, log_prob: Callable[[Array], Array]) -> Finding:
    """Look how many of a row's posterior samples count where the fitted density is.

    That is their effective number with weights density / prior, over the samples that the noise
    has kept. No test, so its p-value is 0 or 1.
    """
    kept = data.noise.kept
    assert kept is not None
    w = data.w[:, None] + kept.offsets
    log_p = log_prob(w.double().numpy().reshape(-1, data.dim)).reshape(w.shape[:2])
    top = np.maximum(log_p.max(1, keepdims=True), -1e300)
    weight = np.exp(log_p - top) * kept.weights.double().numpy()
    size = np.square(weight.sum(1)) / np.maximum(np.square(weight).sum(1), 1e-300)
    share = float(np.mean(size < FEWEST_SAMPLES))
    numbers = {"share": share, "fewest": FEWEST_SAMPLES, "draws": float(w.shape[1])}
    return Finding("coverage", 0.0 if share > MOST_UNCOVERED else 1.0, numbers=numbers)


def order(table: Table, data: Observations) -> Finding:
    """Look whether neighbouring rows are alike; ``data`` are all rows, in the table's order."""
    if data.groups is not None:
        return Finding("order", reason="groups")
    if _sorted(data):
        return Finding("order", reason="sorted")
    sums = np.zeros(len(table.names))
    pairs = np.zeros(len(table.names))
    for run in _runs(data):
        ready = table.units.observations(run)
        ranks = below(table.mixture, Rows.of(ready, [ready.measured()]))[:, 0]
        seen = np.ones(ranks.shape, bool) if run.observed is None else run.observed.numpy()
        for d, scores in enumerate(_normal_scores(ranks, seen)):
            both = seen[1:, d] & seen[:-1, d]
            sums[d] += scores[1:] @ scores[:-1]
            pairs[d] += both.sum()
    z = sums / np.sqrt(np.maximum(pairs, 1))
    worst = int(z.argmax())
    p = of_smallest([one_sided(each) for each in z])
    numbers = {"correlation": float(sums[worst] / max(pairs[worst], 1))}
    gain = 0.5 * float(max(z[worst], 0.0)) ** 2
    return Finding("order", p, gain, (table.names[worst],), numbers)


def _normal_scores(ranks: Array, seen: Array) -> Iterator[Array]:
    """Values of each column as those of a normal law, zero where missing."""
    for column, there in zip(ranks.T, seen.T, strict=True):
        scores = np.zeros(len(column))
        scores[there] = ndtri((rankdata(column[there]) - 0.5) / max(there.sum(), 1))
        yield scores


def _runs(data: Observations) -> Iterator[Observations]:
    """Yield runs of neighbouring rows from all over the table."""
    if len(data) <= ROWS_IN_ORDER:
        yield data
        return
    length = ROWS_IN_ORDER // BLOCKS
    for start in np.linspace(0, len(data) - length, BLOCKS).astype(int).tolist():
        yield data[start : start + length]


def _sorted(data: Observations) -> bool:
    """Whether the table is in the order of one of its columns, or of its errors."""
    columns = [data.measured()]
    if not data.noise.shared:
        columns.append(data.noise.variance().double().numpy())
    for column in np.concatenate(columns, axis=1).T:
        steps = np.diff(column)
        steps = steps[~np.isnan(steps)]
        up, down = (steps > 0).sum(), (steps < 0).sum()
        if max(up, down) >= SORTED * max(up + down, 1) and up + down > 0:
            return True
    return False


def edges(table: Table) -> Finding:
    """Look whether simulated values go on where the real ones end.

    If the model is right, the expected number of values beyond the outermost of as many is an
    exponential number of mean one.
    """
    if table.data.weights is not None:
        return Finding("edges", reason="weights")
    rows = table.rows
    draws = rows.w.shape[1] - 1
    beyond, where = [], []
    for d, name in enumerate(table.names):
        seen = rows.seen[:, d]
        real, simulated = rows.w[seen, 0, d], rows.w[seen, 1:, d]
        if not len(real) or np.ptp(real) == 0:
            continue
        for side, count in (
            (0.0, (simulated < real.min()).sum()),
            (1.0, (simulated > real.max()).sum()),
        ):
            beyond.append(count / draws)
            where.append((name, side, real.max() if side else real.min(), d))
    if not beyond:
        return Finding("edges", reason="constant")
    worst = int(np.argmax(beyond))
    name, side, edge, d = where[worst]
    gain = float(beyond[worst])
    p = of_smallest([float(np.exp(-gain))] + [1.0] * (len(beyond) - 1))
    numbers = {"upper": side, "expected": gain, "edge": _in_units(table, d, float(edge))}
    return Finding("edges", p, gain, (name,), numbers)


def _in_units(table: Table, column: int, value: float) -> float:
    """Bring a measured value back to the user's units."""
    scale = float(table.units.measured_scale[column])
    location = table.units.location
    if table.data.projection is not None:
        return value * scale  # the shift differs from row to row
    return float(location[column]) + scale * value
