r"""Characteristic functions on the lattice of frequencies that belongs to a box.

On a box with sides ``L`` a density is known by its characteristic function at the frequencies
:math:`t_k = 2 \pi k / L`. By symmetry the last dimension needs only :math:`k \ge 0`.

With :math:`\phi_j` the characteristic function of row j's noise and row weights :math:`a_j` that
sum to one (Delaigle and Meister 2008), the true values have

.. math:: \hat\phi_v(t) = \frac{\sum_j a_j \, \bar\phi_j(t) \, e^{i t w_j}}
                               {\max(\sum_j a_j |\phi_j(t)|^2, \; 1 / n)}

Below :math:`1/n` the denominator is less than its numerator's error, and :math:`\hat\phi_v`
would be noise larger than any characteristic function can be: there it is shrunk to zero. So it
is finite for every noise, also for one whose characteristic function has zeros.
"""

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from deconflow._types import Array, Complex, IntArray
from deconflow.classical.grid import GridDensity
from deconflow.observations import Observations

#: Largest frequency number in each dimension; bounds time and memory.
MOST_ORDERS = {1: 4096, 2: 128, 3: 32}
#: Grid points for each of the box's frequencies, so that lines between them are close.
FINENESS = {1: 16, 2: 8, 3: 4}
FEWEST_POINTS = {1: 1024, 2: 128, 3: 32}
MOST_POINTS = {1: 1 << 16, 2: 1024, 3: 128}
#: Share of a normal distribution as wide as the measurements, which keeps log densities finite
#: where the estimate is zero.
BACKGROUND = 1e-3
#: Times log(n) by which a frequency's power exceeds the ridge where it is informative.
INFORMATIVE = 2.0
#: Standard deviations of its noise by which a row may lie outside of a box.
FAR = 5.0
#: Largest number of complex values in memory at once, whatever the number of rows.
AT_ONCE = 2_000_000


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

    def numbers(self) -> list[IntArray]:
        """Frequency numbers along each dimension."""
        return [*(np.arange(-k, k + 1) for k in self.order[:-1]), np.arange(self.order[-1] + 1)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of arrays over the lattice."""
        return tuple(len(numbers) for numbers in self.numbers())

    @cached_property
    def axes(self) -> list[Array]:
        """Frequencies along each dimension."""
        steps = 2 * np.pi / self.length
        return [step * numbers for step, numbers in zip(steps, self.numbers(), strict=True)]

    def points(self) -> Array:
        """All frequencies, ``(T, D)``."""
        return np.stack([t.ravel() for t in np.meshgrid(*self.axes, indexing="ij")], -1)

    def total(self, values: Array) -> float:
        r"""Integrate :math:`(2 \pi)^{-D} \int dt` of a function with the symmetry of ours."""
        return float((values * np.where(self.numbers()[-1] > 0, 2, 1)).sum() / self.length.prod())

    def trim(self, order: tuple[int, ...], values: Complex) -> "tuple[Lattice, Complex]":
        """Leave out the frequencies above a lower ``order``, with what stands there."""
        inside = [np.abs(k) <= most for k, most in zip(self.numbers(), order, strict=True)]
        return Lattice(self.low, self.length, order), values[np.ix_(*inside)]

    def density(self, characteristic: Complex) -> Array:
        """Values on a grid over the box of the density with this characteristic function."""
        numbers = 2 * np.array(self.order) + 1
        most = np.maximum(MOST_POINTS[self.dim], numbers + 1)
        wanted = np.clip(FINENESS[self.dim] * numbers, FEWEST_POINTS[self.dim], most)
        points = [2 * next_fast_len(int(count) // 2) for count in wanted]
        spectrum = np.zeros((*points[:-1], points[-1] // 2 + 1), complex)
        # The inverse transform has exp(+i k x), a density exp(-i t x).
        spectrum[np.ix_(*self.numbers())] = characteristic.conj()
        return np.fft.irfftn(spectrum, points, axes=range(self.dim)) * (
            np.prod(points) / self.length.prod()
        )


class EmpiricalCharacteristic:
    r"""What rows, with weights of sum one, tell of the truth's characteristic function.

    Attributes
    ----------
    lattice : Lattice
        The frequencies.
    numerator, denominator, estimate : array
        :math:`\sum_j a_j \bar\phi_j e^{i t w_j}`, and what it is divided by for the estimate.
    power, power_of_squares, fourth : array
        :math:`\sum_j a_j |\phi_j|^2`, :math:`\sum_j a_j^2 |\phi_j|^2`,
        :math:`\sum_j a_j^2 |\phi_j|^4`.
    ridge : float
        Least denominator.
    shrinkage : array
        Expectation of the estimate over the truth: one where the noise lets through enough.
    variance : array
        Variance of the estimate, an upper bound that is close at high frequencies.
    """

    def __init__(self, rows: Observations, lattice: Lattice) -> None:
        self.lattice, self.ridge = lattice, 1 / effective_number(rows)
        size = int(np.prod(lattice.shape))
        numerator, sums = np.zeros(size, complex), np.zeros((3, size))
        for part in rows.chunks(max(1, AT_ONCE // size)):
            waves, power = waves_of(part, lattice)
            squares = np.square(part.weights)
            numerator += part.weights @ waves
            sums += part.weights @ power, squares @ power, squares @ np.square(power)
        self.numerator = numerator.reshape(lattice.shape)
        self.power, self.power_of_squares, self.fourth = sums.reshape(3, *lattice.shape)
        self.denominator = np.maximum(self.power, self.ridge)
        self.estimate = self.numerator / self.denominator
        self.shrinkage = self.power / self.denominator
        self.variance = self.power_of_squares / np.square(self.denominator)

    @cached_property
    def unbiased_square(self) -> Array:
        """Squared modulus from pairs of different rows.

        Zero where the error of the estimate is not well below one, the most that there can be.
        """
        pairs = np.square(np.abs(self.numerator)) - self.power_of_squares
        weight = np.square(self.power) - self.fourth
        informative = self.power > INFORMATIVE * np.log(1 / self.ridge) * self.ridge
        informative &= weight > 0
        return np.where(informative, pairs / np.where(informative, weight, 1.0), 0.0)


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
        """Return the density, with a normal distribution of this location and spread behind it.

        Negative parts and the faces of the box are set to zero, and the rest is scaled to one.
        """
        values = self.lattice.density(self.characteristic)
        step = self.lattice.length / np.array(values.shape)
        values = np.pad(np.clip(values[(slice(1, -1),) * len(step)], 0, None), 1)
        values = values / (values.sum() * float(step.prod()))
        return GridDensity(self.lattice.low, step, values, BACKGROUND, location, np.diag(spread))


def effective_number(rows: Observations) -> float:
    """How many rows of equal weight these are worth."""
    return float(1 / np.square(rows.weights).sum())


def near(rows: Observations, lattice: Lattice) -> tuple[Observations, int]:
    """Rows in a lattice's box, or outside by what their noise explains; and how many are not.

    The waves of a box repeat: any other row would come back in at another place.
    """
    inside = np.clip(rows.w, lattice.low, lattice.low + lattice.length)
    beyond = np.where(np.array(lattice.order) > 0, rows.w - inside, 0.0)
    kept = (np.abs(beyond) <= FAR * np.sqrt(np.asarray(rows.noise.variance()))).all(1)
    if kept.all():
        return rows, 0
    some = rows[kept]
    return replace(some, weights=some.weights / some.weights.sum()), int((~kept).sum())


def waves_of(rows: Observations, lattice: Lattice) -> tuple[Complex, Array]:
    r"""Waves of each row, and the power that its noise lets through, both ``(N, T)``.

    These are :math:`\bar\phi_j e^{i t (w_j - low)}` and :math:`|\phi_j|^2`.
    """
    offsets = (rows.w - lattice.low).T[:, :, None]
    waves = _outer([np.exp(1j * x * t) for x, t in zip(offsets, lattice.axes, strict=True)])
    if rows.noise.independent:
        t = np.array(list(zip_longest(*lattice.axes, fillvalue=0.0)))
        phi = rows.noise.value_characteristics(t)
        phi = _outer([phi[:, :count, d] for d, count in enumerate(lattice.shape)])
    else:
        phi = rows.noise.characteristic(lattice.points())
    return waves * phi.conj(), np.broadcast_to(np.square(np.abs(phi)), waves.shape)


def _outer(factors: list[NDArray]) -> NDArray:
    """Outer product of each row's factors, ``(N, T1) x (N, T2) -> (N, T1 T2)``."""
    return reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(a), -1), factors)


def product(factors: list[NDArray]) -> NDArray:
    """Function on a lattice that is a product of functions along its axes."""
    return reduce(np.multiply, np.ix_(*factors))


def enclose(w: Array, pad: Array, longest: Array) -> tuple[Array, Array]:
    """Lower corner and sides of a box around rows, cut around their median if too long."""
    low, high = w.min(0) - pad, w.max(0) + pad
    length = np.minimum(longest, high - low)
    return np.clip(np.median(w, axis=0) - length / 2, low, high - length), length


def orders_for(length: Array, bandwidth: Array) -> tuple[int, ...]:
    """Frequency numbers up to the edge of the kernel's band."""
    return tuple(int(k) for k in np.maximum(1, np.floor(length / (2 * np.pi * bandwidth) + 1e-9)))
