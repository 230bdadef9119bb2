"""Checks of the noise: its size, tails, skewness, correlations, and columns exchanged."""

import math
from itertools import combinations

import numpy as np
from scipy.stats import norm

from deconflow._types import Array
from deconflow.noise import GaussianNoise, student_t
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
    of_smallest,
    ratio,
    restricted,
    two_sided,
    weight_inflation,
    with_covariance,
    worst,
)

# Size of the errors: the factor on them that fits best.

#: With a larger error of the logarithm of the factor, a factor of two is not seen.
UNKNOWN_FACTOR = 0.35
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)


def _factor(case: Case) -> Finding:
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


def _factor_alternative(table: Table, finding: Finding, size: float) -> Alternative:
    factor = size if finding.numbers["log_factor"] > 0 else 1 / size
    changed = [not finding.columns or name in finding.columns for name in table.names]
    return {"best": factor}, table.data.noise.divide(np.where(changed, 1 / factor, 1.0))


def _factor_best(finding: Finding) -> tuple[float, str]:
    """Return the factor that fits best, and whose it is."""
    estimated = math.exp(max(-5.0, min(5.0, finding.numbers["log_factor"])))
    where = f" of {finding.where}" if finding.columns else ""
    return finding.numbers.get("best", estimated), where


def _factor_figure(finding: Finding) -> str:
    best, where = _factor_best(finding)
    error = best * finding.numbers["error"]
    return f"best-fitting factor on the stated errors{where}: {best:.2f} +- {error:.2f}"


def _factor_caution(finding: Finding) -> str:
    best, where = _factor_best(finding)
    size, width = ("small", "narrow") if best > 1 else ("large", "wide")
    words = f"the stated errors{where} seem to be too {size} (p {finding.p:.2g})"
    if "best" in finding.numbers:
        words = (
            f"the stated errors{where} are too {size}: {best:.2g} times as large they fit the rows "
            f"better by {finding.gain:.0f} nats"
        )
    return (
        f"{words}; intervals of the true values are too {width}. Look up where the errors come "
        "from, or multiply them and fit again"
    )


FACTOR = Check(
    "size of the errors", "the factor on the stated errors that fits best",
    _factor, _factor_caution,
    _factor_figure, "noise", _factor_alternative, FACTORS,
)  # fmt: skip


# Tails of the noise, heavier than stated.

#: Noise with heavier tails: a share of the values has errors so many times as large.
TAIL_SHARE, TAIL_FACTORS = 0.2, (2.0, 4.0)
#: Mean and standard deviation of the test on right fits that are averages. The few rows in the
#: tails decide it, which an average follows closer than first order says: measured on eight laws.
USUAL_TAILS = (-0.35, 0.8)
DEGREES_OF_FREEDOM = (3.0, 6.0)


def _tails(case: Case) -> Finding:
    """Lighter tails are not looked for: sharp edges, which a mixture rounds, look like these."""
    table = case.of_noise
    z = np.nan
    if len(table.data) >= FEWEST_FOR_SHAPE:
        mean, sd = USUAL_TAILS if case.log_p is None else (0.0, 1.0)
        z = (float(table.sums([_wider(table)]).z[0]) - mean) / sd
    if np.isnan(z):
        return Finding(reason=FEW)
    return Finding(p=float(norm.sf(z)), gain=0.5 * max(z, 0.0) ** 2, numbers={"z": z})


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


def _tails_alternative(table: Table, finding: Finding, df: float) -> Alternative:
    noise = table.data.noise
    if not (isinstance(noise, GaussianNoise) and noise.diagonal and noise.factor.min() > 0):
        raise ValueError(f"Expected independent Gaussian noise; got {noise!r}.")
    law = student_t(noise.factor[0] if noise.shared else noise.factor, df)
    return {"df": df}, restricted(law, noise)


def _tails_caution(finding: Finding) -> str:
    df = finding.numbers.get("df")
    what = "the noise has heavier tails than the stated distribution"
    if df is None:
        return f"{what}. Fit again with a distribution with heavier tails, or look for bad rows"
    return (
        f"{what}: noise.student_t(sd, {df:g}) fits better by {finding.gain:.0f} nats. Fit again "
        "with that distribution, or look for bad rows"
    )


TAILS = Check(
    "tails of the noise", "whether heavier than those of the stated distribution",
    _tails, _tails_caution,
    kind="noise", alternative=_tails_alternative, sizes=DEGREES_OF_FREEDOM,
)  # fmt: skip


# Skewness of the noise.


def _skewness(case: Case) -> Finding:
    table = case.of_noise
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding(reason=FEW)
    columns = [(d,) for d in range(len(table.names))]
    return worst(table, columns, lambda each: table.view.skewness[..., each[0]])


def _skewness_caution(finding: Finding) -> str:
    towards, bar = ("high", "lower") if finding.numbers["z"] > 0 else ("low", "upper")
    return (
        f"the noise in {finding.where} is more skewed towards {towards} values than the stated "
        f"distribution. Use noise.split_normal(lower, upper) with a longer {bar} bar, or look for "
        "a zero point that drifts"
    )


SKEWNESS = Check(
    "skew of the noise", "compared with the stated distribution, by column",
    _skewness, _skewness_caution,
    "most in {where}", "noise",
)  # fmt: skip


# Correlation of the errors of two columns.

CORRELATIONS = (0.3, 0.6, 0.8, 0.95)


def _correlation(case: Case) -> Finding:
    table = case.of_noise
    sd, pairs = table.rows.sd, list(combinations(range(len(table.names)), 2))
    return worst(
        table, list(pairs),
        lambda each: table.view.by_covariance[..., each[0], each[1]]
        * (sd[:, each[0]] * sd[:, each[1]])[:, None],
    )  # fmt: skip


def _correlation_alternative(table: Table, finding: Finding, size: float) -> Alternative:
    a, b = (table.names.index(name) for name in finding.columns)
    rho = float(np.sign(finding.numbers["z"])) * size
    covariance = np.array(table.data.noise.covariance())
    both = rho * np.sqrt(covariance[:, a, a] * covariance[:, b, b])
    covariance[:, a, b] = covariance[:, b, a] = both
    return {"correlation": rho}, with_covariance(table.data.noise, covariance)


def _correlation_caution(finding: Finding) -> str:
    rho = finding.numbers.get("correlation")
    if rho is None:
        sign = "positively" if finding.numbers["z"] > 0 else "negatively"
        words = f"seem to be {sign} correlated (p {finding.p:.2g})"
    else:
        words = f"are correlated: {rho:+.1g} fits better by {finding.gain:.0f} nats"
    return f"the errors of {finding.where} {words}. Give covariances, or a column with correlations"


CORRELATION = Check(
    "correlated errors", "more than stated, between columns",
    _correlation, _correlation_caution,
    "most in {where}", "noise", _correlation_alternative, CORRELATIONS,
)  # fmt: skip


# Two columns that have each other's errors.

MOST_COLUMNS = 6
#: Of rows with exchanged errors, in the alternative that is tested.
SHARE = 0.5


def _swapped(case: Case) -> Finding:
    table, dim = case.of_noise, len(case.names)
    pairs = combinations(range(dim), 2) if dim <= MOST_COLUMNS else ()
    complete: list[tuple[int, ...]] = [p for p in pairs if table.rows.seen[:, p].all()]
    scale = np.asarray(table.units.measured_scale)

    def gain(pair: tuple[int, ...]) -> Array:
        other = log_p(table.mixture, table.rows.swapped(pair[0], pair[1], scale))
        return np.log1p(SHARE * (ratio(other - table.view.log_p) - 1))

    return worst(table, complete, gain, side=1)


def _swapped_alternative(table: Table, finding: Finding, _: float) -> Alternative:
    """Exchange the errors of two columns, in the units of the data."""
    a, b = (table.names.index(name) for name in finding.columns)
    order, scale = np.arange(len(table.names)), np.asarray(table.units.measured_scale)
    order[[a, b]] = b, a
    ratios = scale[order] / scale
    covariance = np.asarray(table.data.noise.covariance())[:, order][:, :, order]
    return {}, with_covariance(table.data.noise, covariance * ratios * ratios[:, None])


SWAPPED = Check(
    "errors exchanged", "whether two columns have each other's",
    _swapped,
    "the rows fit better if {where} exchange their errors: check that the error columns are in the "
    "right order",
    "most in {where}", "noise", _swapped_alternative, (1.0,),
)  # fmt: skip
