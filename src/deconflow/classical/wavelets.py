r"""Meyer's wavelets on a box, in Fourier space, and which of their coefficients to keep.

At level j there are :math:`2^j` functions, shifts of one whose Fourier coefficients are
:math:`2^{-j/2} \, W(l / 2^j)`: flat up to 1/3 and zero from 2/3 for the scaling function, between
1/3 and 4/3 for the wavelet. They have finitely many frequencies, so that dividing by a
characteristic function is exact, and they are orthonormal on the box of length one.

A coefficient is a sum over rows, so its variance is estimated from the rows' own shares: whatever
the noise is, and wherever the rows lie.

References
----------
Pensky and Vidakovic (1999), "Adaptive wavelet estimator for nonparametric density
deconvolution", Annals of Statistics 27.
"""

from dataclasses import dataclass, replace

import numpy as np

from deconflow._types import Array, Complex
from deconflow.classical.fourier import (
    AT_ONCE,
    EmpiricalCharacteristic,
    FourierFit,
    Lattice,
    effective_number,
    near,
    waves_of,
)
from deconflow.observations import Observations

#: Levels that may be chosen or given.
COARSEST, FINEST = 1, 10
#: Ends of the functions in Fourier space.
ENDS = {"scaling": 2 / 3, "wavelet": 4 / 3}


def window(r: Array, kind: str) -> Complex:
    """Meyer's functions at the relative frequencies ``r = |l| / 2^j``.

    The wavelet is centred between two shifts.
    """
    rise = 0.5 * np.pi * _rise(3 * r - 1)
    if kind == "scaling":
        return np.where(r < 2 / 3, np.cos(rise), 0.0).astype(complex)
    down = np.where(r < 4 / 3, np.cos(0.5 * np.pi * _rise(1.5 * r - 1)), 0.0)
    return np.where(r < 2 / 3, np.sin(rise), down) * np.exp(-1j * np.pi * r)


def order_of(level: int, kind: str) -> int:
    """Highest frequency number of a level's functions."""
    return int(np.ceil(ENDS[kind] * 2**level)) - 1


def analyse(characteristic: Complex, level: int, kind: str) -> Array:
    """Coefficients ``(..., 2^level)`` of densities on the unit box.

    ``characteristic`` ``(..., order + 1)`` is at the frequencies ``0..order_of(level, kind)``.
    """
    size = 2**level
    k = np.arange(characteristic.shape[-1])
    spectrum = np.zeros((*characteristic.shape[:-1], 2 * size), complex)
    twice = np.where(k == 0, 1.0, 2.0)  # for the negative frequencies
    spectrum[..., k] = characteristic * (twice * window(k / size, kind))
    return np.fft.fft(spectrum[..., :size] + spectrum[..., size:]).real / np.sqrt(size)


def synthesise(coefficients: Array, level: int, kind: str, order: int) -> Complex:
    """Characteristic function at the frequencies ``0..order`` of a sum of functions."""
    size = 2**level
    k = np.arange(order + 1)
    return (window(k / size, kind) * np.fft.fft(coefficients)[k % size]).conj() / np.sqrt(size)


def _rise(x: Array) -> Array:
    """A smooth step from 0 to 1 with ``rise(x) + rise(1 - x) = 1``."""
    x = np.clip(x, 0, 1)
    return x**4 * (35 - 84 * x + 70 * x**2 - 20 * x**3)


@dataclass(frozen=True)
class Coefficients:
    """Coefficients ``(2^level,)`` of one level, with the variances of their estimates.

    ``within_reach`` says whether the noise lets the frequencies through that the level adds.
    """

    level: int
    kind: str
    values: Array
    variances: Array
    within_reach: bool

    def thresholded(self, bar: float) -> "Coefficients":
        """Keep those that exceed ``bar`` standard deviations."""
        large = np.abs(self.values) > bar * np.sqrt(self.variances)
        return replace(self, values=np.where(large, self.values, 0.0))


def measure(rows: Observations, low: Array, length: Array, level: int, kind: str) -> Coefficients:
    """Estimate one level's coefficients and their variances from rows in one dimension."""
    lattice = Lattice(low, length, (order_of(level, kind),))
    ecf = EmpiricalCharacteristic(rows, lattice)
    values, squares = np.zeros(2**level), np.zeros(2**level)
    for part in rows.chunks(max(1, AT_ONCE // 2 ** (level + 1))):
        waves = part.weights[:, None] * waves_of(part, lattice)[0]
        shares = analyse(waves / ecf.denominator, level, kind)
        values += shares.sum(0)
        squares += np.square(shares).sum(0)
    variances = squares - np.square(values) / effective_number(rows)
    within_reach = bool(ecf.power[int(np.ceil(2**level / 3))] > ecf.ridge)
    return Coefficients(level, kind, values, np.clip(variances, 0, None), within_reach)


def fit_wavelets(
    rows: Observations, low: Array, length: Array, level: int | None
) -> tuple[list[Coefficients], FourierFit]:
    """Estimate the density's characteristic function in one dimension.

    The linear estimator up to the level where wavelets gain most, and above it those wavelets
    that exceed what pure error hardly ever does, below ``level`` if there is one.
    """
    rows, n_far = near(rows, Lattice(low, length, (1,)))
    bar = float(np.sqrt(2 * np.log(effective_number(rows))))
    levels = _informative(rows, low, length, level, bar)
    # The fall of the integrated squared error from keeping a level, less twice its own error. The
    # estimate without bias subtracts two variances; a few frequencies cause most of the variance,
    # so that the error of the estimate is as large as the variance itself.
    gains = [(np.square(part.values) - 4 * part.variances).sum() for part in levels]
    start = int(np.cumsum([0.0, *gains]).argmax())
    linear = measure(rows, low, length, COARSEST + start, "scaling")
    kept = [linear, *(wavelets.thresholded(bar) for wavelets in levels[start:])]
    order = max(order_of(part.level, part.kind) for part in kept)
    parts = [synthesise(part.values, part.level, part.kind, order) for part in kept]
    lattice = Lattice(low, length, (order,))
    return kept, FourierFit(lattice, np.sum(parts, 0), _relative_error(kept), n_far)


def _informative(
    rows: Observations, low: Array, length: Array, level: int | None, bar: float
) -> list[Coefficients]:
    """Wavelets below a level; without one, up to the last level that can tell anything.

    That is where errors exceed the signal, the noise lets nothing through, or two levels in a row
    have no coefficient above its threshold.
    """
    levels: list[Coefficients] = []
    empty = 0
    signal = np.square(measure(rows, low, length, COARSEST, "scaling").values).sum()
    for j in range(COARSEST, FINEST if level is None else level):
        wavelets = measure(rows, low, length, j, "wavelet")
        hopeless = not wavelets.within_reach or wavelets.variances.sum() > signal
        if level is None and (hopeless or empty == 2):
            break
        levels.append(wavelets)
        empty = 0 if wavelets.thresholded(bar).values.any() else empty + 1
    return levels


def _relative_error(kept: list[Coefficients]) -> float:
    """Variance of what is kept over its squares, without the constant that all densities share."""
    signal = sum(np.square(part.values).sum() for part in kept) - 1
    error = sum(part.variances[part.values != 0].sum() for part in kept)
    return float(error / signal) if kept[0].within_reach and signal > 0 else 1.0
