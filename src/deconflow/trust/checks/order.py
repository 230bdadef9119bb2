"""Correlation of neighbouring rows."""

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from deconflow.observations import Observations
from deconflow.trust.check import GROUPS, Case, Check, Finding, Rows, below, of_smallest, one_sided

#: Number of rows, and of runs of them, that are looked at.
ROWS_IN_ORDER, BLOCKS = 20_000, 10
#: Rows between neighbours that are compared with the next ones: clumps that stand one after the
#: other in a table make both alike, and are no reason for doubt.
FARTHER = range(11, 21)
#: Share of steps of a sorted column that go the same way.
SORTED = 0.98


def _test(case: Case) -> Finding:
    if case.grouped or _sorted(case.data):
        return Finding(
            reason=GROUPS if case.grouped else "the table is sorted by one of its columns"
        )
    table = case.of_noise
    sums, pairs = np.zeros((2, 2, len(table.names)))
    for run in _runs(case.data):
        ready = table.units.observations(run)
        seen = ~np.isnan(run.measured())
        ranks = below(table.mixture, Rows.of(ready, [ready.measured()]))[:, 0]
        for d, there in enumerate(seen.T):
            scores = np.zeros(len(there))  # as of a normal law, zero where missing
            scores[there] = ndtri((rankdata(ranks[there, d]) - 0.5) / max(there.sum(), 1))
            for far, lags in enumerate(((1,), FARTHER)):
                sums[far, d] += sum(scores[lag:] @ scores[:-lag] for lag in lags)
                pairs[far, d] += sum((there[lag:] & there[:-lag]).sum() for lag in lags)
    near, far = sums / np.maximum(pairs, 1)
    z = (near - far) / np.sqrt((1 / np.maximum(pairs, 1)).sum(0))
    worst = int(z.argmax())
    numbers = {"correlation": float(near[worst]), "farther": float(far[worst])}
    gain = 0.5 * float(max(z[worst], 0.0)) ** 2
    return Finding("", of_smallest(one_sided(z)), gain, (table.names[worst],), numbers)


def _runs(data: Observations) -> list[Observations]:
    """Return runs of neighbouring rows from all over the table."""
    count = BLOCKS if len(data) > ROWS_IN_ORDER else 1
    length = min(len(data), ROWS_IN_ORDER // count)
    starts = np.linspace(0, len(data) - length, count).astype(int)
    return [data[start : start + length] for start in starts.tolist()]


def _sorted(data: Observations) -> bool:
    """Whether the table is in the order of one of its columns, or of its errors."""
    errors = [] if data.noise.shared else [np.asarray(data.noise.variance())]
    steps = np.diff(np.hstack([data.measured(), *errors]), axis=0)
    up, down = (steps > 0).sum(0), (steps < 0).sum(0)
    return bool((np.maximum(up, down) >= SORTED * np.maximum(up + down, 1)).any())


CHECK = Check(
    "neighbouring rows", "their correlation, and that of rows farther apart", _test,
    "neighbouring rows are more alike in {where} than rows farther apart (correlations "
    "{correlation:.2f} and {farther:.2f}): an order in space or time, a drift, or several rows of "
    "an object. If they are not independent, all error bars are too small: name rows that belong "
    "together by groups=",
    "correlation {correlation:.2f} in {where}, farther apart {farther:.2f}", of_table=True,
)  # fmt: skip
