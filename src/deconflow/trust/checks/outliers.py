r"""Outliers: rows spread out evenly, far from all others.

A few rows far out make a mixture spend a component on them that is far wider than all the others
together. Such components are exchanged for an even background over the range of the data,

.. math:: p(w) = (1 - \epsilon) \, p_{\text{rest}}(w) + \epsilon / \text{volume},

which has fewer parameters. Where that is more likely all the same, the rows are outliers rather
than a tail; by chance a likelihood is ``c`` times as large with probability
``1 / c`` at most.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.trust.check import CONSTANT, FLOOR, Case, Check, Finding, Table
from deconflow.xd import Constraints, FitSettings, PreparedData, Stopping, em, expectation

LARGEST_SHARE, MUCH_WIDER = 0.1, 1.5
"""Components of outliers have at most this share, and are so many times as wide as all others."""
ROUNDS, STEPS = 20, 3


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


def wide_components(mixture: GaussianMixture) -> Iterator[NDArray[np.int64]]:
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
    prepared = PreparedData(table.data)
    before = None
    for wide in wide_components(table.mixture):
        if before is None:
            whole = _fitted(prepared, table.mixture)
            before = expectation(whole, prepared.rows, moments=False).log_p
        log_p, share = _with_background(table, prepared, wide)
        yield float(table.weights @ (log_p - before)), share


def _with_background(
    table: Table, prepared: PreparedData, wide: NDArray[np.int64]
) -> tuple[Array, float]:
    """Fit the other components and a background; return ``log p(w)`` and the background's share."""
    rest = np.setdiff1d(np.arange(table.mixture.n_components), wide)
    share = float(table.mixture.weights[wide].sum())
    mixture = prepared.rows.units.mixture_to_standard(_only(table.mixture, rest))
    constraints = FitSettings(len(rest), floor=FLOOR).constraints(prepared)
    spread = np.ptp(table.data.measured(), axis=0) * (1 + 2 / len(table.data))
    log_even = -float(np.log(spread).sum())
    for _ in range(ROUNDS):
        _, from_rest = _responsibilities(prepared, mixture, share, log_even)
        share = float(np.clip(1 - np.average(from_rest, weights=table.weights), 1e-9, 1 - 1e-9))
        mixture = _weighed_steps(prepared, mixture, constraints, from_rest)
    return _responsibilities(prepared, mixture, share, log_even)[0], share


def _responsibilities(
    prepared: PreparedData, mixture: GaussianMixture, share: float, log_even: float
) -> tuple[Array, Array]:
    """Return ``log p(w)`` with a background, and the probability that a row is none of it."""
    log_rest = np.log1p(-share) + expectation(mixture, prepared.rows, moments=False).log_p
    log_p = np.logaddexp(log_rest, np.log(share) + log_even)
    return log_p, np.exp(log_rest - log_p)


def _fitted(prepared: PreparedData, mixture: GaussianMixture) -> GaussianMixture:
    """Let EM go on for as many steps as the other fit has, in the units of the rows."""
    constraints = FitSettings(mixture.n_components, floor=FLOOR).constraints(prepared)
    stopping = Stopping(tol=1e-6, max_iter=ROUNDS * STEPS, accelerate=True)
    return em(prepared.begin(mixture, constraints), prepared.rows, constraints, stopping).mixture


def _weighed_steps(
    prepared: PreparedData, mixture: GaussianMixture, constraints: Constraints, weights: Array
) -> GaussianMixture:
    rows = prepared.rows
    if rows.weights is not None:
        weights = weights * rows.weights
    blocks = []
    for block in rows.blocks:
        mine = weights if block.index is None else weights[block.index]
        blocks.append(replace(block, omega=np.ascontiguousarray(mine)))
    stopping = Stopping(tol=1e-9, max_iter=STEPS, accelerate=True)
    return em(mixture, replace(rows, blocks=blocks, weights=weights), constraints, stopping).mixture


def _only(mixture: GaussianMixture, kept: NDArray[np.int64]) -> GaussianMixture:
    weights = mixture.weights[kept]
    return GaussianMixture(weights / weights.sum(), mixture.means[kept], mixture.covariances[kept])


def _caution(finding: Finding) -> str:
    return (
        f"about {finding.numbers['share']:.1%} of the rows are spread evenly, far from all others: "
        "they look like outliers, and the fit takes them for true values. Find them with "
        "`deconflow score` and leave out what is junk; or fit again with "
        'background="uniform"'
    )


CHECK = Check(
    "outliers", "rows that an even background explains better", _test, _caution,
    lambda f: f"{f.numbers['share']:.1%} of rows",
)  # fmt: skip
