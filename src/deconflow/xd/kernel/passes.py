r"""One pass over rows: responsibilities, log-likelihood and moments of every component."""

import numpy as np
from numba import types

from deconflow.xd.kernel.codegen import DENSITY, MOMENTS, integer, matrix, vector
from deconflow.xd.kernel.compile import WIDTH, compiled_rows
from deconflow.xd.kernel.vector_math import exp_rows, log_rows

#: Responsibilities below this add nothing to any sum in double precision.
NEGLIGIBLE = 1e-17

stack = types.float64[:, :, ::1]
PASS = types.void(
    types.FunctionType(DENSITY), types.FunctionType(MOMENTS),
    stack, stack, matrix, vector, vector, matrix, matrix, integer, integer, integer, types.boolean,
    matrix, stack, stack, vector, matrix,
)  # fmt: skip


@compiled_rows()
def _responsibilities(
    logq: np.ndarray, top: np.ndarray, total: np.ndarray, scratch: np.ndarray, n: int
) -> None:
    """Turn log joint densities into responsibilities, and ``total`` into ``log sum exp``."""
    total[:n] = 0.0
    for p in range(len(logq)):
        row = logq[p]
        for r in range(n):
            row[r] -= top[r]
        exp_rows(row, scratch, n)
        for r in range(n):
            total[r] += row[r]
    for r in range(n):
        scratch[r] = 1.0 / total[r]
    for p in range(len(logq)):
        row = logq[p]
        for r in range(n):
            share = row[r] * scratch[r]
            row[r] = share if share > NEGLIGIBLE else 0.0
    log_rows(total, scratch, n)
    for r in range(n):
        total[r] += top[r]


@compiled_rows()
def _pick(source: np.ndarray, rows: np.ndarray, count: int, target: np.ndarray) -> None:
    for p in range(len(source)):
        column, picked = source[p], target[p]
        for r in range(count):
            picked[r] = column[rows[r]]


@compiled_rows()
def log_joint(
    density, w, s, log_share, log_a, m, v,  # noqa: ANN001
    start, stop, logq, top, determinant, scratch,  # noqa: ANN001
) -> None:  # fmt: skip
    """Write the log density of the rows ``start:stop`` with every component and noise part.

    ``logq`` is ``(C * J, n)``, the noise's parts innermost; ``top`` gets the largest for each row.
    """
    n_parts, n = len(s), stop - start
    top[:n] = -np.inf
    for p in range(len(logq)):
        k, j = p // n_parts, p % n_parts
        row = logq[p]
        density(w[min(j, len(w) - 1)], s[j], v[k], m[k], start, stop, row, determinant)
        log_rows(determinant, scratch, n)
        base = log_a[k]
        for r in range(n):
            row[r] = base + 0.5 * (determinant[r] - row[r])
        if len(log_share) > 0:
            share = log_share[j, start:stop]
            for r in range(n):
                row[r] += share[r]
        for r in range(n):
            top[r] = max(top[r], row[r])


@compiled_rows(PASS)
def pass_over(
    density, moments, w, s, log_share, omega, log_a, m, v,  # noqa: ANN001
    size, first, last, with_moments, q0, u, g, log_p, q_out,  # noqa: ANN001
) -> None:  # fmt: skip
    """Add up the pieces ``first:last`` of ``size`` rows each; write their log-likelihoods.

    Parameters
    ----------
    density, moments
        Row arithmetic, from :mod:`~deconflow.xd.kernel.codegen` or ``generic``.
    w
        ``(1 or J, M, N)`` values, less the means of the noise's ``J`` parts.
    s
        ``(J, P, N)`` what ``density`` needs to know of each row's noise; ``P`` may be 0.
    log_share
        ``(J, N)`` log weights of the noise's parts, or ``(0, 0)``.
    omega
        ``(N,)`` row weights, or ``(0,)``.
    log_a, m, v
        ``(C,)``, ``(C, D)``, ``(C, T)`` components.
    size
        Rows per piece, a multiple of 256. Each piece has sums of its own.
    first, last
        Which pieces.
    with_moments
        Whether to add to ``u`` and ``g``.
    q0, u, g
        ``(pieces, C)``, ``(pieces, C, D)``, ``(pieces, C, T)`` sums.
    log_p
        ``(N,)`` log-likelihoods.
    q_out
        ``(C, N)`` responsibilities, or ``(0, 0)`` for nobody wants them.
    """
    n_parts, n_components, width = len(s), len(m), WIDTH
    logq = np.empty((n_components * n_parts, width))
    top, total = np.empty(width), np.empty(width)
    scratch = np.empty(width)
    rows, q = np.empty(width, np.int64), np.empty(width)
    few_w, few_s = np.empty((w.shape[1], width)), np.empty((s.shape[1], width))
    for start in range(first * size, min(last * size, len(log_p)), width):
        stop = min(start + width, len(log_p))
        piece = start // size
        n = stop - start
        log_joint(density, w, s, log_share, log_a, m, v, start, stop, logq, top, total, scratch)
        _responsibilities(logq, top, total, scratch, n)
        log_p[start:stop] = total[:n]
        for p in range(len(logq)):
            k, j = p // n_parts, p % n_parts
            row = logq[p]
            if len(q_out) > 0:
                wanted = q_out[k, start:stop]
                for r in range(n):
                    wanted[r] += row[r]
            if not with_moments:
                continue
            if len(omega) > 0:
                row_weights = omega[start:stop]
                for r in range(n):
                    row[r] *= row_weights[r]
            weight = 0.0
            for r in range(n):
                weight += row[r]
            q0[piece, k] += weight
            count = 0
            for r in range(n):
                rows[count] = start + r
                q[count] = row[r]
                count += row[r] > 0.0
            values = w[min(j, len(w) - 1)]
            if count == n:
                moments(values, s[j], v[k], m[k], start, stop, q, u[piece, k], g[piece, k])
            elif count > 0:
                _pick(values, rows, count, few_w)
                _pick(s[j], rows, count, few_s)
                moments(few_w, few_s, v[k], m[k], 0, count, q, u[piece, k], g[piece, k])
