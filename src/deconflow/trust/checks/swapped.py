"""Two columns that have each other's errors."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations

import numpy as np

from deconflow._types import Array
from deconflow.noise import GaussianNoise, Noise, gaussian
from deconflow.trust.check import Alternative, Case, Check, Finding, Table, log_p, ratio, worst

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


def _alternatives(table: Table, finding: Finding) -> Iterator[Alternative]:
    if isinstance(table.data.noise, GaussianNoise):
        a, b = (table.names.index(name) for name in finding.columns)
        scale = np.asarray(table.units.measured_scale)
        yield {}, partial(_exchanged, table.data.noise, a, b, scale)


def _exchanged(noise: GaussianNoise, a: int, b: int, scale: Array) -> Noise:
    """Exchange the errors of two columns, in the units of the data."""
    order = np.arange(noise.dim)
    order[[a, b]] = b, a
    ratios = scale[order] / scale
    covariance = np.asarray(noise.covariance())[:, order][:, :, order] * ratios * ratios[:, None]
    return gaussian(covariance=covariance[0] if noise.shared else covariance).bind(len(noise))


def _caution(finding: Finding) -> str:
    return (
        f"the rows fit better if {finding.where} exchange their errors: check that the error "
        "columns are in the right order"
    )


CHECK = Check(
    "errors exchanged", "whether two columns have each other's", _test, _caution,
    lambda f: f"most in {f.where}", "noise", _alternatives,
)  # fmt: skip
