"""Posteriors of rows under single components, by loops over rows, components and noise parts."""

import numpy as np

from deconflow.xd.kernel.compile import compiled_rows

#: Share of a variance below which a difference has lost half of its digits.
LOST = 1e-8


@compiled_rows()
def _without_cancelling(
    V: np.ndarray, R: np.ndarray, S: np.ndarray, L: np.ndarray, B: np.ndarray, answer: np.ndarray
) -> None:  # fmt: skip
    """``A V A' + K S K'`` with ``A = I - K R`` and ``K = B' L^-1``: a sum, never negative."""
    transposed = np.linalg.solve(np.ascontiguousarray(np.tril(L).T), B)
    K = np.ascontiguousarray(transposed.T)
    A = np.eye(B.shape[1]) - K @ R
    total = A @ V @ np.ascontiguousarray(A.T) + K @ S @ transposed
    answer[:] = 0.5 * (total + total.T)


@compiled_rows()
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
                    for d in range(dim):
                        B[a, d] = V[k, a, d] if not projected else 0.0
                        if projected:
                            for e in range(dim):
                                B[a, d] += own_R[a, e] * V[k, e, d]
                    y[a] = w[i, a] - own_b[j, a]
                    if projected:
                        for d in range(dim):
                            y[a] -= own_R[a, d] * m[k, d]
                    else:
                        y[a] -= m[k, a]
                    if not seen[i % len(seen), a]:
                        y[a] = 0.0
                    for e in range(a + 1):  # T = R V R' + S, its lower half
                        total = own_S[j, a, e]
                        if projected:
                            for d in range(dim):
                                total += B[a, d] * own_R[e, d]
                        else:
                            total += V[k, a, e]
                        L[a, e] = total
                log_det, square = 0.0, 0.0
                for a in range(size):  # factor T, and whiten B and y on the way
                    for e in range(a):
                        total = L[a, e]
                        for f in range(e):
                            total -= L[a, f] * L[e, f]
                        L[a, e] = total / L[e, e]
                    pivot = L[a, a]
                    for f in range(a):
                        pivot -= L[a, f] * L[a, f]
                    pivot = np.sqrt(pivot) if pivot > 0 else np.nan
                    L[a, a] = pivot
                    log_det += np.log(pivot)
                    for f in range(a):
                        y[a] -= L[a, f] * y[f]
                        for d in range(dim):
                            B[a, d] -= L[a, f] * B[f, d]
                    y[a] /= pivot
                    square += y[a] * y[a]
                    for d in range(dim):
                        B[a, d] /= pivot
                place = c * parts + j
                log_p[i, place] = log_pi[k] + own_c[j] - 0.5 * square - log_det
                for d in range(dim):
                    total = m[k, d]
                    for a in range(size):
                        total += B[a, d] * y[a]
                    means[i, place, d] = total
                    for e in range(d + 1):
                        total = V[k, d, e]
                        for a in range(size):
                            total -= B[a, d] * B[a, e]
                        covariances[i, place, d, e] = total
                        covariances[i, place, e, d] = total
                for d in range(dim):
                    if covariances[i, place, d, d] < LOST * V[k, d, d]:
                        answer = covariances[i, place]
                        _without_cancelling(V[k], own_R, own_S[j], L, B, answer)
                        break
