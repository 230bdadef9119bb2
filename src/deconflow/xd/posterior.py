r"""The exact posterior of each row under a mixture: again a mixture.

For component ``k`` and part ``j`` of the noise, with :math:`T = R V_k R^T + S_j = L L^T`,
:math:`B = L^{-1} R V_k` and :math:`y = L^{-1} (w - b_j - R m_k)`,

.. math:: v | w \sim N(m_k + B^T y, \; V_k - B^T B), \quad
          \log \pi_{kj}(w) = \log \pi_k c_j - \tfrac12 |y|^2 - \log |L| + \text{const}.

Posteriors of rows under single components, by loops over rows, components and noise parts.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.mixtures import GaussianMixture, stack
from deconflow.noise import GaussianNoise, Noise, NoiseMixture
from deconflow.observations import Observations, refuse_unreached, rows_counted_from
from deconflow.standardising import Standardiser
from deconflow.xd.expectation import expectation
from deconflow.xd.kernel.draws import factor
from deconflow.xd.kernel.passes import compiled_rows
from deconflow.xd.layout import full_noise, lay_out

#: Mixtures with at most this many components are taken whole.
FEW = 32
#: Components of less weight than this in a row's posterior are left out of it.
NEGLIGIBLE = 1e-15

#: Arrays of the size of all means and covariances that a question about mixtures may make.
ARRAYS = 4


def posterior(
    mixture: GaussianMixture, data: Observations, most: int | None = None
) -> GaussianMixture:
    """Return the posterior of every row, as one batch.

    ``most`` keeps only so many of the heaviest components per row, as a proposal does: memory
    then does not depend on how many the mixture has, or the noise law is made of.
    """
    every = np.broadcast_to(np.arange(mixture.n_components), (len(data), mixture.n_components))
    pieces = _in_pieces(mixture, data, _law(data.noise), np.arange(len(data)), every)
    return stack([part if most is None else part.heaviest(most) for _, part in pieces])


def posterior_pieces(
    mixture: GaussianMixture,
    data: Observations,
    threads: int | None = None,
    numbers: int = 0,
) -> Iterator[tuple[IntArray, GaussianMixture]]:
    """Walk through the posteriors of all rows, in pieces of bounded memory.

    Each piece has the rows' numbers, not in order, and their mixtures. Of a large mixture a row
    gets only the components that matter to it, so that an average of hundreds stays cheap; they
    are found with so many threads, None for one per processor. ``numbers`` are those that the
    caller makes of each row, beside its mixture.
    """
    law = _law(data.noise)
    for block in row_slices(len(data), 2 * mixture.n_components + 8 * data.dim):
        rows = np.arange(block.start, block.stop)
        for some, chosen in _relevant(mixture, data, rows, threads):
            yield from _in_pieces(mixture, data, law, some, chosen, numbers)


def _law(noise: Noise) -> NoiseMixture | None:
    """Return the noise of all rows as mixtures; None if Gaussian, and known piece by piece."""
    return None if isinstance(noise, GaussianNoise) else noise.as_mixture()


def _relevant(
    mixture: GaussianMixture, data: Observations, rows: IntArray, threads: int | None
) -> Iterator[tuple[IntArray, IntArray]]:
    """Group rows by how many components matter to them; give the numbers of these."""
    K = mixture.n_components
    every = np.broadcast_to(np.arange(K), (len(rows), K))
    if K <= FEW:
        yield rows, every
        return
    units = Standardiser.of_mixture(mixture, data)
    standard = units.mixture_to_standard(mixture)
    with rows_counted_from(int(rows[0])):
        laid_out = lay_out(data[rows], units)
    sums = expectation(standard, laid_out, moments=False, responsibilities=True, threads=threads)
    q = sums.responsibilities
    counts = (q > NEGLIGIBLE).sum(1)
    sizes = np.minimum(2 ** np.ceil(np.log2(np.maximum(counts, 8))), K)
    for size in np.unique(sizes).astype(int):
        some = np.flatnonzero(sizes == size)
        heavy = np.argpartition(-q[some], size - 1, axis=1)[:, :size]
        yield rows[some], heavy if size < K else every[some]


def _in_pieces(
    mixture: GaussianMixture,
    data: Observations,
    law: NoiseMixture | None,
    rows: IntArray,
    chosen: IntArray,
    numbers: int = 0,
) -> Iterator[tuple[IntArray, GaussianMixture]]:
    """Compute the posteriors of rows under those components that each has chosen."""
    gaussians = chosen.shape[1] * (1 if law is None else law.n_parts)
    numbers += ARRAYS * gaussians * (max(data.dim, data.latent_dim) + 2) ** 2
    with np.errstate(divide="ignore"):
        components = np.log(mixture.weights), mixture.means, mixture.covariances
    for some in row_slices(len(rows), numbers):
        piece = rows[some]
        part = data[piece]
        parts = part.noise.as_mixture().take() if law is None else law.take(piece)
        count = parts.weights.shape[1]
        shifts = np.zeros((1, count, data.dim)) if parts.means is None else parts.means
        with np.errstate(divide="ignore"):
            log_shares = np.log(parts.weights)
        seen = np.ones((1, data.dim), bool) if part.observed is None else np.asarray(part.observed)
        shape = (len(piece), chosen.shape[1] * count)
        log_p, means = np.empty(shape), np.empty((*shape, mixture.dim))
        covariances = np.empty((*shape, mixture.dim, mixture.dim))
        condition_rows(
            *_plain(part.w), np.ascontiguousarray(seen), *_plain(part.projections()),
            part.projection is not None or part.observed is not None,
            *_plain(log_shares, shifts, full_noise(parts, seen), *components),
            np.ascontiguousarray(chosen[some]), log_p, means, covariances,
        )  # fmt: skip
        if np.isnan(means).any():
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        total = logsumexp(log_p, axis=1, keepdims=True)
        for row in piece[np.isneginf(total[:, 0])]:
            refuse_unreached(np.ones(1, bool), int(row))
        yield piece, GaussianMixture(np.exp(log_p - total), means, covariances)


def _plain(*arrays: Array) -> Iterator[Array]:
    """Contiguous and writable, so that the kernel is compiled once."""
    return (np.require(each, np.float64, ["C", "W"]) for each in arrays)


#: Share of a variance below which a difference has lost half of its digits.
LOST = 1e-8


@compiled_rows
def _without_cancelling(
    V: np.ndarray, R: np.ndarray, S: np.ndarray, L: np.ndarray, B: np.ndarray, answer: np.ndarray
) -> None:  # fmt: skip
    """``A V A' + K S K'`` with ``A = I - K R`` and ``K = B' L^-1``: a sum, never negative."""
    transposed = np.linalg.solve(np.ascontiguousarray(np.tril(L).T), B)
    K = np.ascontiguousarray(transposed.T)
    A = np.eye(B.shape[1]) - K @ R
    total = A @ V @ np.ascontiguousarray(A.T) + K @ S @ transposed
    answer[:] = 0.5 * (total + total.T)


@compiled_rows
def condition_rows(
    w: np.ndarray, seen: np.ndarray, R: np.ndarray, projected: bool,
    log_c: np.ndarray, b: np.ndarray, S: np.ndarray,
    log_pi: np.ndarray, m: np.ndarray, V: np.ndarray, chosen: np.ndarray,
    log_p: np.ndarray, means: np.ndarray, covariances: np.ndarray,
) -> None:  # fmt: skip
    """Fill the last three arrays; see :mod:`deconflow.xd.posterior` for the formula.

    Arrays of what rows share have one row instead of ``n``. A covariance that is not positive
    leaves NaN behind.
    """
    n, size = w.shape
    parts, dim = b.shape[1], m.shape[1]
    L, B, y = np.empty((size, size)), np.empty((size, dim)), np.empty(size)
    for i in range(n):
        own_R, own_S = R[i % len(R)], S[i % len(S)]
        own_b, own_c = b[i % len(b)], log_c[i % len(log_c)]
        for c in range(chosen.shape[1]):
            k = chosen[i, c]
            for j in range(parts):
                for a in range(size):
                    y[a] = w[i, a] - own_b[j, a]
                    for d in range(dim):
                        B[a, d] = V[k, a, d] if not projected else 0.0
                        if projected:
                            y[a] -= own_R[a, d] * m[k, d]
                            for e in range(dim):
                                B[a, d] += own_R[a, e] * V[k, e, d]
                    if not projected:
                        y[a] -= m[k, a]
                    if not seen[i % len(seen), a]:
                        y[a] = 0.0
                    for e in range(a + 1):  # T = R V R' + S, its lower half
                        L[a, e] = own_S[j, a, e]
                        if not projected:
                            L[a, e] += V[k, a, e]
                        else:
                            for d in range(dim):
                                L[a, e] += B[a, d] * own_R[e, d]
                place = c * parts + j
                log_p[i, place] = log_pi[k] + own_c[j]
                if not factor(L, 0.0):
                    L[:] = np.nan
                for a in range(size):  # whiten B and y
                    for f in range(a):
                        y[a] -= L[a, f] * y[f]
                        for d in range(dim):
                            B[a, d] -= L[a, f] * B[f, d]
                    y[a] /= L[a, a]
                    for d in range(dim):
                        B[a, d] /= L[a, a]
                    log_p[i, place] -= 0.5 * y[a] * y[a] + np.log(L[a, a])
                for d in range(dim):
                    means[i, place, d] = m[k, d]
                    for a in range(size):
                        means[i, place, d] += B[a, d] * y[a]
                    for e in range(d + 1):
                        total = V[k, d, e]
                        for a in range(size):
                            total -= B[a, d] * B[a, e]
                        covariances[i, place, d, e] = covariances[i, place, e, d] = total
                for d in range(dim):
                    if covariances[i, place, d, d] < LOST * V[k, d, d]:
                        answer = covariances[i, place]
                        _without_cancelling(V[k], own_R, own_S[j], L, B, answer)
                        break
