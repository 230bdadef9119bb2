r"""The lattice of frequencies that belongs to a box.

On a box with sides ``L`` a density is known by its characteristic function at the frequencies
:math:`t_k = 2 \pi k / L`. By symmetry the last dimension needs only :math:`k \ge 0`.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from deconflow._types import Array, Complex
from deconflow.classical.grid import GridDensity, clip_and_normalise

#: Largest frequency number in each dimension; bounds time and memory.
MOST_ORDERS = {1: 4096, 2: 128, 3: 32}
#: Grid points for each of the box's frequencies, so that lines between them are close.
FINENESS = {1: 16, 2: 8, 3: 4}
FEWEST_POINTS = {1: 1024, 2: 128, 3: 32}
MOST_POINTS = {1: 1 << 16, 2: 1024, 3: 128}
#: Share of a normal distribution as wide as the measurements, which keeps log densities finite
#: where the estimate is zero.
BACKGROUND = 1e-3


@dataclass(frozen=True)
class Lattice:
    """Frequencies of a box: ``-order..order`` in each dimension, ``0..order`` in the last.

    Attributes
    ----------
    low, length : array
        ``(D,)``: lower corner and sides of the box.
    order : tuple of int
        Highest frequency number in each dimension.
    """

    low: Array
    length: Array
    order: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of arrays over the lattice."""
        return (*(2 * k + 1 for k in self.order[:-1]), self.order[-1] + 1)

    @property
    def size(self) -> int:
        """Number of frequencies."""
        return int(np.prod(self.shape))

    def axis(self, d: int) -> Array:
        """Frequencies along dimension ``d``."""
        first = 0 if d == self.dim - 1 else -self.order[d]
        return 2 * np.pi / self.length[d] * np.arange(first, self.order[d] + 1)

    def axes(self) -> list[Array]:
        """Frequencies along each dimension, shaped so that they broadcast over the lattice."""
        shapes = np.eye(self.dim, dtype=int) * -2 + 1  # -1 on the diagonal
        return [self.axis(d).reshape(shapes[d]) for d in range(self.dim)]

    def points(self) -> Array:
        """All frequencies, ``(T, D)``."""
        columns = np.broadcast_arrays(*self.axes())
        return np.stack([column.ravel() for column in columns], -1)

    def product(self, factors: list[NDArray]) -> NDArray:
        """Multiply functions of one dimension each, given by their values along the axes."""
        shaped = [f.reshape(t.shape) for f, t in zip(factors, self.axes(), strict=True)]
        return reduce(np.multiply, shaped, np.ones(self.shape))

    def total(self, values: Array) -> float:
        r"""Integrate :math:`(2 \pi)^{-D} \int dt` of a function with the symmetry of ours."""
        twice = np.full(self.shape[-1], 2.0)
        twice[0] = 1.0
        return float((values * twice).sum() / self.length.prod())

    def trim(self, order: tuple[int, ...], values: Complex) -> "tuple[Lattice, Complex]":
        """Leave out the frequencies above a lower ``order``, with what stands there."""
        *others, last = zip(self.order, order, strict=True)
        rows = [slice(k - low, k + low + 1) for k, low in others]
        return Lattice(self.low, self.length, order), values[(*rows, slice(0, last[1] + 1))]

    def density(self, characteristic: Complex) -> Array:
        """Values on a grid over the box of the density with this characteristic function."""
        points = [grid_points(self.dim, k) for k in self.order]
        spectrum = np.zeros((*points[:-1], points[-1] // 2 + 1), complex)
        rows = np.ix_(*(np.arange(-k, k + 1) for k in self.order[:-1]), np.arange(self.shape[-1]))
        # The inverse transform has exp(+i k x), a density exp(-i t x).
        spectrum[rows] = characteristic.conj()
        return np.fft.irfftn(spectrum, points, axes=range(self.dim)) * (
            np.prod(points) / self.length.prod()
        )


@dataclass(frozen=True)
class FourierFit:
    """A density by its characteristic function on a lattice, before the cut at zero.

    Attributes
    ----------
    lattice, characteristic
        The frequencies, and the smoothed characteristic function there.
    relative_error : float
        Integrated squared error that comes from the noise, over the density's integrated square.
    n_far : int
        Number of rows that lie too far out for the grid, which are left out.
    """

    lattice: Lattice
    characteristic: Complex
    relative_error: float
    n_far: int

    def on_grid(self, location: Array, spread: Array) -> GridDensity:
        """Return the density, with a normal distribution of this location and spread behind it."""
        values = self.lattice.density(self.characteristic)
        step = self.lattice.length / np.array(values.shape)
        values = clip_and_normalise(values, float(step.prod()))
        return GridDensity(self.lattice.low, step, values, BACKGROUND, location, np.diag(spread))


def enclose(w: Array, pad: Array, longest: Array) -> tuple[Array, Array]:
    """Lower corner and sides of a box around rows, cut around their median if too long."""
    low, high = w.min(0) - pad, w.max(0) + pad
    fits = high - low <= longest
    half = np.minimum(longest, high - low) / 2
    centre = np.clip(np.median(w, axis=0), low + half, high - half)
    return np.where(fits, low, centre - half), np.where(fits, high - low, 2 * half)


def orders_for(length: Array, bandwidth: Array) -> tuple[int, ...]:
    """Frequency numbers up to the edge of the kernel's band."""
    return tuple(int(k) for k in np.maximum(1, np.floor(length / (2 * np.pi * bandwidth) + 1e-9)))


def grid_points(dim: int, order: int) -> int:
    """Number of grid points along a dimension."""
    wanted = FINENESS[dim] * (2 * order + 1)
    most = max(MOST_POINTS[dim], 2 * order + 2)
    return next_fast_len(int(np.clip(wanted, FEWEST_POINTS[dim], most)) // 2) * 2
