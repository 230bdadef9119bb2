r"""Draws for Gibbs sampling: a component and a noise part for every row, then its true value.

The component is drawn with the true value integrated out, from the same densities that EM uses;
the true value only under the component that was drawn. With :math:`T = R (U + F) R^T + S`
Matheron's rule makes a draw from the posterior of draws from the prior,

.. math:: x = x_0 + U R^T T^{-1} (w - R (x_0 + e_0) - n_0), \quad
          x_0 \sim N(\mu, U), \; e_0 \sim N(0, F), \; n_0 \sim N(0, S),

without any conditional covariance.

Draws of components from normal-inverse-Wishart laws, all in one compiled call.

With :math:`n` rows of mean :math:`\bar x` and scatter :math:`A` about it,

.. math:: U \sim IW(\nu + n, \; s \Psi + A + \tfrac{\kappa n}{\kappa + n}
          (\bar x - m_0)(\bar x - m_0)^T), \quad
          \mu \sim N(\tfrac{\kappa m_0 + n \bar x}{\kappa + n}, \tfrac{U}{\kappa + n}).

A component without rows is drawn from the prior. By Bartlett, :math:`U = B B^T` with
:math:`B = L A^{-T}`, where :math:`L` is the Cholesky factor of the scale and :math:`A` lower
triangular, with roots of chi-squares on the diagonal and normal numbers below.
"""

import numpy as np

from deconflow.xd.kernel.passes import (
    WIDTH,
    compiled_rows,
    exp_rows,
    log_joint,
    log_rows,
)

#: Share of a variance below which what is left of it is rounding.
SINGULAR = 1e-14
#: In place of a variance that is lost altogether.
TINY = 2.3e-308


@compiled_rows
def choose_rows(density, w, s, log_share, log_a, m, v, uniform, chosen, log_p) -> None:  # noqa: ANN001
    """Draw a component and noise part for each row, and write its log-likelihood.

    Parameters are those of :func:`~deconflow.xd.kernel.passes.pass_over`; ``uniform`` has a number
    per row, ``chosen`` gets ``component * J + part``.
    """
    width = WIDTH
    logq = np.empty((len(m) * len(s), width))
    top, total, scratch = np.empty(width), np.empty(width), np.empty(width)
    for start in range(0, len(uniform), width):
        stop = min(start + width, len(uniform))
        n = stop - start
        log_joint(density, w, s, log_share, log_a, m, v, start, stop, logq, top, total, scratch)
        total[:n] = 0.0
        for p in range(len(logq)):  # becomes the cumulative sum
            row = logq[p]
            for r in range(n):
                row[r] -= top[r]
            exp_rows(row, scratch, n)
            for r in range(n):
                total[r] += row[r]
                row[r] = total[r]
        found = chosen[start:stop]
        found[:] = 0
        scratch[:n] = uniform[start:stop] * total[:n]
        for p in range(len(logq) - 1):
            row = logq[p]
            for r in range(n):
                found[r] += 1 if row[r] <= scratch[r] else 0
        log_rows(total, scratch, n)
        log_p[start:stop] = total[:n] + top[:n]


@compiled_rows
def _add(
    dx: np.ndarray, weight: float, k: int,
    count: np.ndarray, first: np.ndarray, second: np.ndarray,
) -> None:  # fmt: skip
    """Add one row's ``x - mu`` to the sums of its component; the lower half of the squares."""
    count[k] += weight
    for d in range(len(dx)):
        first[k, d] += weight * dx[d]
        for e in range(d + 1):
            second[k, d, e] += weight * dx[d] * dx[e]


@compiled_rows
def draw_shared(
    rng: np.random.Generator, w: np.ndarray, chosen: np.ndarray, n_parts: int, omega: np.ndarray,
    m: np.ndarray, gain: np.ndarray, root: np.ndarray,
    count: np.ndarray, first: np.ndarray, second: np.ndarray,
) -> None:  # fmt: skip
    """Draw true values under noise that all rows share, and add them up.

    Parameters
    ----------
    w, omega
        As for :func:`~deconflow.xd.kernel.passes.pass_over`.
    chosen, n_parts
        ``component * n_parts + part`` of each row.
    m, gain, root
        For each component and part: the mean ``(M,)`` of ``w``, ``U R' T^-1``, and a lower
        triangular root of the conditional covariance.
    count, first, second
        Sums of ``x - mu``, to be added to.
    """
    size, dim = m.shape[1], root.shape[1]
    y, dx, z = np.empty(size), np.empty(dim), np.empty(dim)
    for r in range(len(chosen)):
        p = chosen[r]
        for i in range(size):
            y[i] = w[0, i, r] - m[p, i]
        for d in range(dim):
            z[d] = rng.standard_normal()
            total = 0.0
            for i in range(size):
                total += gain[p, d, i] * y[i]
            for e in range(d + 1):
                total += root[p, d, e] * z[e]
            dx[d] = total
        _add(dx, omega[r] if len(omega) > 0 else 1.0, p // n_parts, count, first, second)


@compiled_rows
def factor(a: np.ndarray, thinnest: float) -> bool:
    """Turn the lower half of a matrix into its Cholesky factor; False if it has none.

    Of a variance at least the share ``thinnest`` is left when other columns are known.
    """
    regular = True
    for i in range(len(a)):
        for j in range(i):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            a[i, j] = total / a[j, j]
        pivot, least = a[i, i], thinnest * a[i, i]
        for k in range(i):
            pivot -= a[i, k] * a[i, k]
        regular = regular and pivot > least
        a[i, i] = np.sqrt(max(pivot, least, TINY))
    return regular


@compiled_rows
def draw_rows(
    rng: np.random.Generator, w: np.ndarray, s: np.ndarray, projection: np.ndarray,
    chosen: np.ndarray, omega: np.ndarray, mu: np.ndarray, root: np.ndarray,
    floor_root: np.ndarray, cover: np.ndarray, across: np.ndarray,
    count: np.ndarray, first: np.ndarray, second: np.ndarray,
) -> bool:  # fmt: skip
    """Draw true values under noise that differs by row, and add them up; False on failure.

    Parameters
    ----------
    w, s, omega
        As for :func:`~deconflow.xd.kernel.passes.pass_over`.
    projection
        ``(M, D)`` of all rows, or zeros where each has its own in ``s``.
    chosen
        ``component * J + part`` of each row.
    mu, root
        Components ``(K, D)``, ``(K, D, D)``, with ``U = root root'``.
    floor_root
        A lower triangular root of ``F`` ``(D, D)``.
    cover, across
        ``R (U + F) R'`` and ``U R'`` of each component, but ``U + F`` and ``U`` where each row has
        its own projection.
    count, first, second
        Sums of ``x - mu``, to be added to.
    """
    n_parts, size, dim = len(s), w.shape[1], mu.shape[1]
    packed, R = size * (size + 1) // 2, projection.copy()
    diagonal, projected = s.shape[1] < packed, s.shape[1] > packed
    S, T, B = np.zeros((size, size)), np.zeros((size, size)), np.empty(dim)
    x, v, y = np.empty(dim), np.empty(dim), np.empty(size)
    z = np.empty(2 * dim + size)
    fine = True
    for r in range(len(chosen)):
        for i in range(len(z)):
            z[i] = rng.standard_normal()
        k, j = chosen[r] // n_parts, chosen[r] % n_parts
        if projected:
            for i in range(size):
                for d in range(dim):
                    R[i, d] = s[j, packed + i * dim + d, r]
        for d in range(dim):
            start, shift = 0.0, mu[k, d]
            for e in range(dim):
                start += root[k, d, e] * z[e]
            for e in range(d + 1):
                shift += floor_root[d, e] * z[dim + e]
            x[d], v[d] = start, start + shift  # x0 less mu, and mu + x0 + e0
        at = 0
        for i in range(size):
            total = w[min(j, len(w) - 1), i, r]
            for d in range(dim):
                total -= R[i, d] * v[d]
            y[i] = total
            if projected:
                for d in range(dim):
                    B[d] = 0.0
                    for e in range(dim):
                        B[d] += cover[k, d, e] * R[i, e]
            for a in range(i + 1):  # T = R (U + F) R' + S
                if not diagonal:
                    S[i, a] = s[j, at, r]
                    at += 1
                elif a == i:
                    S[i, a] = s[j, i, r]
                if not projected:
                    T[i, a] = S[i, a] + cover[k, i, a]
                    continue
                T[i, a] = S[i, a]
                for d in range(dim):
                    T[i, a] += B[d] * R[a, d]
        if not diagonal:
            factor(S, SINGULAR)
        else:
            for i in range(size):
                S[i, i] = np.sqrt(S[i, i])
        fine = factor(T, SINGULAR) and fine
        for i in range(size):
            for a in range(i + 1):  # w - R (x0 + e0) - n0
                y[i] -= S[i, a] * z[2 * dim + a]
            for a in range(i):
                y[i] -= T[i, a] * y[a]
            y[i] /= T[i, i]
        for i in range(size - 1, -1, -1):
            for a in range(i + 1, size):
                y[i] -= T[a, i] * y[a]
            y[i] /= T[i, i]
        if projected:
            for d in range(dim):
                v[d] = 0.0
                for i in range(size):
                    v[d] += R[i, d] * y[i]
        pull = v if projected else y
        for d in range(dim):
            for i in range(len(pull)):
                x[d] += across[k, d, i] * pull[i]
        _add(x, omega[r] if len(omega) > 0 else 1.0, k, count, first, second)
    return fine


#: Least share of a variance that is left when other columns are known: what is thinner than this
#: no other part of a sweep could factor.
THINNEST = 1e-11
#: Roots of chi-squares stay above this, for a prior of few degrees of freedom has no mean: no
#: component is drawn more than a hundred times as wide as its scale.
SMALLEST_CHI = 0.01


@compiled_rows
def draw_components(
    which: np.ndarray, count: np.ndarray, first: np.ndarray, second: np.ndarray,
    m0: np.ndarray, kappa: float, psi: np.ndarray, scales: np.ndarray,
    chi: np.ndarray, z: np.ndarray, mu: np.ndarray, U: np.ndarray, root: np.ndarray,
    precision: np.ndarray, log_det: np.ndarray, centre: np.ndarray, spread: np.ndarray,
) -> None:  # fmt: skip
    """Draw some components anew, in place.

    Parameters
    ----------
    which
        Numbers of the components to draw.
    count, first, second
        Sums of the rows' weights, of ``x - mu`` and of its squares (lower half).
    m0, kappa, psi, scales
        The prior; ``scales`` is ``s``, one per component.
    chi
        ``(K, D)`` roots of chi-squares with ``nu + n - d`` degrees of freedom.
    z
        ``(K, P)`` normal numbers, ``D`` for the mean and then those below the diagonal.
    mu, U, root, precision, log_det
        Components: what is drawn, with ``U = root root'``, ``U^-1`` and ``log |U|``.
    centre, spread
        What they are drawn from: the mean of ``mu``, and the scale of the inverse Wishart law times
        ``1 + 1 / (kappa + n)``, for the Student-t law of a further value.
    """
    dim = len(m0)
    L, A = np.zeros((dim, dim)), np.zeros((dim, dim))
    inverse, mean = np.empty((dim, dim)), np.empty(dim)
    for k in which:
        n = count[k]
        for d in range(dim):
            step = first[k, d] / n if n > 0.0 else 0.0
            mean[d] = mu[k, d] + step  # the mean of the rows
        shrink = kappa * n / (kappa + n)
        for d in range(dim):
            for e in range(d + 1):
                total = scales[k] * psi[d, e]
                if n > 0.0:
                    total += second[k, d, e] - first[k, d] * first[k, e] / n
                    total += shrink * (mean[d] - m0[d]) * (mean[e] - m0[e])
                L[d, e] = total
                spread[k, d, e] = total * (1.0 + 1.0 / (kappa + n))
                spread[k, e, d] = spread[k, d, e]
        factor(L, THINNEST)
        at = dim
        for d in range(dim):
            A[d, d] = max(chi[k, d], SMALLEST_CHI)
            for e in range(d):
                A[d, e] = z[k, at]
                at += 1
        for d in range(dim):  # root = L A^-T: each row solves A root_d' = L_d'
            for e in range(dim):
                total = L[d, e] if e <= d else 0.0
                for f in range(e):
                    total -= A[e, f] * root[k, d, f]
                root[k, d, e] = total / A[e, e]
        log_det[k] = 0.0
        for d in range(dim):
            log_det[k] += 2.0 * (np.log(L[d, d]) - np.log(A[d, d]))
        for e in range(dim):  # inverse = L^-1
            for d in range(dim):
                total = 1.0 if d == e else 0.0
                for f in range(e, d):
                    total -= L[d, f] * inverse[f, e]
                inverse[d, e] = total / L[d, d] if d >= e else 0.0
        for d in range(dim):  # (A' L^-1), from the first row on
            for e in range(dim):
                total = 0.0
                for f in range(d, dim):
                    total += A[f, d] * inverse[f, e]
                inverse[d, e] = total
        for d in range(dim):
            for e in range(d + 1):
                total, other = 0.0, 0.0
                for f in range(dim):
                    total += root[k, d, f] * root[k, e, f]
                    other += inverse[f, d] * inverse[f, e]
                U[k, d, e] = total
                U[k, e, d] = total
                precision[k, d, e] = other
                precision[k, e, d] = other
        for d in range(dim):
            total = 0.0
            for e in range(dim):
                total += root[k, d, e] * z[k, e]
            centre[k, d] = (kappa * m0[d] + n * mean[d]) / (kappa + n)
            mu[k, d] = centre[k, d] + total / np.sqrt(kappa + n)
