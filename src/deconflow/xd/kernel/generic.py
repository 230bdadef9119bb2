r"""Row arithmetic as loops, for any dimension and for a projection of its own in every row.

The same functions as in :mod:`deconflow.xd.kernel.passes`, slower by a factor of two and compiled
once, when needed. ``s`` holds the packed noise covariance in its first rows, then, if there are
any more, the ``M x D`` projection ``R`` of each row; then ``T = R V R' + S``,
``t = R' T^-1 (w - R m)`` and ``g`` gets ``sum q (t t' - R' T^-1 R)``.
"""

import numpy as np

from deconflow.xd.kernel.passes import compiled_rows, log_rows


@compiled_rows
def _fill(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    a: np.ndarray, y: np.ndarray, rv: np.ndarray,
) -> None:  # fmt: skip
    """Write ``T`` into ``a`` and ``w - R m`` into ``y``."""
    n, size, dim = hi - lo, len(w), len(m)
    packed = size * (size + 1) // 2
    projected = len(s) > packed
    for i in range(size):
        value, row = w[i, lo:hi], y[i]
        if projected:
            row[:] = value
            for d in range(dim):
                slope = s[packed + i * dim + d, lo:hi]
                for r in range(n):
                    row[r] -= slope[r] * m[d]
        else:
            for r in range(n):
                row[r] = value[r] - m[i]
    for p in range(packed):
        noise, row = s[p, lo:hi], a[p]
        extra = 0.0 if projected else v[p]
        for r in range(n):
            row[r] = noise[r] + extra
    if not projected:
        return
    p = 0
    for i in range(size):
        for d in range(dim):  # rv = R_i V
            row = rv[d]
            row[:] = 0.0
            for e in range(dim):
                big, small = max(d, e), min(d, e)
                vde = v[big * (big + 1) // 2 + small]
                slope = s[packed + i * dim + e, lo:hi]
                for r in range(n):
                    row[r] += vde * slope[r]
        for j in range(i + 1):
            target = a[p]
            for d in range(dim):
                slope, row = s[packed + j * dim + d, lo:hi], rv[d]
                for r in range(n):
                    target[r] += row[r] * slope[r]
            p += 1


@compiled_rows
def _factor(a: np.ndarray, y: np.ndarray, n: int) -> None:
    """``T = L D L'`` in place, with ``1 / D`` on the diagonal; ``y`` becomes ``L^-1 y``."""
    size = len(y)
    at_i = 0
    for i in range(size):
        at_j = 0
        for j in range(i):
            target = a[at_i + j]
            for k in range(j):
                left, right = a[at_i + k], a[at_j + k]
                for r in range(n):
                    target[r] -= left[r] * right[r]
            at_j += j + 1
        pivot, yi = a[at_i + i], y[i]
        at_j = 0
        for j in range(i):
            row, inverse, yj = a[at_i + j], a[at_j + j], y[j]
            for r in range(n):
                c = row[r]
                ell = c * inverse[r]
                pivot[r] -= c * ell
                row[r] = ell
                yi[r] -= ell * yj[r]
            at_j += j + 1
        for r in range(n):
            pivot[r] = 1.0 / pivot[r]
        at_i += i + 1


@compiled_rows
def _invert(a: np.ndarray, y: np.ndarray, n: int) -> None:
    """From the factors to packed ``T^-1`` in ``a``, and ``T^-1 (w - R m)`` in ``y``."""
    size = len(y)
    at_i = 0
    for i in range(size):
        yi, pivot = y[i], a[at_i + i]
        for r in range(n):
            yi[r] *= pivot[r]
        for j in range(i):
            target, yj = a[at_i + j], y[j]
            for r in range(n):
                target[r] = -target[r]
            at_k = (j + 1) * (j + 2) // 2
            for k in range(j + 1, i):
                left, right = a[at_i + k], a[at_k + j]
                for r in range(n):
                    target[r] -= left[r] * right[r]
                at_k += k + 1
            for r in range(n):
                yj[r] += target[r] * yi[r]
        at_i += i + 1
    at_i = 0
    for i in range(size):
        pivot = a[at_i + i]
        for j in range(i):
            target = a[at_i + j]
            for r in range(n):
                target[r] *= pivot[r]
        at_k = at_i + i + 1
        for k in range(i + 1, size):
            left, weight = a[at_k + i], a[at_k + k]
            for j in range(i + 1):
                target, right = a[at_i + j], a[at_k + j]
                for r in range(n):
                    target[r] += left[r] * weight[r] * right[r]
            at_k += k + 1
        at_i += i + 1


@compiled_rows
def _project(
    s: np.ndarray, lo: int, hi: int, a: np.ndarray, y: np.ndarray, t: np.ndarray, b: np.ndarray
) -> None:
    """``t = R' y`` and packed ``b = R' a R``."""
    n, size, dim = hi - lo, len(y), len(t)
    packed = size * (size + 1) // 2
    for d in range(dim):
        row = t[d]
        row[:] = 0.0
        for i in range(size):
            slope, yi = s[packed + i * dim + d, lo:hi], y[i]
            for r in range(n):
                row[r] += slope[r] * yi[r]
    b[:] = 0.0
    at_i = 0
    for i in range(size):
        for j in range(i + 1):
            element = a[at_i + j]
            half = 0.5 if i == j else 1.0
            p = 0
            for d in range(dim):
                di, dj = s[packed + i * dim + d, lo:hi], s[packed + j * dim + d, lo:hi]
                for e in range(d + 1):
                    ei, ej = s[packed + i * dim + e, lo:hi], s[packed + j * dim + e, lo:hi]
                    row = b[p]
                    for r in range(n):
                        row[r] += half * element[r] * (di[r] * ej[r] + dj[r] * ei[r])
                    p += 1
        at_i += i + 1


@compiled_rows
def density(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    quadratic: np.ndarray, determinant: np.ndarray,
) -> None:  # fmt: skip
    """Write ``(w - R m)' T^-1 (w - R m) + log |T|``, and one as the determinant."""
    n, size = hi - lo, len(w)
    a, y = np.empty((size * (size + 1) // 2, n)), np.empty((size, n))
    _fill(w, s, v, m, lo, hi, a, y, np.empty((len(m), n)))
    _factor(a, y, n)
    scratch = np.empty(n)
    quadratic[:n] = 0.0
    p = 0
    for i in range(size):
        pivot, yi = a[p + i], y[i]
        for r in range(n):
            determinant[r] = pivot[r]
            quadratic[r] += pivot[r] * yi[r] * yi[r]
        p += i + 1
        log_rows(determinant, scratch, n)  # one by one: no product overflows
        for r in range(n):
            quadratic[r] -= determinant[r]
            determinant[r] = 1.0


@compiled_rows
def moments(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    q: np.ndarray, u: np.ndarray, g: np.ndarray,
) -> None:  # fmt: skip
    """Add ``sum q t`` to ``u`` and ``sum q (t t' - R' T^-1 R)`` to ``g``."""
    n, size, dim = hi - lo, len(w), len(m)
    a, y = np.empty((size * (size + 1) // 2, n)), np.empty((size, n))
    t, b = np.empty((dim, n)), np.empty((dim * (dim + 1) // 2, n))
    _fill(w, s, v, m, lo, hi, a, y, t)
    _factor(a, y, n)
    _invert(a, y, n)
    if len(s) > size * (size + 1) // 2:
        _project(s, lo, hi, a, y, t, b)
    else:
        t, b = y, a
    p = 0
    for d in range(dim):
        left = t[d]
        total = 0.0
        for r in range(n):
            total += q[r] * left[r]
        u[d] += total
        for e in range(d + 1):
            right, inverse = t[e], b[p]
            total = 0.0
            for r in range(n):
                total += q[r] * (left[r] * right[r] - inverse[r])
            g[p] += total
            p += 1


@compiled_rows
def _whitened(
    w: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int, i: int, z: np.ndarray
) -> None:
    n, start = hi - lo, i * (i + 1) // 2
    z[:n] = 0.0
    for j in range(i + 1):
        value, slope, centre = w[j, lo:hi], v[start + j], m[j]
        for r in range(n):
            z[r] += slope * (value[r] - centre)


@compiled_rows
def shared_density(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    quadratic: np.ndarray, determinant: np.ndarray,
) -> None:  # fmt: skip
    """Write ``|v (w - m)|^2`` for a packed lower-triangular ``v``, and one as the determinant."""
    n = hi - lo
    z = np.empty(n)
    quadratic[:n], determinant[:n] = 0.0, 1.0
    for i in range(len(w)):
        _whitened(w, v, m, lo, hi, i, z)
        for r in range(n):
            quadratic[r] += z[r] * z[r]


@compiled_rows
def shared_moments(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    q: np.ndarray, u: np.ndarray, g: np.ndarray,
) -> None:  # fmt: skip
    """Add ``sum q z`` to ``u`` and ``sum q z z'`` to ``g``, with ``z = v (w - m)``."""
    n, p = hi - lo, 0
    z = np.empty((len(w), n))
    for i in range(len(w)):
        left = z[i]
        _whitened(w, v, m, lo, hi, i, left)
        total = 0.0
        for r in range(n):
            total += q[r] * left[r]
        u[i] += total
        for j in range(i + 1):
            right = z[j]
            total = 0.0
            for r in range(n):
                total += q[r] * left[r] * right[r]
            g[p] += total
            p += 1
