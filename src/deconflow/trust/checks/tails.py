"""Tails of the noise, heavier than stated."""

import numpy as np

from deconflow._types import Array
from deconflow.noise import GaussianNoise, student_t
from deconflow.trust.check import (
    FEW,
    FEWEST_FOR_SHAPE,
    Alternative,
    Case,
    Check,
    Finding,
    Table,
    log_p,
    one_sided,
    ratio,
    restricted,
)

#: Noise with heavier tails: a share of the values has errors so many times as large.
TAIL_SHARE, TAIL_FACTORS = 0.2, (2.0, 4.0)
#: Mean and standard deviation of the test on right fits that are averages. The few rows in the
#: tails decide it, which an average follows closer than first order says: measured on eight laws.
USUAL_TAILS = (-0.35, 0.8)
DEGREES_OF_FREEDOM = (3.0, 6.0)


def _test(case: Case) -> Finding:
    """Lighter tails are not looked for: sharp edges, which a mixture rounds, look like these."""
    table = case.of_noise
    z = np.nan
    if len(table.data) >= FEWEST_FOR_SHAPE:
        mean, sd = USUAL_TAILS if case.log_p is None else (0.0, 1.0)
        z = (float(table.sums([_wider(table)]).z[0]) - mean) / sd
    if np.isnan(z):
        return Finding(reason=FEW)
    return Finding(p=float(one_sided(z)), gain=0.5 * max(z, 0.0) ** 2, numbers={"z": z})


def _wider(table: Table) -> Array:
    """Log-likelihood ratios of noise with heavier tails, added up over the columns."""
    total = np.zeros_like(table.view.log_p)
    for d, seen in enumerate(table.rows.seen.T):
        more = np.zeros_like(total)
        for size in TAIL_FACTORS:
            factors = np.where(np.arange(len(table.names)) == d, size, 1.0)
            wide = log_p(table.mixture, table.rows.stretched(factors)) - table.view.log_p
            # The idle variance of a missing value was stretched, too.
            idle = np.where(seen, 0.0, np.log(size))
            more += ratio(wide + idle[:, None]) / len(TAIL_FACTORS)
        total += np.log1p(TAIL_SHARE * (more - 1))
    return total


def _alternative(table: Table, finding: Finding, df: float) -> Alternative:
    noise = table.data.noise
    if not (isinstance(noise, GaussianNoise) and noise.diagonal and noise.factor.min() > 0):
        raise ValueError(f"Expected independent Gaussian noise; got {noise!r}.")
    law = student_t(noise.factor[0] if noise.shared else noise.factor, df)
    return {"df": df}, restricted(law, noise)


def _caution(finding: Finding) -> str:
    df = finding.numbers.get("df")
    what = "the noise has heavier tails than the stated distribution"
    if df is None:
        return f"{what}. Fit again with a distribution with heavier tails, or look for bad rows"
    return (
        f"{what}: noise.student_t(sd, {df:g}) fits better by {finding.gain:.0f} nats. Fit again "
        "with that distribution, or look for bad rows"
    )


CHECK = Check(
    "tails of the noise", "whether heavier than those of the stated distribution", _test, _caution,
    kind="noise", alternative=_alternative, sizes=DEGREES_OF_FREEDOM,
)  # fmt: skip
