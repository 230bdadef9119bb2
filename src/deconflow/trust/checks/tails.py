"""Tails of the noise, heavier than stated."""

import numpy as np

from deconflow._types import Array
from deconflow.noise import GaussianNoise, gaussian_mixture, student_t
from deconflow.trust.check import (
    ALIKE,
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
DEGREES_OF_FREEDOM = (3.0, 6.0)
#: The widths that stand for these where noise is correlated.
WIDER = {3.0: 3.0, 6.0: 2.0}


def _test(case: Case) -> Finding:
    """Lighter tails are not looked for: sharp edges, which a mixture rounds, look like these."""
    table = case.of_noise
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding(reason=FEW)
    sums = table.sums([_wider(table)])
    numbers = {"z": float(sums.z[0]), "unbounded z": float(sums.unbounded[0])}
    if np.isnan(sums.z[0]):
        return Finding(reason=ALIKE)
    gain = 0.5 * max(numbers["z"], 0.0) ** 2
    return Finding(p=float(one_sided(numbers["z"])), gain=gain, numbers=numbers)


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
    """Let independent noise be Student's t; of correlated noise some values are wider."""
    noise = table.data.noise
    if not isinstance(noise, GaussianNoise):
        raise ValueError(f"Expected Gaussian noise; got {noise!r}.")
    if noise.diagonal:
        of_t = student_t(noise.factor[0] if noise.shared else noise.factor, df)
        return {"df": df}, table.under(restricted(of_t, noise)), 0.0
    times = WIDER[df]
    shares = np.full((len(noise.covariance()), 2), [1 - TAIL_SHARE, TAIL_SHARE])
    both = noise.covariance()[:, None] * np.array([1.0, times**2])[:, None, None]
    law = gaussian_mixture(shares, np.zeros(both.shape[:3]), both)
    return {"times": times}, table.under(restricted(law, noise)), 0.0


def _caution(finding: Finding) -> str:
    df, times = finding.numbers.get("df"), finding.numbers.get("times")
    what = "the noise has heavier tails than the stated distribution"
    better = f"fits better by {finding.gain:.0f} nats. Fit again with"
    if df is not None:
        what += f": noise.student_t(sd, {df:g}) {better} that distribution"
    elif times is not None:
        what += f": errors {times:g} times as large in {TAIL_SHARE:.0%} of the rows {better} such"
        what += " noise (noise.gaussian_mixture)"
    else:
        what += ". Fit again with a distribution with heavier tails"
    return f"{what}, or look for bad rows"


CHECK = Check(
    "tails of the noise", "whether heavier than those of the stated distribution", _test, _caution,
    kind="noise", alternative=_alternative, sizes=DEGREES_OF_FREEDOM, rather="factor",
)  # fmt: skip
