"""Checks of a fit: counts, the order and edges of rows, their noise, and the fit as a whole."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2, norm, rankdata

from deconflow._types import Array, IntArray
from deconflow.certificate import Certificate
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise, Noise, student_t
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.trust.check import (
    ALIKE,
    CONSTANT,
    DEGREES,
    FEW,
    FEWEST_FOR_SHAPE,
    FLOOR,
    GROUPS,
    LIKELIHOOD,
    UNFIT,
    Alternative,
    Case,
    Check,
    Finding,
    Rows,
    Table,
    below,
    chosen_rows,
    log_p,
    of_smallest,
    predictive_ranks,
    ratio,
    restricted,
    shape,
    two_sided,
    weight_inflation,
    with_covariance,
    worst,
)
from deconflow.xd import (
    FitSettings,
    PreparedData,
    Stopping,
    em,
    expectation,
    lay_out,
    n_parameters,
    refit_with_known_parts,
    row_weights,
)

# Number of rows, for a single Gaussian.

#: Fewer rows per parameter of a single Gaussian are few.
ROWS_PER_PARAMETER = 10


def _rows(case: Case) -> Finding:
    parameters = n_parameters(1, case.data.latent_dim)
    enough = case.n_rows >= ROWS_PER_PARAMETER * parameters
    numbers = {"rows": case.n_rows, "columns": case.data.dim, "parameters": parameters}
    return Finding(p=float(enough), numbers={name: float(n) for name, n in numbers.items()})


def _rows_caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"{numbers['rows']:.0f} rows are few for {numbers['columns']:.0f} "
        f"column{'s' if numbers['columns'] > 1 else ''}: a single Gaussian has "
        f"{numbers['parameters']:.0f} parameters. Expect the density to be rough; use fewer columns"
    )


# Rows that repeat another one.

#: A larger share of rows that all but repeat another one is no chance.
NEAR_COPIES = 0.01


def _copies(case: Case) -> Finding:
    if case.grouped or not case.data.noise.additive:
        return Finding(reason=GROUPS if case.grouped else LIKELIHOOD)
    copies = case.repeated
    repeated = copies.surprising or copies.near_share > NEAR_COPIES
    numbers = {"share": copies.share if copies.surprising else 0.0, "near": copies.near_share}
    gain = repeated * max(numbers.values()) * len(case.data) * np.log(len(case.data))
    return Finding(p=float(not repeated), gain=float(gain), numbers=numbers)


def _copies_caution(finding: Finding) -> str:
    share, near = finding.numbers["share"], finding.numbers["near"]
    exact = f"{share:.0%} of the rows are exact copies of others"
    what = exact if near <= share else f"{near:.0%} of the rows all but repeat another one"
    return (
        f"{what}: they count as independent measurements, and all error bars are too small. "
        "Drop the copies, or name rows that belong together by groups="
    )


# Errors that the fit has estimated.


def _learned_figure(finding: Finding) -> str:
    numbers = finding.numbers
    words = [
        f"{name} {value:.3g} +- {numbers[f'error of {name}']:.2g}"
        for name, value in numbers.items()
        if f"error of {name}" in numbers
    ]
    if "groups" in numbers:
        words.append(
            f"zero points of {numbers['groups']:.0f} groups, up to "
            f"{numbers['largest zero point']:.2g} of a column's spread"
        )
    if "tied" in numbers:
        words.append(f"scale and jitter correlated by {numbers['tied']:.2f}")
    return ", ".join(words)


def _learned_caution(finding: Finding) -> str:
    return (
        f"the rows hardly determine the {', the '.join(finding.columns)}: the answer depends on "
        "the estimated errors, and its intervals ignore their uncertainty. Give replicates=, or "
        "state the errors"
    )


# Posterior samples of rows, where the fitted density is.

#: Rows of which fewer kept samples count are not covered; share of such rows that is a caution.
FEWEST_SAMPLES, MOST_UNCOVERED = 2.0, 0.05


def _coverage(case: Case) -> Finding | None:
    """Effective number of each row's samples, with weights density / prior.

    Only the samples that the noise has kept are counted.
    """
    if case.samples is None:
        return None
    data, log_prob = case.samples
    samples: Any = data.noise.kept
    w = np.asarray(data.w)[:, None] + np.asarray(samples.offsets)
    log_p = log_prob(w.reshape(-1, data.dim).astype(np.float64)).reshape(w.shape[:2])
    log_p -= np.maximum(log_p.max(1, keepdims=True), -1e300)
    weight = np.exp(log_p) * np.asarray(samples.weights, np.float64)
    size = np.square(weight.sum(1)) / np.maximum(np.square(weight).sum(1), 1e-300)
    share = float(np.mean(size < FEWEST_SAMPLES))
    return Finding(
        p=float(share <= MOST_UNCOVERED),
        numbers={"share": share, "fewest": FEWEST_SAMPLES, "draws": float(w.shape[1])},
    )


# Correlation of neighbouring rows.

#: Number of rows, and of runs of them, that are looked at.
ROWS_IN_ORDER, BLOCKS = 20_000, 10
#: Share of steps of a sorted column that go the same way.
SORTED = 0.98


def _order(case: Case) -> Finding:
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
    return Finding("", of_smallest(norm.sf(z)), gain, (table.names[worst],), numbers)


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


# Edges of a sample that was cut off.


def _edges(case: Case) -> Finding:
    """Count simulated values beyond the outermost real one.

    If the model is right, the expected number beyond the outermost of as many is an exponential
    number of mean one.
    """
    table = case.of_noise
    if table.data.weights is not None:
        return Finding(reason="rows have weights")
    rows, beyond = table.rows, []
    draws = rows.w.shape[1] - 1
    for d, seen in enumerate(rows.seen.T):
        real, simulated = rows.w[seen, 0, d], rows.w[seen, 1:, d]
        if len(real) and np.ptp(real) > 0:
            low, high = float(real.min()), float(real.max())
            beyond += [
                ((simulated < low).sum() / draws, d, 0.0, low),
                ((simulated > high).sum() / draws, d, 1.0, high),
            ]
    if not beyond:
        return Finding(reason=CONSTANT)
    gain, d, upper, edge = max(beyond, key=lambda each: each[0])
    shift = table.units.location[d] if table.data.projection is None else 0.0  # else it differs
    numbers = {
        "upper": upper,
        "expected": float(gain),
        "edge": float(shift + edge * table.units.measured_scale[d]),  # as users know it
    }
    return Finding(
        "", of_smallest(np.exp(-gain), len(beyond)), float(gain), (table.names[d],), numbers
    )


def _edges_caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"the values of {finding.where} end at {numbers['edge']:.4g}, where the model expects "
        f"{numbers['expected']:.0f} more rows {'above' if numbers['upper'] else 'below'}: the "
        "sample looks cut off, and the answer is that of the remaining rows. Describe the cut with "
        "selection= and fit again; or, if the true values end there by nature, say where by bounds="
    )


# Outliers: rows spread out evenly, far from all others.
#
# A few rows far out make a mixture spend a component on them that is far wider than all the others
# together. Such components are exchanged for an even background over the range of the data,
#
# .. math:: p(w) = (1 - \epsilon) \, p_{\text{rest}}(w) + \epsilon / \text{volume},
#
# which has fewer parameters. Where that is more likely all the same, the rows are outliers rather
# than a tail; by chance a likelihood is ``c`` times as large with probability
# ``1 / c`` at most.

#: Components of outliers have at most this share, and are so many times as wide as all others.
LARGEST_SHARE, MUCH_WIDER = 0.1, 1.5


def _outliers(case: Case) -> Finding:
    """Look whether an even background explains rows far out better than a wide component."""
    table = case.of_noise
    if table.data.observed is not None or table.data.projection is not None:
        return Finding(reason="values are missing or projected")
    if not np.ptp(table.data.measured(), axis=0).all():
        return Finding(reason=CONSTANT)
    gain, share = max(_exchanged(table), default=(0.0, 0.0))
    gain = max(gain, 0.0)
    return Finding(p=float(np.exp(-gain)), gain=gain, numbers={"share": share})


def wide_components(mixture: GaussianMixture) -> Iterator[IntArray]:
    """Yield the widest, the two widest, ... components, if few rows are theirs.

    All of them are far wider than the others together.
    """
    size = 0.5 * np.linalg.slogdet(mixture.covariances)[1] / mixture.dim
    order = np.argsort(-size)
    for count in range(1, mixture.n_components):
        out, rest = order[:count], order[count:]
        if mixture.weights[out].sum() > LARGEST_SHARE:
            return
        bulk = np.linalg.slogdet(_only(mixture, rest).covariance)[1] / (2 * mixture.dim)
        if size[out].min() > bulk + np.log(MUCH_WIDER):
            yield out


def _exchanged(table: Table) -> Iterator[tuple[float, float]]:
    """Yield what a background gains in log-likelihood over wide components, and its share."""
    spread = np.ptp(table.data.measured(), axis=0) * (1 + 2 / len(table.data))
    even = np.full((1, len(table.data)), -np.log(spread).sum())
    sets = list(wide_components(table.mixture))
    before = _without_background(table) if sets else 0.0
    for wide in sets:
        rest = np.setdiff1d(np.arange(table.mixture.n_components), wide)
        share = table.mixture.weights[wide].sum(keepdims=True)
        fit = refit_with_known_parts(table.data, even, _only(table.mixture, rest), share)
        yield fit.log_likelihood - before, float(fit.shares[0])


def _without_background(table: Table) -> float:
    """Log-likelihood after as many steps of EM as with a background."""
    prepared, stopping = PreparedData(table.data), Stopping(tol=1e-6, max_iter=60, accelerate=True)
    constraints = FitSettings(table.mixture.n_components, floor=FLOOR).constraints(prepared)
    start = prepared.begin(table.mixture, constraints)
    fitted = em(start, prepared.rows, constraints, stopping).mixture
    return float(table.weights @ expectation(fitted, prepared.rows, moments=False).log_p)


def _only(mixture: GaussianMixture, kept: IntArray) -> GaussianMixture:
    weights = mixture.weights[kept]
    return GaussianMixture(weights / weights.sum(), mixture.means[kept], mixture.covariances[kept])


# Dependence of the true values on the size of their error.


def _dependence(case: Case) -> Finding:
    table = case.of_noise
    if not table.differing.any():
        return Finding(reason=ALIKE)
    sd = np.broadcast_to(table.rows.sd, table.rows.seen.shape)
    functions, of = [], list(product(np.flatnonzero(table.differing).tolist(), (1, 2)))
    for d, degree in of:
        seen = table.rows.seen[:, d]
        order = np.zeros(len(sd))
        order[seen] = rankdata(sd[seen, d]) / (seen.sum() + 1) - 0.5
        functions.append(order[:, None] * shape(degree, table.below[..., d]))
    z = np.nan_to_num(table.sums(functions).z)
    worst = int(np.abs(z).argmax())
    column, degree = of[worst]
    numbers = {"z": float(z[worst]), "spread": float(degree == 2)}
    gain = 0.5 * float(z[worst]) ** 2
    return Finding("", of_smallest(two_sided(z)), gain, (table.names[column],), numbers)


def _dependence_caution(finding: Finding) -> str:
    what = "the spread of " if finding.numbers["spread"] else ""
    more = "increases" if finding.numbers["z"] > 0 else "decreases"
    return (
        f"{what}{finding.where} {more} with its error, but the fit assumes that they are "
        'independent. Fit again with given="noise", which lets location and spread depend on the '
        "error, or fit rows of similar errors by themselves"
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
            more += ratio(wide + np.where(seen, 0.0, np.log(size))[:, None]) / len(TAIL_FACTORS)
        total += np.log1p(TAIL_SHARE * (more - 1))
    return total


def _tails_alternative(table: Table, finding: Finding, df: float) -> Alternative:
    noise = table.data.noise
    if not (isinstance(noise, GaussianNoise) and noise.diagonal and noise.factor.min() > 0):
        raise ValueError(f"Expected independent Gaussian noise; got {noise!r}.")
    return {"df": df}, restricted(
        student_t(noise.factor[0] if noise.shared else noise.factor, df), noise
    )


def _tails_caution(finding: Finding) -> str:
    df = finding.numbers.get("df")
    what = "the noise has heavier tails than the stated distribution"
    if df is None:
        return f"{what}. Fit again with a distribution with heavier tails, or look for bad rows"
    return (
        f"{what}: noise.student_t(sd, {df:g}) fits better by {finding.gain:.0f} nats. Fit again "
        "with that distribution, or look for bad rows"
    )


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


# A plain mixture, on the same rows as the model.


def _model(case: Case) -> Finding | None:
    """Compare a mixture that AIC has chosen with the model.

    Its parameters, which were fitted to these very rows, are taken off; what is left is a ratio of
    likelihoods, of which chance makes one above ``c`` with probability ``1 / c`` at most.
    """
    if case.log_p is None:
        return None
    table = case.of_model
    rows, mixture = table.original, table.in_units
    better = lay_out(rows, Standardiser.of_mixture(mixture, rows))
    of_mixture = expectation(better.units.mixture_to_standard(mixture), better, moments=False)
    parameters = n_parameters(mixture.n_components, mixture.dim) * weight_inflation(rows)
    gain = max(float(table.weights @ (of_mixture.log_p - case.log_p(rows))) - parameters, 0.0)
    return Finding(
        p=float(np.exp(-gain)), gain=gain, numbers={"components": float(mixture.n_components)}
    )


# Values of each column, compared with simulated ones.
#
# The distribution of a count is another one for each count that might have been: simulated rows
# cannot be looked at with that of the real one. Its rank among values simulated for the same row
# can: with equal values in a random order it is uniform if the model is right. A fit follows its
# rows, which makes these ranks a little too even: the test is on the safe side.

DRAWS = 19


def _columns(case: Case) -> Finding:
    p, gains = zip(*(_of_table(case) if case.data.noise.additive else _of_ranks(case)), strict=True)
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
    data = case.rows[chosen_rows(case.rows, np.random.RandomState(case.seed))]
    ranks = predictive_ranks(case.sample, data, n_draws=DRAWS, seed=case.seed)
    return [_of_column(column, row_weights(data)) for column in ranks.T]


def _of_column(ranks: Array, weights: Array) -> tuple[float, float]:
    seen = ~np.isnan(ranks)
    own = weights[seen]
    sums = [own @ shape(k, ranks[seen]) for k in DEGREES]
    statistic = float(np.square(sums).sum() / max(np.square(own).sum(), 1e-300))
    return float(chi2.sf(statistic, len(DEGREES))), 0.5 * statistic


# Rows as a whole, by ranks of ``log p(w)``.

#: The mean of a polynomial of ranks, whose standard deviation is one, may be off by about this
#: much: mixtures round sharp edges.
SLACK = 0.006


def _joint(case: Case) -> Finding:
    table = case.of_model
    log_p = table.view.log_p
    simulated = np.sort(log_p[:, 1:], axis=None)
    rank = (np.searchsorted(simulated, log_p) + 0.5) / (simulated.size + 1)
    sums = table.sums([shape(degree, rank) for degree in DEGREES])
    p, gain = sums.together(SLACK * table.weights.sum())
    return Finding(p=p, gain=gain)


#: In the order in which they are shown.
CHECKS: dict[str, Check] = {
    "rows": Check(
        "number of rows", "at least ten per parameter of one Gaussian",
        _rows, _rows_caution,
        "{rows:.0f}", kind="count",
    ),
    "copies": Check(
        "copies", "rows that repeat another one, more often than chance allows",
        _copies, _copies_caution,
        "{share:.1%} of rows", kind="count",
    ),
    "model": Check(
        "a plain mixture", "what one that AIC chooses gains in log p(w) over the model",
        _model,
        "a mixture of {components:.0f} Gaussians fits the rows better by {gain:.0f} nats: the "
        "model is too simple, or its fit did not end well. Allow it more, or use Deconvolver",
        "{gain:.1f} nats with {components:.0f} components", "fit",
    ),
    "order": Check(
        "neighbouring rows", "their correlation; independent rows have none",
        _order,
        "neighbouring rows are alike in {where} (correlation {correlation:.2f}): objects measured "
        "several times, or a drift. All error bars are too small; if rows belong together, name "
        "them by groups=, and if the table is merely sorted by something like it, ignore this",
        "correlation {correlation:.2f} in {where}",
    ),
    "edges": Check(
        "edges", "simulated rows beyond the outermost real one; about one is usual",
        _edges, _edges_caution,
        "{expected:.1f} beyond, in {where}",
    ),
    "outliers": Check(
        "outliers", "rows that an even background explains better",
        _outliers,
        "about {share:.1%} of the rows are spread evenly, far from all others: they look like "
        "outliers, and the fit takes them for true values. Find them with `deconflow score` and "
        'leave out what is junk; or fit again with background="uniform"',
        "{share:.1%} of rows",
    ),
    "dependence": Check(
        "values and errors", "whether location or spread depend on the size of the error",
        _dependence,
        _dependence_caution, "most in {where}",
    ),
    "factor": Check(
        "size of the errors", "the factor on the stated errors that fits best",
        _factor, _factor_caution,
        _factor_figure, "noise", _factor_alternative, FACTORS,
    ),
    "tails": Check(
        "tails of the noise", "whether heavier than those of the stated distribution",
        _tails, _tails_caution,
        kind="noise", alternative=_tails_alternative, sizes=DEGREES_OF_FREEDOM,
    ),
    "skewness": Check(
        "skew of the noise", "compared with the stated distribution, by column",
        _skewness, _skewness_caution,
        "most in {where}", "noise",
    ),
    "correlation": Check(
        "correlated errors", "more than stated, between columns",
        _correlation, _correlation_caution,
        "most in {where}", "noise", _correlation_alternative, CORRELATIONS,
    ),
    "swapped": Check(
        "errors exchanged", "whether two columns have each other's",
        _swapped,
        "the rows fit better if {where} exchange their errors: check that the error columns are in "
        "the right order",
        "most in {where}", "noise", _swapped_alternative, (1.0,),
    ),
    "columns": Check(
        "columns", "simulated values against real ones, column by column",
        _columns,
        "simulated measurements do not look like the real ones in {where}: the errors may be "
        "wrong, or the model too simple. See `deconflow plot --kind diagnostics`",
        "worst in {where}", "fit", additive=False,
    ),
    "joint": Check(
        "rows as a whole", "simulated rows against real ones, by ranks of log p(w)",
        _joint,
        "simulated rows do not look like the real ones as a whole: there are too many or too few "
        "unusual rows. The errors may be wrong, or the model too simple",
        kind="fit",
    ),
    "learned": Check(
        "learned errors", "estimates of errors that were left open",
        lambda case: case.learned, _learned_caution, _learned_figure,
        kind="count",
    ),
    "coverage": Check(
        "posterior samples", "rows with almost none where the fitted density is; below 5 % is good",
        _coverage,
        "in {share:.0%} of the rows fewer than {fewest:.0f} of {draws:.0f} posterior samples lie "
        "where the fitted density is: the result for these rows depends on the shape of the "
        "Gaussians fitted to their samples. Draw more samples, or under a wider prior",
        "too few in {share:.1%} of rows", kind="count",
    ),
}  # fmt: skip

#: Once a test has objected to the noise, all that have such a p-value may be the reason.
SUSPECT = 0.05
#: Steps of EM at most; fewer where the noise is a mixture of Gaussians, and each takes long.
STEPS, STEPS_OF_MANY = 200, 60


def find_doubts(case: Case) -> tuple[Finding, ...]:
    """Check a fit and the rows that it was made of."""
    made = {key: check.made(case) for key, check in CHECKS.items()}
    findings = {
        key: replace(each, check=key, kind=CHECKS[key].kind)
        for key, each in made.items()
        if each is not None
    }
    with suppress(*UNFIT):
        findings |= _with_causes(case, findings)
    return tuple(CHECKS[key].worded(each) for key, each in findings.items())


def _with_causes(case: Case, findings: dict[str, Finding]) -> dict[str, Finding]:
    """Where a test objects to the noise, fit what may be the reason, and mark the best.

    Several tests may object at once, since errors that are too small look like heavy tails, too.
    """
    cautions = Certificate(findings=tuple(findings.values())).cautions
    if not any(each.kind == "noise" for each in cautions):
        return {}
    usual = _log_likelihood(case.of_noise, case.of_noise.data.noise)
    suspects = {
        key: _refitted(case.of_noise, each, usual)
        for key, each in findings.items()
        if each.kind == "noise" and each.p is not None and each.p < SUSPECT
    }
    best = max(suspects, key=lambda key: suspects[key].gain)
    return suspects | {best: replace(suspects[best], explains=True)}


def _refitted(table: Table, finding: Finding, usual: float) -> Finding:
    """Fit every alternative of a check, and keep the best, with its gain in log-likelihood."""
    check, fits = CHECKS[finding.check], []
    for size in check.sizes:
        with suppress(*UNFIT):  # not every correlation is possible with the others
            numbers, noise = check.alternative(table, finding, size)
            fits.append((_log_likelihood(table, noise), numbers))
    if not fits:
        return finding
    best, numbers = max(fits, key=lambda fit: fit[0])
    better = numbers if best > usual else {}
    return replace(finding, gain=max(best - usual, 0.0), numbers=finding.numbers | better)


def _log_likelihood(table: Table, noise: Noise) -> float:
    """Log-likelihood of all rows that are looked at, by the mixture fitted under this noise."""
    data = replace(table.data, noise=noise)
    steps = STEPS if noise.as_mixture().n_parts == 1 else STEPS_OF_MANY
    stopping = Stopping(tol=1e-6, max_iter=steps, accelerate=True)
    settings = FitSettings(table.mixture.n_components, floor=FLOOR, stopping=stopping)
    fitted = PreparedData(data).fit(settings, np.random.RandomState(0), table.mixture)
    return len(data) * fitted.log_likelihood
