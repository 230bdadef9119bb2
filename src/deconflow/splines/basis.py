r"""Cubic B-splines that go on as straight lines, and penalties on their derivatives.

.. math:: S_j = \int \omega_j(x) \, B^{(k)}(x) \, B^{(k)}(x)' \, dx

with weights :math:`\omega_j` that sum to one everywhere. On a plane the penalty is that on all
derivatives of order k, which knows no directions: for k = 3 the integral of
:math:`l_{xxx}^2 + 3 l_{xxy}^2 + 3 l_{xyy}^2 + l_{yyy}^2`, by Kronecker products.
"""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from scipy.interpolate import BSpline

from deconflow._types import Array

DEGREE = 3
GAUSS_POINTS = 6


@dataclass(frozen=True)
class Basis:
    """Cubic B-splines between knots, straight beyond them.

    Attributes
    ----------
    knots : array
        Rising; the first and the last are the ends of the domain.
    """

    knots: Array

    @property
    def size(self) -> int:
        """Number of B-splines."""
        return len(self.knots) + DEGREE - 1

    @cached_property
    def _splines(self) -> BSpline:
        return BSpline(np.pad(self.knots, DEGREE, "edge"), np.eye(self.size), DEGREE)

    def design(self, x: Array) -> Array:
        """Values ``(len(x), size)``."""
        inside = np.clip(x, self.knots[0], self.knots[-1])
        beyond = (x - inside)[:, None]
        return np.asarray(self._splines(inside) + beyond * self._splines.derivative()(inside))

    def penalties(self, order: int, n_local: int = 1) -> Array:
        """Integrals of products of derivatives, on parts of the line: ``(n_local, size, size)``.

        The parts overlap and sum to the whole; their weights are linear between knots.
        """
        points, mass = np.polynomial.legendre.leggauss(GAUSS_POINTS)
        half = 0.5 * np.diff(self.knots)[:, None]
        x = (self.knots[:-1, None] + half * (1 + points)).ravel()
        values, at = self._splines.derivative(order)(x), (half * mass).ravel()
        places, centres = (np.linspace(0, 1, n) for n in (len(self.knots), n_local))
        at_knots = [np.interp(places, centres, part) for part in np.eye(n_local)]
        each = [at * np.interp(x, self.knots, weights) for weights in at_knots]
        return np.stack([(values * weights[:, None]).T @ values for weights in each])


def plane_penalty(bases: tuple[Basis, Basis], order: int) -> Array:
    """Penalty ``(1, n, n)`` on all derivatives of one order, for the product of two bases."""
    first, second = ([basis.penalties(k)[0] for k in range(order + 1)] for basis in bases)
    terms = [comb(order, k) * np.kron(first[k], second[order - k]) for k in range(order + 1)]
    return np.sum(terms, axis=0)[None]


def polynomials(bases: tuple[Basis, ...], below: int) -> Array:
    """Coefficients ``(n, K)`` of all polynomials of total degree less than ``below``.

    The constant is the first. A penalty on derivatives of order ``below`` does not see them.
    """
    each = [_powers(basis, below) for basis in bases]
    if len(each) == 1:
        return each[0]
    degrees = [(i, k - i) for k in range(below) for i in range(k + 1)]
    return np.stack([np.kron(each[0][:, i], each[1][:, j]) for i, j in degrees], axis=1)


def _powers(basis: Basis, below: int) -> Array:
    """Coefficients of powers of x, scaled to the domain, by interpolation."""
    low, high = basis.knots[0], basis.knots[-1]
    x = np.linspace(low, high, 4 * basis.size)
    values = np.vander((2 * x - low - high) / (high - low), below, increasing=True)
    return np.asarray(np.linalg.lstsq(basis.design(x), values, rcond=None)[0], dtype=np.float64)
