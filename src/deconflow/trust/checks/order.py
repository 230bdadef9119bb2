"""Correlation of neighbouring rows."""

from collections.abc import Iterator

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
    p = of_smallest([one_sided(each) for each in z])
    return Finding("", p, gain, (table.names[worst],), numbers)


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
        columns.append(np.asarray(data.noise.variance()))
    for column in np.concatenate(columns, axis=1).T:
        steps = np.diff(column)
        up, down = (steps > 0).sum(), (steps < 0).sum()
        if max(up, down) >= SORTED * max(up + down, 1) and up + down > 0:
            return True
    return False


def _caution(finding: Finding) -> str:
    return (
        f"neighbouring rows are alike in {finding.where} (correlation "
        f"{finding.numbers['correlation']:.2f}): objects measured several times, or a drift. All "
        "error bars are too small; if rows belong together, name them by groups=, and if the table "
        "is merely sorted by something like it, ignore this"
    )


CHECK = Check(
    "neighbouring rows", "their correlation; independent rows have none", _test, _caution,
    lambda f: f"correlation {f.numbers['correlation']:.2f} in {f.where}",
)  # fmt: skip
