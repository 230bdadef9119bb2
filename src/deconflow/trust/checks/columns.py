r"""Values of each column, compared with simulated ones.

The distribution of a count is another one for each count that might have been: simulated rows
cannot be looked at with that of the real one. Its rank among values simulated for the same row can:
with equal values in a random order it is uniform if the model is right. A fit follows its rows,
which makes these ranks a little too even: the test is on the safe side.
"""

import numpy as np
from scipy.stats import chi2

from deconflow._types import Array
from deconflow.trust.check import (
    DEGREES,
    Case,
    Check,
    Finding,
    chosen_rows,
    of_smallest,
    predictive_ranks,
    shape,
)
from deconflow.xd import row_weights

DRAWS = 19


def _test(case: Case) -> Finding:
    results = _of_table(case) if case.data.noise.additive else _of_ranks(case)
    p, gains = zip(*results, strict=True)
    worst = int(np.argmin(p))
    numbers = dict(zip(case.names, p, strict=True))
    return Finding("", of_smallest(p), gains[worst], (case.names[worst],), numbers)


def _of_table(case: Case) -> list[tuple[float, float]]:
    """P-value and gain of each column."""
    table, results = case.of_model, []
    for d, seen in enumerate(table.rows.seen.T):
        shapes = [np.where(seen[:, None], shape(k, table.below[..., d]), 0.0) for k in DEGREES]
        results.append(table.sums(shapes).together())
    return results


def _of_ranks(case: Case) -> list[tuple[float, float]]:
    assert case.sample is not None
    data = case.rows[chosen_rows(case.rows, np.random.RandomState(case.seed))]
    ranks = predictive_ranks(case.sample, data, n_draws=DRAWS, seed=case.seed)
    return [_of_column(column, row_weights(data)) for column in ranks.T]


def _of_column(ranks: Array, weights: Array) -> tuple[float, float]:
    seen = ~np.isnan(ranks)
    own = weights[seen]
    sums = [own @ shape(k, ranks[seen]) for k in DEGREES]
    statistic = float(np.square(sums).sum() / max(np.square(own).sum(), 1e-300))
    return float(chi2.sf(statistic, len(DEGREES))), 0.5 * statistic


CHECK = Check(
    "columns", "simulated values against real ones, column by column", _test,
    "simulated measurements do not look like the real ones in {where}: the errors may be wrong, or "
    "the model too simple. See `deconflow plot --kind diagnostics`",
    "worst in {where}", "fit", additive=False,
)  # fmt: skip
