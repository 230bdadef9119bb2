r"""The deconvolved characteristic function of the rows, on a lattice.

With :math:`\phi_j` the characteristic function of row j's noise and row weights :math:`a_j` that
sum to one (Delaigle and Meister 2008),

.. math:: \hat\phi_v(t) = \frac{\sum_j a_j \, \bar\phi_j(t) \, e^{i t w_j}}
                               {\max(\sum_j a_j |\phi_j(t)|^2, \; 1 / n)}

Below :math:`1/n` the denominator is less than its numerator's error, and :math:`\hat\phi_v`
would be noise larger than any characteristic function can be: there it is shrunk to zero. So it
is finite for every noise, also for one whose characteristic function has zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow._types import Array, Complex
from deconflow.classical.lattice import Lattice
from deconflow.noise import GaussianNoise, Noise

INFORMATIVE = 2.0
"""Times log(n) by which a frequency's power exceeds the ridge where it is informative."""
FAR, FAR_LOG = 5.0, 30.0
"""By how many standard deviations of its noise a row may lie outside of a box; or further, if the
noise's log density falls by less than this."""
AT_ONCE = 2_000_000
"""Largest number of complex values in memory at once, whatever the number of rows."""


@dataclass(frozen=True)
class FourierRows:
    """Rows that a classical estimator sees: ``w`` ``(N, D)``, their noise, weights of sum one."""

    w: Array
    noise: Noise
    weights: Array

    def chunks(self, size: int) -> Iterator[FourierRows]:
        """Walk through the rows in order."""
        for i in range(0, len(self.w), size):
            part = slice(i, i + size)
            yield FourierRows(self.w[part], self.noise[part], self.weights[part])

    def are_near(self, lattice: Lattice) -> NDArray[np.bool_]:
        """Say which rows lie in a lattice's box, or outside by what their noise explains.

        The waves of a box repeat: any other row would come back in at another place.
        """
        inside = np.clip(self.w, lattice.low, lattice.low + lattice.length)
        beyond = np.where(np.array(lattice.order) > 0, self.w - inside, 0.0)
        sd = np.sqrt(self.noise.variance().numpy())
        near = (np.abs(beyond) <= FAR * sd).all(1)
        if not near.all() and not isinstance(self.noise, GaussianNoise):
            doubtful = np.flatnonzero(~near)
            near[doubtful] = _reaches(self.noise[doubtful], torch.from_numpy(beyond[doubtful]))
        return near

    def only(self, chosen: NDArray[np.bool_]) -> FourierRows:
        """Leave rows out."""
        if chosen.all():
            return self
        weights = self.weights[chosen]
        noise = self.noise[torch.from_numpy(chosen)]
        return FourierRows(self.w[chosen], noise, weights / weights.sum())

    @property
    def effective_number(self) -> float:
        """How many rows of equal weight these are worth."""
        return float(1 / np.square(self.weights).sum())


def _reaches(noise: Noise, beyond: torch.Tensor) -> NDArray[np.bool_]:
    """Say whether a law has tails that are heavy enough to reach so far."""
    mean = noise.mean().expand_as(beyond)
    falls = noise.log_prob(mean) - noise.log_prob(torch.where(beyond == 0, mean, beyond))
    return (falls < FAR_LOG).numpy()


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
    def informative(self) -> NDArray[np.bool_]:
        """Where the estimate's error is well below one, the most that there can be to tell."""
        return self.power > INFORMATIVE * np.log(1 / self.ridge) * self.ridge

    @cached_property
    def unbiased_square(self) -> Array:
        """Squared modulus from pairs of different rows; zero where there is too little to tell."""
        pairs = np.square(np.abs(self.numerator)) - self.power_of_squares
        weight = np.square(self.power) - self.fourth
        informative = self.informative & (weight > 0)
        return np.where(informative, pairs / np.where(informative, weight, 1.0), 0.0)


def empirical_characteristic(rows: FourierRows, lattice: Lattice) -> EmpiricalCharacteristic:
    """Add up the rows' waves on a lattice."""
    if rows.noise.shared:
        sums = _shared(rows, lattice)
    elif rows.noise.independent:
        sums = _by_rows(rows, lattice, _separable)
    else:
        sums = _by_rows(rows, lattice, _entangled)
    return EmpiricalCharacteristic(lattice, *sums, ridge=1 / rows.effective_number)


Sums = tuple[Complex, Array, Array, Array]


def _shared(rows: FourierRows, lattice: Lattice) -> Sums:
    """One noise for all rows: its characteristic function comes out of the sums."""
    if rows.noise.independent:
        phi = lattice.product([phi[0] for phi in _along_axes(rows.noise, lattice)])
    else:
        phi = rows.noise.characteristic(lattice.points())[0].reshape(lattice.shape)
    waves = np.zeros(lattice.shape, complex)
    for part in rows.chunks(_chunk(lattice)):
        waves += _contract(part.weights, _waves(part.w, lattice))
    power = np.square(np.abs(phi))
    squares = np.square(rows.weights).sum()
    return waves * phi.conj(), power, squares * power, squares * np.square(power)


def _by_rows(
    rows: FourierRows, lattice: Lattice, sums_of: Callable[[FourierRows, Lattice], Sums]
) -> Sums:
    """Noise row by row: add up pieces of bounded memory."""
    size = _chunk(lattice) if sums_of is _separable else AT_ONCE // lattice.size
    parts = (sums_of(part, lattice) for part in rows.chunks(max(1, size)))
    numerator, *real = (sum(sums) for sums in zip(*parts, strict=True))
    return (numerator, *real)


def _separable(rows: FourierRows, lattice: Lattice) -> Sums:
    """Independent values: every row is a product over dimensions, and sums are contractions."""
    phis = _along_axes(rows.noise, lattice)
    powers = [np.square(np.abs(p)) for p in phis]
    waves = [e * p.conj() for e, p in zip(_waves(rows.w, lattice), phis, strict=True)]
    a, squares = rows.weights, np.square(rows.weights)
    return (
        _contract(a, waves),
        _contract(a, powers),
        _contract(squares, powers),
        _contract(squares, [np.square(p) for p in powers]),
    )


def _entangled(rows: FourierRows, lattice: Lattice) -> Sums:
    """Full covariances row by row: every row at every frequency."""
    phi = rows.noise.characteristic(lattice.points())
    wave = _outer(_waves(rows.w, lattice)) * phi.conj()
    power = np.square(np.abs(phi))
    a, squares = rows.weights, np.square(rows.weights)
    shape = lattice.shape
    return (
        (a @ wave).reshape(shape),
        (a @ power).reshape(shape),
        (squares @ power).reshape(shape),
        (squares @ np.square(power)).reshape(shape),
    )


def _along_axes(noise: Noise, lattice: Lattice) -> list[Complex]:
    """Characteristic functions ``(N or 1, T)`` of each value along its dimension."""
    steps = np.arange(max(lattice.shape))[:, None]  # shorter axes go on: equal steps are quicker
    t = 2 * np.pi / lattice.length * (steps + [lattice.first(d) for d in range(lattice.dim)])
    phi = noise.value_characteristics(t)
    return [phi[:, :count, d] for d, count in enumerate(lattice.shape)]


def _waves(w: Array, lattice: Lattice) -> list[Complex]:
    """``exp(i t (w - low))`` along each dimension."""
    offset = w - lattice.low
    return [np.exp(1j * offset[:, d, None] * lattice.axis(d)) for d in range(lattice.dim)]


def _contract(weights: Array, factors: list[NDArray]) -> NDArray:
    """Sum over rows of the outer products of each row's factors."""
    *others, last = factors
    left = _outer([weights[:, None], *others])
    return (left.T @ last).reshape([factor.shape[1] for factor in factors])


def _outer(factors: list[NDArray]) -> NDArray:
    """Outer product of each row's factors, ``(N, T1) x (N, T2) -> (N, T1 T2)``."""
    return reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(a), -1), factors)


def _chunk(lattice: Lattice) -> int:
    """Rows at once: the outer product of all dimensions but the last is what takes memory."""
    return max(1, AT_ONCE // max(lattice.size // lattice.shape[-1], *lattice.shape, 1))
