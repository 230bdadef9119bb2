"""Would another noise fit better? One function per alternative; see the table at the end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from deconflow._types import Array
from deconflow.findings import Finding
from deconflow.trust.comparison import of_smallest, one_sided, two_sided
from deconflow.trust.lens import log_p
from deconflow.trust.table import Table, weight_inflation

UNKNOWN_FACTOR = 0.35
"""With a larger error of the logarithm of the factor on the errors, a factor of two is not seen."""
TAIL_SHARE, TAIL_FACTORS = 0.2, (2.0, 4.0)
"""Noise with heavier tails: a share of the values has errors so many times as large."""
USUAL_TAILS = (-0.35, 0.8)
"""Mean and standard deviation of the test of the tails on right fits that are averages. The few
rows in the tails decide it, which an average follows closer than first order says: measured on
eight laws."""
FEWEST_FOR_SHAPE = 1000
"""With fewer rows a truth that the mixture does not quite fit looks like noise of another shape."""
MOST_COLUMNS_TO_SWAP = 6
SWAPPED_SHARE = 0.5
LARGEST_LOG_RATIO = 50.0
LEAST_SIGNAL = 0.05
"""Functions that vary by less from one simulated row to another say nothing of noise: it is so much
smaller than the spread of the truth that all they would see is how well that is fitted."""


def factor(table: Table) -> Finding:
    """Look whether errors are larger or smaller than said: all of them, or those of a column."""
    if not table.by_row:
        return Finding("factor", reason="alike")
    each = list(np.moveaxis(table.view.by_size, -1, 0))
    functions = [sum(each), *each] if len(each) > 1 else each
    names = [(), *((name,) for name in table.names)]
    sums = table.sums(functions)
    # Row weights count once in the slope of a sum, but twice in its variance.
    slope = np.diag(sums.covariance) / weight_inflation(table.data)
    error = np.sqrt(np.diag(sums.covariance)) / np.maximum(slope, 1e-300)
    known = ~np.isnan(sums.z) & (error < UNKNOWN_FACTOR)
    if not known.any():
        return Finding("factor", reason="few")
    p = np.where(known, [two_sided(z) for z in np.where(known, sums.z, 0.0)], 1.0)
    worst = int(p.argmin())
    numbers = {"log_factor": float(sums.excess[worst] / slope[worst]), "error": float(error[worst])}
    gain = 0.5 * float(sums.z[worst]) ** 2
    # All columns together are no test more than each of them.
    several = [float(p[worst]), *[1.0] * (len(each) - 1)]
    return Finding("factor", of_smallest(several), gain, names[worst], numbers)


def tails(table: Table) -> Finding:
    """Look whether the noise is heavier in its tails than said.

    Lighter tails are not looked for: a truth with sharp edges, which a mixture rounds, looks so.
    """
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding("tails", reason="few")
    sums = table.sums([_wider(table)])
    mean, sd = USUAL_TAILS if table.averaged else (0.0, 1.0)
    z = (float(sums.z[0]) - mean) / sd
    if np.isnan(z):
        return Finding("tails", reason="few")
    return Finding("tails", one_sided(z), 0.5 * max(z, 0.0) ** 2, numbers={"z": z})


def skewness(table: Table) -> Finding:
    """Look whether the noise leans to one side."""
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding("skewness", reason="few")
    return _worst(
        table, "skewness", [(d,) for d in range(len(table.names))],
        lambda each: table.view.skewness[..., each[0]],
    )  # fmt: skip


def correlation(table: Table) -> Finding:
    """Look whether the errors of two columns of a row go together."""
    sd = table.rows.sd
    return _worst(
        table, "correlation", list(combinations(range(len(table.names)), 2)),
        lambda each: table.view.by_covariance[..., each[0], each[1]]
        * (sd[:, each[0]] * sd[:, each[1]])[:, None],
    )  # fmt: skip


def swapped(table: Table) -> Finding:
    """Look whether two columns have each other's errors."""
    dim = len(table.names)
    pairs: list[tuple[int, ...]] = []
    if dim <= MOST_COLUMNS_TO_SWAP:
        pairs = list(combinations(range(dim), 2))
    complete = [pair for pair in pairs if table.rows.seen[:, pair].all()]

    def gain(pair: tuple[int, ...]) -> Array:
        scale = table.units.measured_scale.numpy()
        other = log_p(table.mixture, table.rows.swapped(pair[0], pair[1], scale))
        return _blended(other - table.view.log_p, SWAPPED_SHARE)

    return _worst(table, "swapped", complete, gain, side=1)


def _wider(table: Table) -> Array:
    """Log-likelihood ratios of noise with heavier tails, added up over the columns."""
    total = np.zeros_like(table.view.log_p)
    dim = table.rows.w.shape[2]
    for d in range(dim):
        ratio = np.zeros_like(total)
        for size in TAIL_FACTORS:
            factors = np.where(np.arange(dim) == d, size, 1.0)
            wide = log_p(table.mixture, table.rows.stretched(factors)) - table.view.log_p
            # The idle variance of a missing value was stretched, too.
            idle = np.where(table.rows.seen[:, d], 0.0, np.log(size))
            ratio += _ratio(wide + idle[:, None]) / len(TAIL_FACTORS)
        total += np.log1p(TAIL_SHARE * (ratio - 1))
    return total


def _blended(log_ratio: Array, share: float) -> Array:
    return np.log1p(share * (_ratio(log_ratio) - 1))


def _ratio(log_ratio: Array) -> Array:
    return np.exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))


def _worst(
    table: Table,
    check: str,
    choices: list[tuple[int, ...]],
    function: Callable[[tuple[int, ...]], Array],
    side: int = 2,
) -> Finding:
    """Look at several columns, or pairs of them, and report the one that stands out most."""
    if not choices:
        return Finding(check, reason="one column" if len(table.names) == 1 else "columns")
    functions = [function(each) for each in choices]
    z = table.sums(functions).z
    signal = np.array([each[:, 1:].std() for each in functions])
    known = ~np.isnan(z) & ((signal > LEAST_SIGNAL) | (side == 1))
    if not known.any():
        return Finding(check, reason="small" if table.by_row else "alike")
    p_value = two_sided if side == 2 else one_sided
    p = np.array([p_value(each) for each in np.where(known, z, 0.0)])
    p[~known] = 1.0
    worst = int(p.argmin())
    gain = 0.5 * z[worst] ** 2 if side == 2 or z[worst] > 0 else 0.0
    columns = tuple(table.names[d] for d in choices[worst])
    numbers = {"z": float(z[worst])}
    return Finding(check, of_smallest(p[known].tolist()), float(gain), columns, numbers)


NOISE_TESTS: tuple[Callable[[Table], Finding], ...] = (
    factor,
    tails,
    skewness,
    correlation,
    swapped,
)
