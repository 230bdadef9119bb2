r"""The deconvolved characteristic function of the rows, on a lattice.

With :math:`\phi_j` the characteristic function of row j's noise and row weights :math:`a_j` that
sum to one (Delaigle and Meister 2008),

.. math:: \hat\phi_v(t) = \frac{\sum_j a_j \, \bar\phi_j(t) \, e^{i t w_j}}
                               {\max(\sum_j a_j |\phi_j(t)|^2, \; 1 / n)}

Below :math:`1/n` the denominator is less than its numerator's error, and :math:`\hat\phi_v`
would be noise larger than any characteristic function can be: there it is shrunk to zero. So it
is finite for every noise, also for one whose characteristic function has zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, Complex
from deconflow.classical.lattice import Lattice
from deconflow.noise import Noise

#: Times log(n) by which a frequency's power exceeds the ridge where it is informative.
INFORMATIVE = 2.0
#: Standard deviations of its noise by which a row may lie outside of a box.
FAR = 5.0
#: Largest number of complex values in memory at once, whatever the number of rows.
AT_ONCE = 2_000_000


@dataclass(frozen=True)
class FourierRows:
    """Rows that a classical estimator sees: ``w`` ``(N, D)``, their noise, weights of sum one."""

    w: Array
    noise: Noise
    weights: Array

    def chunks(self, size: int) -> "Iterator[FourierRows]":
        """Walk through the rows in order."""
        for i in range(0, len(self.w), size):
            part = slice(i, i + size)
            yield FourierRows(self.w[part], self.noise[part], self.weights[part])

    def near(self, lattice: Lattice) -> "tuple[FourierRows, int]":
        """Rows in a lattice's box, or outside by what their noise explains; and how many are not.

        The waves of a box repeat: any other row would come back in at another place.
        """
        inside = np.clip(self.w, lattice.low, lattice.low + lattice.length)
        beyond = np.where(np.array(lattice.order) > 0, self.w - inside, 0.0)
        near = (np.abs(beyond) <= FAR * np.sqrt(np.asarray(self.noise.variance()))).all(1)
        if near.all():
            return self, 0
        weights = self.weights[near] / self.weights[near].sum()
        return FourierRows(self.w[near], self.noise[near], weights), int((~near).sum())

    @property
    def effective_number(self) -> float:
        """How many rows of equal weight these are worth."""
        return float(1 / np.square(self.weights).sum())

    def waves(self, lattice: Lattice) -> tuple[Complex, Array]:
        r"""Waves of each row, and the power that its noise lets through, both ``(N, T)``.

        These are :math:`\bar\phi_j e^{i t (w_j - low)}` and :math:`|\phi_j|^2`.
        """
        phi = self.characteristic(lattice)
        offset = (self.w - lattice.low).T[:, :, None]
        waves = _outer([np.exp(1j * x * lattice.axis(d)) for d, x in enumerate(offset)])
        return waves * phi.conj(), np.broadcast_to(np.square(np.abs(phi)), waves.shape)

    def characteristic(self, lattice: Lattice) -> Complex:
        """Characteristic functions of the noise on a lattice, ``(N or 1, T)``."""
        if not self.noise.independent:
            return self.noise.characteristic(lattice.points())
        t = np.zeros((max(lattice.shape), lattice.dim))
        for d, count in enumerate(lattice.shape):
            t[:count, d] = lattice.axis(d)
        phi = self.noise.value_characteristics(t)
        return _outer([phi[:, :count, d] for d, count in enumerate(lattice.shape)])


@dataclass(frozen=True)
class EmpiricalCharacteristic:
    r"""What the rows tell of the truth's characteristic function, on a lattice.

    Attributes
    ----------
    numerator : array
        :math:`\sum_j a_j \bar\phi_j e^{i t w_j}`.
    power, power_of_squares, fourth : array
        :math:`\sum_j a_j |\phi_j|^2`, :math:`\sum_j a_j^2 |\phi_j|^2`,
        :math:`\sum_j a_j^2 |\phi_j|^4`.
    ridge : float
        Least denominator.
    """

    lattice: Lattice
    numerator: Complex
    power: Array
    power_of_squares: Array
    fourth: Array
    ridge: float

    @cached_property
    def denominator(self) -> Array:
        """The denominator of the estimate."""
        return np.maximum(self.power, self.ridge)

    @cached_property
    def estimate(self) -> Complex:
        """The deconvolved characteristic function."""
        return self.numerator / self.denominator

    @cached_property
    def shrinkage(self) -> Array:
        """Expectation of the estimate over the truth: one where the noise lets through enough."""
        return self.power / self.denominator

    @cached_property
    def variance(self) -> Array:
        """Variance of the estimate, an upper bound that is close at high frequencies."""
        return self.power_of_squares / np.square(self.denominator)

    @cached_property
    def unbiased_square(self) -> Array:
        """Squared modulus from pairs of different rows.

        Zero where the error of the estimate is not well below one, the most that there can be.
        """
        informative = self.power > INFORMATIVE * np.log(1 / self.ridge) * self.ridge
        pairs = np.square(np.abs(self.numerator)) - self.power_of_squares
        weight = np.square(self.power) - self.fourth
        informative &= weight > 0
        return np.where(informative, pairs / np.where(informative, weight, 1.0), 0.0)


def empirical_characteristic(rows: FourierRows, lattice: Lattice) -> EmpiricalCharacteristic:
    """Add up the rows' waves on a lattice."""
    numerator, sums = np.zeros(lattice.size, complex), np.zeros((3, lattice.size))
    for part in rows.chunks(max(1, AT_ONCE // lattice.size)):
        waves, power = part.waves(lattice)
        squares = np.square(part.weights)
        numerator += part.weights @ waves
        sums += part.weights @ power, squares @ power, squares @ np.square(power)
    power, power_of_squares, fourth = sums.reshape(3, *lattice.shape)
    numerator, ridge = numerator.reshape(lattice.shape), 1 / rows.effective_number
    return EmpiricalCharacteristic(lattice, numerator, power, power_of_squares, fourth, ridge)


def _outer(factors: list[NDArray]) -> NDArray:
    """Outer product of each row's factors, ``(N, T1) x (N, T2) -> (N, T1 T2)``."""
    return reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(a), -1), factors)
