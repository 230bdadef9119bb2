r"""The exact posterior of each row under a mixture: again a mixture.

For component ``k`` and part ``j`` of the noise, with :math:`T = R V_k R^T + S_j = L L^T`,
:math:`B = L^{-1} R V_k` and :math:`y = L^{-1} (w - b_j - R m_k)`,

.. math:: v | w \sim N(m_k + B^T y, \; V_k - B^T B), \quad
          \log \pi_{kj}(w) = \log \pi_k c_j - \tfrac12 |y|^2 - \log |L| + \text{const}.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture, stack
from deconflow.noise import JointMixture, NoiseMixture
from deconflow.observations import Observations
from deconflow.xd.expectation import expectation
from deconflow.xd.layout import lay_out

Rows = NDArray[np.int64]

FEW = 32
"""Mixtures with at most this many components are taken whole."""
NEGLIGIBLE = 1e-15
"""Components of less weight than this in a row's posterior are left out of it."""


def posterior(
    mixture: GaussianMixture, data: Observations, most: int | None = None
) -> GaussianMixture:
    """Return the posterior of every row, as one batch.

    ``most`` keeps only so many of the heaviest components per row, as a proposal does: memory
    then does not depend on how many the mixture has, or the noise law is made of.
    """
    pieces = _in_pieces(mixture, data, data.noise.as_mixture(), np.arange(len(data)), None)
    return stack([part if most is None else part.heaviest(most) for _, part in pieces])


def posterior_pieces(
    mixture: GaussianMixture, data: Observations
) -> Iterator[tuple[Rows, GaussianMixture]]:
    """Walk through the posteriors of all rows, in pieces of bounded memory.

    Each piece has the rows' numbers, not in order, and their mixtures. Of a large mixture a row
    gets only the components that matter to it, so that an average of hundreds stays cheap.
    """
    parts = data.noise.as_mixture()
    for rows in _blocks(len(data), mixture.n_components):
        for some, chosen in _relevant(mixture, data, rows):
            yield from _in_pieces(mixture, data, parts, some, chosen)


def _blocks(n_rows: int, numbers: int) -> Iterator[Rows]:
    step = rows_at_once(numbers)
    for start in range(0, n_rows, step):
        yield np.arange(start, min(start + step, n_rows))


def _relevant(
    mixture: GaussianMixture, data: Observations, rows: Rows
) -> Iterator[tuple[Rows, NDArray[np.int64] | None]]:
    """Group rows by how many components matter to them; give the numbers of these, or None."""
    if mixture.n_components <= FEW:
        yield rows, None
        return
    laid_out = lay_out(data[rows])
    sums = expectation(
        laid_out.units.mixture_to_standard(mixture), laid_out, moments=False, responsibilities=True
    )
    assert sums.responsibilities is not None
    counts = (sums.responsibilities > NEGLIGIBLE).sum(1)
    sizes = np.minimum(2 ** np.ceil(np.log2(np.maximum(counts, 8))), mixture.n_components)
    for size in np.unique(sizes).astype(int):
        some = np.flatnonzero(sizes == size)
        if size == mixture.n_components:
            yield rows[some], None
            continue
        heavy = np.argpartition(-sums.responsibilities[some], size - 1, axis=1)[:, :size]
        yield rows[some], heavy


def _in_pieces(
    mixture: GaussianMixture,
    data: Observations,
    parts: NoiseMixture,
    rows: Rows,
    chosen: NDArray[np.int64] | None,
) -> Iterator[tuple[Rows, GaussianMixture]]:
    count = mixture.n_components if chosen is None else chosen.shape[1]
    numbers = count * parts.n_parts * max(data.dim, data.latent_dim) ** 2
    for some in _blocks(len(rows), numbers):
        own = mixture if chosen is None else _gathered(mixture, chosen[some])
        piece = rows[some]
        yield piece, _posterior(own, data[piece], parts.take(piece))


def _gathered(mixture: GaussianMixture, chosen: NDArray[np.int64]) -> GaussianMixture:
    return GaussianMixture(
        mixture.weights[chosen], mixture.means[chosen], mixture.covariances[chosen]
    )


def _posterior(
    mixture: GaussianMixture, data: Observations, parts: JointMixture
) -> GaussianMixture:
    """Compute the posterior of some rows; the mixture is common to them, or one per row."""
    n, size = data.w.shape
    noise = parts.covariances
    noise = noise[..., None] * np.eye(size) if parts.diagonal else noise
    if data.observed is not None:
        seen = data.observed.numpy()
        both = seen[:, None, :, None] & seen[:, None, None, :]
        noise = np.where(both, noise, np.eye(size))
    means, covariances = mixture.means, mixture.covariances
    if not mixture.batch_shape:
        means, covariances = means[None], covariances[None]
    R = data.projections().numpy()
    RV = R[:, None] @ covariances  # (n or 1, K, M, D)
    T = (RV @ np.swapaxes(R, 1, 2)[:, None])[:, :, None] + noise[:, None]  # (n or 1, K, J, M, M)
    shift = np.zeros((1, 1, size)) if parts.means is None else parts.means
    centre = (R[:, None] @ means[..., None])[..., 0][:, :, None] + shift[:, None]
    offset = data.w.numpy()[:, None, None] - centre  # (n, K, J, M)
    if data.observed is not None:
        offset = np.where(data.observed.numpy()[:, None, None], offset, 0.0)
    L = np.linalg.cholesky(T)
    whitener = np.linalg.inv(L)  # once for all rows that share their noise
    B, y = whitener @ RV[:, :, None], whitener @ offset[..., None]
    Bt = np.swapaxes(B, -1, -2)
    left = covariances[:, :, None] - Bt @ B
    return _flattened(
        n,
        _weights(mixture, parts, L, y[..., 0]),
        means[:, :, None] + (Bt @ y)[..., 0],
        0.5 * (left + np.swapaxes(left, -1, -2)),
    )


def _weights(mixture: GaussianMixture, parts: JointMixture, L: Array, y: Array) -> Array:
    log_det = np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(-1)
    log_p = -0.5 * np.square(y).sum(-1) - log_det
    weights = mixture.weights if mixture.batch_shape else mixture.weights[None]
    with np.errstate(divide="ignore"):
        log_p = log_p + np.log(weights)[:, :, None] + np.log(parts.weights)[:, None]
    return np.exp(log_p - logsumexp(log_p, axis=(1, 2), keepdims=True))


def _flattened(n: int, weights: Array, means: Array, covariances: Array) -> GaussianMixture:
    """Put components and parts of the noise into one axis; what is common to rows is a view."""
    shape = (n, weights.shape[1] * weights.shape[2])

    def flat(values: Array) -> Array:
        joined = values.reshape(len(values), shape[1], *values.shape[3:])
        return np.broadcast_to(joined, (n, *joined.shape[1:]))

    return GaussianMixture(flat(weights), flat(means), flat(covariances))
