"""Checks of the rows: their order, edges, outliers, and true values that depend on errors."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm, rankdata

from deconflow._types import IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.trust.check import (
    ALIKE,
    CONSTANT,
    FLOOR,
    GROUPS,
    Case,
    Check,
    Finding,
    Rows,
    Table,
    below,
    of_smallest,
    shape,
    two_sided,
)
from deconflow.xd import (
    FitSettings,
    PreparedData,
    Stopping,
    em,
    expectation,
    refit_with_known_parts,
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


ORDER = Check(
    "neighbouring rows", "their correlation; independent rows have none",
    _order,
    "neighbouring rows are alike in {where} (correlation {correlation:.2f}): objects measured "
    "several times, or a drift. All error bars are too small; if rows belong together, name them "
    "by groups=, and if the table is merely sorted by something like it, ignore this",
    "correlation {correlation:.2f} in {where}",
)  # fmt: skip


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
            beyond.append(((simulated < low).sum() / draws, d, 0.0, low))
            beyond.append(((simulated > high).sum() / draws, d, 1.0, high))
    if not beyond:
        return Finding(reason=CONSTANT)
    gain, d, upper, edge = max(beyond, key=lambda each: each[0])
    shift = table.units.location[d] if table.data.projection is None else 0.0  # else it differs
    numbers = {"upper": upper, "expected": float(gain)}
    numbers["edge"] = float(shift + edge * table.units.measured_scale[d])  # as users know it
    p = of_smallest(np.exp(-gain), len(beyond))
    return Finding("", p, float(gain), (table.names[d],), numbers)


def _edges_caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"the values of {finding.where} end at {numbers['edge']:.4g}, where the model expects "
        f"{numbers['expected']:.0f} more rows {'above' if numbers['upper'] else 'below'}: the "
        "sample looks cut off, and the answer is that of the remaining rows. Describe the cut with "
        "selection= and fit again; or, if the true values end there by nature, say where by bounds="
    )


EDGES = Check(
    "edges", "simulated rows beyond the outermost real one; about one is usual",
    _edges, _edges_caution,
    "{expected:.1f} beyond, in {where}",
)  # fmt: skip


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


OUTLIERS = Check(
    "outliers", "rows that an even background explains better",
    _outliers,
    "about {share:.1%} of the rows are spread evenly, far from all others: they look like "
    "outliers, and the fit takes them for true values. Find them with `deconflow score` and leave "
    'out what is junk; or fit again with background="uniform"',
    "{share:.1%} of rows",
)  # fmt: skip


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


DEPENDENCE = Check(
    "values and errors", "whether location or spread depend on the size of the error",
    _dependence,
    _dependence_caution, "most in {where}",
)  # fmt: skip
