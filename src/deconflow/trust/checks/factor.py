"""Size of the errors: the factor on them that fits best."""

import math

import numpy as np

from deconflow.trust.check import (
    ALIKE,
    FEW,
    Alternative,
    Case,
    Check,
    Finding,
    Table,
    of_smallest,
    two_sided,
    weight_inflation,
)

#: With a larger error of the logarithm of the factor, a factor of two is not seen.
UNKNOWN_FACTOR = 0.35
#: Factors that are tried, and what stands for the estimated one.
ESTIMATE = 1.0
FACTORS = (ESTIMATE, 1.25, 1.5, 2.0, 3.0, 4.0)


def _test(case: Case) -> Finding:
    """Look for errors that are larger or smaller than stated: all of them, or those of a column."""
    table = case.of_noise
    if not table.differing.any():
        return Finding(reason=ALIKE)
    each = list(np.moveaxis(table.view.by_size, -1, 0))
    names = [(), *((name,) for name in table.names)]
    sums = table.sums([sum(each), *each] if len(each) > 1 else each)
    # Row weights count once in the slope of a sum, but twice in its variance.
    slope = np.diag(sums.covariance) / weight_inflation(table.data)
    error = np.sqrt(np.diag(sums.covariance)) / np.maximum(slope, 1e-300)
    known = ~np.isnan(sums.z) & (error < UNKNOWN_FACTOR)
    if not known.any():
        return Finding(reason=FEW)
    p = np.where(known, two_sided(np.where(known, sums.z, 0.0)), 1.0)
    worst = int(p.argmin())
    numbers = {"log_factor": float(sums.excess[worst] / slope[worst]), "error": float(error[worst])}
    several = of_smallest(p[worst], len(each))  # all together are no test more than each column
    return Finding("", several, 0.5 * float(sums.z[worst]) ** 2, names[worst], numbers)


def _alternative(table: Table, finding: Finding, size: float) -> Alternative:
    """Multiply the errors by the estimated factor, or by others in its direction."""
    estimate = finding.numbers["log_factor"]
    factor = math.exp(max(-5.0, min(5.0, estimate)))
    if size != ESTIMATE:
        factor = size if estimate > 0 else 1 / size
    changed = [not finding.columns or name in finding.columns for name in table.names]
    noise = table.data.noise.divide(np.where(changed, 1 / factor, 1.0))
    return {"best": factor}, table.under(noise), 0.0


def _best(finding: Finding) -> tuple[float, str]:
    """Return the factor that fits best, and whose it is."""
    estimated = math.exp(max(-5.0, min(5.0, finding.numbers["log_factor"])))
    where = f" of {finding.where}" if finding.columns else ""
    return finding.numbers.get("best", estimated), where


def _figure(finding: Finding) -> str:
    best, where = _best(finding)
    error = best * finding.numbers["error"]
    return f"best-fitting factor on the stated errors{where}: {best:.2f} +- {error:.2f}"


def _caution(finding: Finding) -> str:
    best, where = _best(finding)
    size, width = ("small", "narrow") if best > 1 else ("large", "wide")
    words = f"the stated errors{where} seem to be too {size} (p {finding.p:.2g})"
    if "best" in finding.numbers:
        words = (
            f"the stated errors{where} are too {size}: {best:.2f} times as large they fit the rows "
            f"better by {finding.gain:.0f} nats"
        )
    return (
        f"{words}; intervals of the true values are too {width}. Look up where the errors come "
        "from, or multiply them and fit again"
    )


CHECK = Check(
    "size of the errors", "the factor on the stated errors that fits best", _test, _caution,
    _figure, "noise", _alternative, FACTORS,
)  # fmt: skip
