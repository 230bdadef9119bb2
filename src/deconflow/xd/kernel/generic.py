r"""Row arithmetic as loops, for any dimension and for a projection of its own in every row.

The same functions as in :mod:`deconflow.xd.kernel.passes`, slower by a factor of two and compiled
once, when needed. ``s`` holds the packed noise covariance in its first rows, then, if there are
any more, the ``M x D`` projection ``R`` of each row; then ``T = R V R' + S``,
``t = R' T^-1 (w - R m)`` and ``g`` gets ``sum q (t t' - R' T^-1 R)``. Of symmetric matrices only
the lower triangle is used.
"""

from functools import partial

import numpy as np

from deconflow.xd.kernel.passes import compiled_rows, log_rows

#: A call would count references to its arrays, which costs as much as a loop over 256 rows.
inlined = partial(compiled_rows, inline="always")


@compiled_rows
def _at(i: int, j: int) -> int:
    """Place of an element in a packed lower triangle."""
    return i * (i + 1) // 2 + j


@inlined
def _add(target: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    for r in range(len(target)):
        target[r] += left[r] * right[r]


@inlined
def _subtract(target: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    for r in range(len(target)):
        target[r] -= left[r] * right[r]


@inlined
def _multiply(target: np.ndarray, factor: np.ndarray) -> None:
    for r in range(len(target)):
        target[r] *= factor[r]


@compiled_rows
def _factored(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int
) -> tuple[np.ndarray, np.ndarray]:
    """``T = L D L'``, as ``L`` with ``1 / D`` on the diagonal, and ``L^-1 (w - R m)``."""
    n, size, dim = hi - lo, len(w), len(m)
    packed = size * (size + 1) // 2
    projected = len(s) > packed
    a, y, rv = np.empty((packed, n)), np.empty((size, n)), np.empty((dim, n))
    for i in range(size):
        yi, value, shift = y[i], w[i, lo:hi], 0.0 if projected else m[i]
        for r in range(n):
            yi[r] = value[r] - shift
        if projected:
            for d in range(dim):  # rv = R_i V
                slope, row = s[packed + i * dim + d, lo:hi], rv[d]
                for r in range(n):
                    yi[r] -= slope[r] * m[d]
                    row[r] = 0.0
                for e in range(dim):
                    vde = v[_at(max(d, e), min(d, e))]
                    slope = s[packed + i * dim + e, lo:hi]
                    for r in range(n):
                        row[r] += vde * slope[r]
        for j in range(i + 1):
            p = _at(i, j)
            target, noise, extra = a[p], s[p, lo:hi], 0.0 if projected else v[p]
            for r in range(n):
                target[r] = noise[r] + extra
            if projected:
                for d in range(dim):
                    _add(target, rv[d], s[packed + j * dim + d, lo:hi])
    _factor(a, y)
    return a, y


@compiled_rows
def _factor(a: np.ndarray, y: np.ndarray) -> None:
    size, n = y.shape
    for i in range(size):
        for j in range(i):
            for k in range(j):
                _subtract(a[_at(i, j)], a[_at(i, k)], a[_at(j, k)])
        pivot, yi = a[_at(i, i)], y[i]
        for j in range(i):
            row, inverse, yj = a[_at(i, j)], a[_at(j, j)], y[j]
            for r in range(n):
                c = row[r]
                ell = c * inverse[r]
                pivot[r] -= c * ell
                row[r] = ell
                yi[r] -= ell * yj[r]
        for r in range(n):
            pivot[r] = 1.0 / pivot[r]


@compiled_rows
def _invert(a: np.ndarray, y: np.ndarray) -> None:
    """From the factors to ``T^-1`` in ``a``, and ``T^-1 (w - R m)`` in ``y``."""
    size = len(y)
    for i in range(size):
        _multiply(y[i], a[_at(i, i)])
        for j in range(i):
            target = a[_at(i, j)]
            for r in range(len(target)):
                target[r] = -target[r]
            for k in range(j + 1, i):
                _subtract(a[_at(i, j)], a[_at(i, k)], a[_at(k, j)])
            _add(y[j], a[_at(i, j)], y[i])
    for i in range(size):
        for j in range(i):
            _multiply(a[_at(i, j)], a[_at(i, i)])
        for k in range(i + 1, size):
            left, weight = a[_at(k, i)], a[_at(k, k)]
            for j in range(i + 1):
                target, right = a[_at(i, j)], a[_at(k, j)]
                for r in range(len(left)):
                    target[r] += left[r] * weight[r] * right[r]


@compiled_rows
def _projected(
    s: np.ndarray, lo: int, hi: int, a: np.ndarray, y: np.ndarray, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """``R' y`` and ``R' a R``."""
    size, n = y.shape
    packed = size * (size + 1) // 2
    t, b = np.zeros((dim, n)), np.zeros((_at(dim, 0), n))
    for i in range(size):
        for d in range(dim):
            _add(t[d], s[packed + i * dim + d, lo:hi], y[i])
        for j in range(i + 1):
            element, half = a[_at(i, j)], 0.5 if i == j else 1.0
            for d in range(dim):
                di, dj = s[packed + i * dim + d, lo:hi], s[packed + j * dim + d, lo:hi]
                for e in range(d + 1):
                    ei, ej = s[packed + i * dim + e, lo:hi], s[packed + j * dim + e, lo:hi]
                    row = b[_at(d, e)]
                    for r in range(n):
                        row[r] += half * element[r] * (di[r] * ej[r] + dj[r] * ei[r])
    return t, b


@compiled_rows
def _add_up(q: np.ndarray, t: np.ndarray, b: np.ndarray, u: np.ndarray, g: np.ndarray) -> None:
    """Add ``sum q t`` to ``u`` and ``sum q (t t' - b)`` to ``g``; ``b`` may be ``(1, n)``."""
    p = 0
    for d in range(len(t)):
        left, total = t[d], 0.0
        for r in range(len(left)):
            total += q[r] * left[r]
        u[d] += total
        for e in range(d + 1):
            right, inverse, total = t[e], b[p % len(b)], 0.0
            for r in range(len(left)):
                total += q[r] * (left[r] * right[r] - inverse[r])
            g[p] += total
            p += 1


@compiled_rows
def density(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    quadratic: np.ndarray, determinant: np.ndarray,
) -> None:  # fmt: skip
    """Write ``(w - R m)' T^-1 (w - R m) + log |T|``, and one as the determinant."""
    n = hi - lo
    a, y = _factored(w, s, v, m, lo, hi)
    scratch = np.empty(n)
    quadratic[:n] = 0.0
    for i in range(len(w)):
        pivot, yi = a[_at(i, i)], y[i]
        for r in range(n):
            determinant[r] = pivot[r]
            quadratic[r] += pivot[r] * yi[r] * yi[r]
        log_rows(determinant, scratch, n)  # one by one: no product overflows
        for r in range(n):
            quadratic[r] -= determinant[r]
    determinant[:n] = 1.0


@compiled_rows
def moments(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    q: np.ndarray, u: np.ndarray, g: np.ndarray,
) -> None:  # fmt: skip
    """Add ``sum q t`` to ``u`` and ``sum q (t t' - R' T^-1 R)`` to ``g``."""
    b, t = _factored(w, s, v, m, lo, hi)
    _invert(b, t)
    if len(s) > len(w) * (len(w) + 1) // 2:
        t, b = _projected(s, lo, hi, b, t, len(m))
    _add_up(q, t, b, u, g)


@compiled_rows
def _whitened(w: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int) -> np.ndarray:
    """``v (w - m)`` for a packed lower-triangular ``v``."""
    z = np.zeros((len(w), hi - lo))
    p = 0
    for i in range(len(w)):
        row = z[i]
        for j in range(i + 1):
            value, slope, centre = w[j, lo:hi], v[p], m[j]
            for r in range(hi - lo):
                row[r] += slope * (value[r] - centre)
            p += 1
    return z


@compiled_rows
def shared_density(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    quadratic: np.ndarray, determinant: np.ndarray,
) -> None:  # fmt: skip
    """Write ``|v (w - m)|^2`` for a packed lower-triangular ``v``, and one as the determinant."""
    z = _whitened(w, v, m, lo, hi)
    quadratic[: hi - lo], determinant[: hi - lo] = 0.0, 1.0
    for i in range(len(w)):
        _add(quadratic[: hi - lo], z[i], z[i])


@compiled_rows
def shared_moments(
    w: np.ndarray, s: np.ndarray, v: np.ndarray, m: np.ndarray, lo: int, hi: int,
    q: np.ndarray, u: np.ndarray, g: np.ndarray,
) -> None:  # fmt: skip
    """Add ``sum q z`` to ``u`` and ``sum q z z'`` to ``g``, with ``z = v (w - m)``."""
    _add_up(q, _whitened(w, v, m, lo, hi), np.zeros((1, hi - lo)), u, g)
