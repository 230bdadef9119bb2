r"""Outliers: rows spread out evenly, far from all others.

A few rows far out make a mixture spend a component on them that is far wider than all the others
together. Such components are exchanged for an even background over the range of the data,

.. math:: p(w) = (1 - \epsilon) \, p_{\text{rest}}(w) + \epsilon / \text{volume},

which has fewer parameters. Where that is more likely all the same, the rows are outliers rather
than a tail; by chance a likelihood is ``c`` times as large with probability
``1 / c`` at most.
"""

from collections.abc import Iterator

import numpy as np
from scipy.stats import multivariate_t

from deconflow._types import Array, IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.trust.check import CONSTANT, FLOOR, Case, Check, Finding, Table
from deconflow.xd import (
    FitSettings,
    PreparedData,
    Stopping,
    em,
    expectation,
    made_feasible,
    refit_with_known_parts,
)

#: Components of outliers have at most this share, and are so many times as wide as all others.
LARGEST_SHARE, MUCH_WIDER = 0.1, 1.5
#: Of the tails that outliers are told from.
TAIL_DEGREES = 2.0


def _test(case: Case) -> Finding:
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
        bulk = _only(table.mixture, rest)
        fit = refit_with_known_parts(table.data, even, bulk, share)
        tail = refit_with_known_parts(table.data, _falling(table, bulk), bulk, share)
        yield fit.log_likelihood - max(before, tail.log_likelihood), float(fit.shares[0])


def _falling(table: Table, bulk: GaussianMixture) -> Array:
    """Log density ``(1, N)`` of Student's t about the other rows: tails that truths may have."""
    shape = bulk.covariance + np.eye(bulk.dim) * 1e-12
    law = multivariate_t(bulk.mean, shape, TAIL_DEGREES)
    return np.asarray(law.logpdf(table.data.measured())).reshape(1, -1)


def _without_background(table: Table) -> float:
    """Log-likelihood after as many steps of EM as with a background."""
    prepared, stopping = PreparedData(table.data), Stopping(tol=1e-6, max_iter=60, accelerate=True)
    constraints = FitSettings(table.mixture.n_components, floor=FLOOR).constraints(prepared)
    start = made_feasible(prepared.rows.units.mixture_to_standard(table.mixture), constraints)
    fitted = em(start, prepared.rows, constraints, stopping).mixture
    return float(table.weights @ expectation(fitted, prepared.rows, moments=False).log_p)


def _only(mixture: GaussianMixture, kept: IntArray) -> GaussianMixture:
    weights = mixture.weights[kept]
    return GaussianMixture(weights / weights.sum(), mixture.means[kept], mixture.covariances[kept])


CHECK = Check(
    "outliers", "rows that an even background explains better", _test,
    "about {share:.1%} of the rows are spread evenly, far from all others: they look like "
    "outliers, and the fit takes them for true values. Find them with `deconflow score` and leave "
    'out what is junk; or fit again with background="uniform"',
    "{share:.1%} of rows",
)  # fmt: skip
