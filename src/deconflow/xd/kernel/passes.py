r"""How the kernel is compiled: once per machine if a cache can be written, else per process.

Exponential and logarithm that vectorise over rows, which the C library's do not.

Both are exact to one unit in the last place on the ranges that mixtures need. Compiled with
``contract`` alone of the fast-math flags: reordering would break the argument reduction.

Straight-line row arithmetic, written out for one dimension.

For a component ``(m, V)`` and rows ``w`` with noise ``S``, let ``T = V + S = L D L'``. With the
matrix elements of one row in scalars, and rows as the only loop, a compiler keeps everything in
vector registers: several rows at once, no small-matrix call anywhere. Written out by hand this
would be one function for each dimension; here a few lines write them.

Each writer returns lines of Python; packed matrices hold the lower triangle row by row.

One pass over rows: responsibilities, log-likelihood and moments of every component.
"""

from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit, types

#: Rows that the kernel takes at a time.
WIDTH = 256

#: Fast-math flags of linear algebra: sums may be reordered, NaN and infinity keep their sense.
LOOSE = {"contract", "reassoc", "nsz", "arcp"}


def compiled_rows(function: Any, fastmath: set[str] = LOOSE, inline: str = "never") -> Any:
    """Compile a function that loops over rows, without the GIL, when it is first called.

    ``error_model="numpy"`` matters: else a test for division by zero stops the vectoriser.
    """
    compiler: Any = partial(njit, nogil=True, error_model="numpy", fastmath=fastmath, inline=inline)
    try:
        return compiler(function, cache=True)
    except RuntimeError:  # numba found no folder to write to
        return compiler(function)


#: ``1 / n!`` from the last term of the exponential to the second.
EXP_TERMS = (
    1.6059043836821613e-10,
    2.08767569878681e-09,
    2.505210838544172e-08,
    2.755731922398589e-07,
    2.7557319223985893e-06,
    2.48015873015873e-05,
    0.0001984126984126984,
    0.001388888888888889,
    0.008333333333333333,
    0.041666666666666664,
    0.16666666666666666,
    0.5,
    1.0,
)
#: Denominators of the series of ``2 atanh``.
LOG_TERMS = (19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0)


@partial(compiled_rows, fastmath={"contract"})
def exp_rows(x: np.ndarray, scratch: np.ndarray, n: int) -> None:
    """Replace ``x[:n]``, which must be at most zero, by its exponential.

    With ``x = k log 2 + z`` and ``|z| <= log(2) / 2``: a Taylor sum of 13 terms for
    ``exp(z)``, and ``k`` added to the exponent bits. Adding ``1.5 * 2**52`` (6755399441055744)
    leaves the nearest integer in the low bits of a double. Below -700 it answers with
    ``exp(-700)``.
    """
    for r in range(n):
        v = max(x[r], -700.0)
        shifted = v * 1.4426950408889634 + 6755399441055744.0
        scratch[r] = shifted
        k = shifted - 6755399441055744.0
        z = v - k * 0.693147180369123816490  # log 2 in two parts: this product is exact
        z = z - k * 1.90821492927058770002e-10
        p = EXP_TERMS[0]
        for term in EXP_TERMS[1:]:
            p = p * z + term
        x[r] = p * z + 1.0
    bits = x.view(np.int64)
    powers = scratch.view(np.int64)
    for r in range(n):
        bits[r] += powers[r] << 52


@partial(compiled_rows, fastmath={"contract"})
def log_rows(x: np.ndarray, scratch: np.ndarray, n: int) -> None:
    """Replace ``x[:n]``, normal numbers, by its logarithm: NaN where not positive.

    With ``x = 2**k m`` and ``m`` within a factor of ``sqrt(2)`` of one:
    ``log m = 2 atanh((m - 1) / (m + 1))``, by its series.
    """
    bits = x.view(np.int64)
    powers = scratch.view(np.int64)
    for r in range(n):
        b = bits[r]
        k = (b - 0x3FE6A09E667F3BCD) >> 52  # the bits of sqrt(1 / 2)
        bits[r] = b - (k << 52)
        powers[r] = (
            k + 0x4338000000000000 if b > 0 else 0x7FF8000000000000
        )  # 1.5 * 2**52 + k, or NaN
    for r in range(n):
        k_real = scratch[r] - 6755399441055744.0
        s = (x[r] - 1.0) / (x[r] + 1.0)
        z = s * s
        p = 1.0 / LOG_TERMS[0]
        for odd in LOG_TERMS[1:]:
            p = p * z + 1.0 / odd
        x[r] = k_real * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * p)


#: Dimension up to which compiling straight lines is worth the wait.
LARGEST = 10

vector, matrix, integer = types.float64[::1], types.float64[:, ::1], types.int64
DENSITY = types.void(matrix, matrix, vector, vector, integer, integer, vector, vector)
MOMENTS = types.void(matrix, matrix, vector, vector, integer, integer, vector, vector, vector)


class Pointer:
    """A compiled function as an argument: numba takes it four times as fast as the function."""

    def __init__(self, function: Any, signature: Any) -> None:
        function.compile(signature)
        made = function.get_compile_result(signature)
        self._address = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
        self._function = function  # keeps the code alive
        self._numba_type_ = types.FunctionType(signature)  # made once: it takes 0.2 ms

    def __wrapper_address__(self) -> int:
        return self._address


@cache
def compiled(dim: int, kind: str) -> tuple[Pointer, Pointer]:
    """Compile density and moments for ``dim`` and a kind of noise: shared, diagonal or full.

    ``density(w, s, v, m, lo, hi, quadratic, determinant)`` writes ``(w - m)' T^-1 (w - m)`` and
    ``1 / |T|`` of the rows ``lo:hi``; ``moments(w, s, v, m, lo, hi, q, u, g)`` adds
    ``sum q t`` and ``sum q (t t' - T^-1)``, with ``t = T^-1 (w - m)``, to ``u`` and packed ``g``.

    For shared noise ``v`` is the packed inverse of the Cholesky factor of ``T``, the same for all
    rows; then ``t`` is ``T^-1/2 (w - m)``, the determinant is left at one, and ``g`` gets
    ``sum q t t'``.
    """
    namespace: dict[str, Any] = {"__name__": __name__}
    density, moments = f"density_{kind}_{dim}", f"moments_{kind}_{dim}"
    source = [*_density(density, dim, kind), *_moments(moments, dim, kind)]
    # This file's name and a name of its own let numba's cache find the function again.
    exec(compile("\n".join(source), __file__, "exec"), namespace)
    return pointers(compiled_rows(namespace[density]), compiled_rows(namespace[moments]))


@cache
def pointers(density: Any, moments: Any) -> tuple[Pointer, Pointer]:
    """Make row arithmetic ready for :func:`deconflow.xd.kernel.passes.pass_over`."""
    return Pointer(density, DENSITY), Pointer(moments, MOMENTS)


def _density(name: str, dim: int, kind: str) -> list[str]:
    body = _whiten(dim, kind)
    if kind == "shared":
        body += [
            f"quadratic[r] = {' + '.join(f'z{i}*z{i}' for i in range(dim))}",
            "determinant[r] = 1.0",
        ]
    else:
        body += [
            f"quadratic[r] = {' + '.join(f'z{i}*z{i}*d{i}' for i in range(dim))}",
            f"determinant[r] = {'*'.join(f'd{i}' for i in range(dim))}",
        ]
    return [
        f"def {name}(w, s, v, m, lo, hi, quadratic, determinant):",
        *_indent(1, _read(dim, kind)),
        "    for r in range(hi - lo):",
        *_indent(2, body),
    ]


def _moments(name: str, dim: int, kind: str) -> list[str]:
    pairs = _pairs(dim)
    body = _whiten(dim, kind)
    body += [f"t{i} = z{i}" for i in range(dim)] if kind == "shared" else _solve(dim)
    body += ["qr = q[r]", *(f"qt{i} = qr*t{i}" for i in range(dim))]
    body += [f"u{i} += qt{i}" for i in range(dim)]
    for i, j in pairs:
        inverse = "" if kind == "shared" else f" - qr*({_inverse(dim, i, j)})"
        body.append(f"g{i}_{j} += qt{i}*t{j}{inverse}")
    return [
        f"def {name}(w, s, v, m, lo, hi, q, u, g):",
        *_indent(1, _read(dim, kind)),
        *_indent(1, [f"u{i} = 0.0" for i in range(dim)]),
        *_indent(1, [f"g{i}_{j} = 0.0" for i, j in pairs]),
        "    for r in range(hi - lo):",
        *_indent(2, body),
        *_indent(1, [f"u[{i}] += u{i}" for i in range(dim)]),
        *_indent(1, [f"g[{p}] += g{i}_{j}" for p, (i, j) in enumerate(pairs)]),
    ]


def _read(dim: int, kind: str) -> list[str]:
    """Views of the rows' columns, and the component's numbers, before the loop."""
    lines = [f"w_{i}, m_{i} = w[{i}, lo:hi], m[{i}]" for i in range(dim)]
    for p, (i, j) in enumerate(_pairs(dim)):
        lines.append(f"v{i}_{j} = v[{p}]")
        if kind == "full":
            lines.append(f"s{i}_{j} = s[{p}, lo:hi]")
        elif kind == "diagonal" and i == j:
            lines.append(f"s{i}_{j} = s[{i}, lo:hi]")
    return lines


def _whiten(dim: int, kind: str) -> list[str]:
    """``z = L^-1 (w - m)``; unless shared also ``l``, and ``d`` for the inverse of ``D``."""
    lines = [f"y{i} = w_{i}[r] - m_{i}" for i in range(dim)]
    if kind == "shared":
        return lines + [
            f"z{i} = {' + '.join(f'v{i}_{j}*y{j}' for j in range(i + 1))}" for i in range(dim)
        ]
    for i in range(dim):
        for j in range(i + 1):
            noisy = kind == "full" or i == j
            lines.append(f"a{i}_{j} = v{i}_{j}" + (f" + s{i}_{j}[r]" if noisy else ""))
    for i in range(dim):
        for j in range(i):
            lines.append(f"c{i}_{j} = a{i}_{j}{_less(f'c{i}_{k}*l{j}_{k}' for k in range(j))}")
        lines += [f"l{i}_{j} = c{i}_{j}*d{j}" for j in range(i)]
        lines.append(f"d{i} = 1.0/(a{i}_{i}{_less(f'c{i}_{k}*l{i}_{k}' for k in range(i))})")
        lines.append(f"z{i} = y{i}{_less(f'l{i}_{k}*z{k}' for k in range(i))}")
    return lines


def _solve(dim: int) -> list[str]:
    """``n = L^-1``, ``e = D^-1 L^-1`` and ``t = T^-1 (w - m)``."""
    lines = []
    for i in range(dim):
        for j in range(i):
            more = "".join(f" + l{i}_{k}*n{k}_{j}" for k in range(j + 1, i))
            lines += [f"n{i}_{j} = -(l{i}_{j}{more})", f"e{i}_{j} = d{i}*n{i}_{j}"]
    for i in range(dim):
        more = "".join(f" + z{k}*e{k}_{i}" for k in range(i + 1, dim))
        lines.append(f"t{i} = z{i}*d{i}{more}")
    return lines


def _inverse(dim: int, i: int, j: int) -> str:
    """Element ``i, j`` of ``T^-1``."""
    first = f"d{i}" if i == j else f"e{i}_{j}"
    return first + "".join(f" + n{k}_{i}*e{k}_{j}" for k in range(i + 1, dim))


def _pairs(dim: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(dim) for j in range(i + 1)]


def _less(terms: Any) -> str:
    return "".join(f" - {term}" for term in terms)


def _indent(depth: int, lines: list[str]) -> list[str]:
    return ["    " * depth + line for line in lines]


#: Responsibilities below this add nothing to any sum in double precision.
NEGLIGIBLE = 1e-17


@compiled_rows
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


@compiled_rows
def _pick(source: np.ndarray, rows: np.ndarray, count: int, target: np.ndarray) -> None:
    for p in range(len(source)):
        column, picked = source[p], target[p]
        for r in range(count):
            picked[r] = column[rows[r]]


@compiled_rows
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


@compiled_rows
def pass_over(
    density, moments, w, s, log_share, omega, log_a, m, v,  # noqa: ANN001
    size, first, last, with_moments, q0, u, g, log_p, q_out,  # noqa: ANN001
) -> None:  # fmt: skip
    """Add up the pieces ``first:last`` of ``size`` rows each; write their log-likelihoods.

    Parameters
    ----------
    density, moments
        Row arithmetic, from :mod:`~deconflow.xd.kernel.passes` or ``generic``.
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
