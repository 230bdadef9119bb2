"""Two columns that have each other's errors."""

from itertools import combinations

import numpy as np

from deconflow._types import Array
from deconflow.trust.check import (
    Alternative,
    Case,
    Check,
    Finding,
    Table,
    log_p,
    ratio,
    with_covariance,
    worst,
)

MOST_COLUMNS = 6
#: Of rows with exchanged errors, in the alternative that is tested.
SHARE = 0.5


def _test(case: Case) -> Finding:
    table, dim = case.of_noise, len(case.names)
    pairs = combinations(range(dim), 2) if dim <= MOST_COLUMNS else ()
    complete: list[tuple[int, ...]] = [p for p in pairs if table.rows.seen[:, p].all()]
    scale = np.asarray(table.units.measured_scale)

    def gain(pair: tuple[int, ...]) -> Array:
        other = log_p(table.mixture, table.rows.swapped(pair[0], pair[1], scale))
        return np.log1p(SHARE * (ratio(other - table.view.log_p) - 1))

    return worst(table, complete, gain, side=1)


def _alternative(table: Table, finding: Finding, _: float) -> Alternative:
    """Exchange the errors of two columns, in the units of the data."""
    a, b = (table.names.index(name) for name in finding.columns)
    order, scale = np.arange(len(table.names)), np.asarray(table.units.measured_scale)
    order[[a, b]] = b, a
    ratios = scale[order] / scale
    covariance = np.asarray(table.data.noise.covariance())[:, order][:, :, order]
    law = with_covariance(table.data.noise, covariance * ratios * ratios[:, None])
    return {"exchanged": 1.0}, table.under(law), 0.0


def _caution(finding: Finding) -> str:
    words = f"the errors of {finding.where} seem to be exchanged (p {finding.p:.2g})"
    if "exchanged" in finding.numbers:
        words = f"{finding.where} fit better by {finding.gain:.0f} nats with each other's errors"
    return f"{words}: check that the error columns are in the right order"


CHECK = Check(
    "errors exchanged", "whether two columns have each other's", _test, _caution,
    "most in {where}", "noise", _alternative,
)  # fmt: skip
