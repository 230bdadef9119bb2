"""Correlation of neighbouring rows."""

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from deconflow.observations import Observations
from deconflow.trust.check import GROUPS, Case, Check, Finding, Rows, below, of_smallest, one_sided

#: Number of rows, and of runs of them, that are looked at.
ROWS_IN_ORDER, BLOCKS = 20_000, 10
#: Share of steps of a sorted column that go the same way.
SORTED = 0.98


def _test(case: Case) -> Finding:
    if case.grouped or _sorted(case.data):
        return Finding(
            reason=GROUPS if case.grouped else "the table is sorted by one of its columns"
        )
    table = case.of_noise
    sums, pairs = np.zeros(len(table.names)), np.zeros(len(table.names))
    for run in _runs(case.data):
        ready = table.units.observations(run)
        seen = ~np.isnan(run.measured())
        ranks = below(table.mixture, Rows.of(ready, [ready.measured()]))[:, 0]
        for d, there in enumerate(seen.T):
            scores = np.zeros(len(there))  # as of a normal law, zero where missing
            scores[there] = ndtri((rankdata(ranks[there, d]) - 0.5) / max(there.sum(), 1))
            sums[d] += scores[1:] @ scores[:-1]
            pairs[d] += (there[1:] & there[:-1]).sum()
    z = sums / np.sqrt(np.maximum(pairs, 1))
    worst = int(z.argmax())
    numbers = {"correlation": float(sums[worst] / max(pairs[worst], 1))}
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
    "neighbouring rows", "their correlation; independent rows have none", _test,
    "neighbouring rows are alike in {where} (correlation {correlation:.2f}): objects measured "
    "several times, or a drift. All error bars are too small; if rows belong together, name them "
    "by groups=, and if the table is merely sorted by something like it, ignore this",
    "correlation {correlation:.2f} in {where}",
)  # fmt: skip
