r"""Straight-line row arithmetic, written out for one dimension.

For a component ``(m, V)`` and rows ``w`` with noise ``S``, let ``T = V + S = L D L'``. With the
matrix elements of one row in scalars, and rows as the only loop, a compiler keeps everything in
vector registers: several rows at once, no small-matrix call anywhere. Written out by hand this
would be one function for each dimension; here a few lines write them.

Each writer returns lines of Python; packed matrices hold the lower triangle row by row.
"""

from functools import cache
from typing import Any

from numba import types
from numba.extending import typeof_impl

from deconflow.xd.kernel.compile import compiled_rows

#: Dimension up to which compiling straight lines is worth the wait.
LARGEST = 10

vector, matrix, integer = types.float64[::1], types.float64[:, ::1], types.int64
DENSITY = types.void(matrix, matrix, vector, vector, integer, integer, vector, vector)
MOMENTS = types.void(matrix, matrix, vector, vector, integer, integer, vector, vector, vector)


class Pointer(types.WrapperAddressProtocol):
    """A compiled function as an argument: numba takes it four times as fast as the function."""

    def __init__(self, function: Any, signature: Any) -> None:
        self._signature = signature
        function.compile(signature)
        made = function.get_compile_result(signature)
        self._address = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
        self._function = function  # keeps the code alive
        self.type = types.FunctionType(signature)

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        """Return the signature of the function."""
        return self._signature


@typeof_impl.register(Pointer)
def _type_of(pointer: Pointer, _: Any) -> types.FunctionType:
    """Return the type made once: numba would make it anew for every call, in 0.2 ms."""
    return pointer.type


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
    return pointers(compiled_rows()(namespace[density]), compiled_rows()(namespace[moments]))


@cache
def pointers(density: Any, moments: Any) -> tuple[Pointer, Pointer]:
    """Make row arithmetic ready for :func:`deconflow.xd.kernel.passes.pass_over`."""
    return Pointer(density, DENSITY), Pointer(moments, MOMENTS)


def _density(name: str, dim: int, kind: str) -> list[str]:
    body = _whiten(dim, kind)
    if kind == "shared":
        body += [f"quadratic[r] = {_sum(f'z{i}*z{i}' for i in range(dim))}", "determinant[r] = 1.0"]
    else:
        body += [
            f"quadratic[r] = {_sum(f'z{i}*z{i}*d{i}' for i in range(dim))}",
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
            f"z{i} = {_sum(f'v{i}_{j}*y{j}' for j in range(i + 1))}" for i in range(dim)
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


def _sum(terms: Any) -> str:
    return " + ".join(terms)


def _less(terms: Any) -> str:
    return "".join(f" - {term}" for term in terms)


def _indent(depth: int, lines: list[str]) -> list[str]:
    return ["    " * depth + line for line in lines]
