r"""Rows of another kind: spread out evenly, where the others have left nothing.

A few rows far out make a mixture spend a component on them that is far wider than all the others
together. Such components are exchanged for an even background over the range of the data,

.. math:: p(w) = (1 - \epsilon) \, p_{\text{rest}}(w) + \epsilon / \text{volume},

which has fewer parameters. Where that is more likely all the same, the rows are outliers rather
than the tail of the truth; by chance a likelihood is ``c`` times as large with probability
``1 / c`` at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.findings import Finding
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.trust.table import FLOOR, Table
from deconflow.xd import Constraints, FitSettings, PreparedData, Stopping, em, expectation

LARGEST_SHARE, MUCH_WIDER = 0.1, 1.5
"""Components of outliers have at most this share, and are so many times as wide as all others."""
ROUNDS, STEPS = 20, 3


def outliers(table: Table) -> Finding:
    """Look whether an even background explains rows far out better than a wide component."""
    if table.data.observed is not None or table.data.projection is not None:
        return Finding("outliers", reason="incomplete")
    if not np.ptp(table.data.w.numpy(), axis=0).all():
        return Finding("outliers", reason="constant")
    sets = list(wide_components(table.mixture))
    gain, share = exchanged(table, sets) if sets else (0.0, 0.0)
    p = float(np.exp(-max(gain, 0.0)))
    return Finding("outliers", p, max(gain, 0.0), numbers={"share": share})


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


def exchanged(table: Table, sets: list[NDArray[np.int64]]) -> tuple[float, float]:
    """Return what a background gains in log-likelihood over components, and its share.

    Of several sets of components that it may take the place of, it has the best.
    """
    prepared = PreparedData(table.data)
    whole = _fitted(prepared, table.mixture)
    before = expectation(whole, prepared.rows, moments=False).log_p
    found = []
    for wide in sets:
        log_p, share = _with_background(table, prepared, wide)
        found.append((float(table.weights @ (log_p - before)), share))
    return max(found)


def _with_background(
    table: Table, prepared: PreparedData, wide: NDArray[np.int64]
) -> tuple[Array, float]:
    """Fit the other components and a background; return ``log p(w)`` and the background's share."""
    rest = np.setdiff1d(np.arange(table.mixture.n_components), wide)
    share = float(table.mixture.weights[wide].sum())
    mixture = prepared.rows.units.mixture_to_standard(_only(table.mixture, rest))
    constraints = FitSettings(len(rest), floor=FLOOR).constraints(prepared)
    log_even = -_log_volume(table.data)
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


def _log_volume(data: Observations) -> float:
    """Log volume of the box of all rows, a little wider than these."""
    w = data.w.double().numpy()
    spread = np.ptp(w, axis=0)
    return float(np.log(spread * (1 + 2 / len(w))).sum())
