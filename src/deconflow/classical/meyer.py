r"""Meyer's wavelets on a box, in Fourier space.

At level j there are :math:`2^j` functions, shifts of one whose Fourier coefficients are
:math:`2^{-j/2} \, W(l / 2^j)`: flat up to 1/3 and zero from 2/3 for the scaling function, between
1/3 and 4/3 for the wavelet. They have finitely many frequencies, so that dividing by a
characteristic function is exact, and they are orthonormal on the box of length one.

References
----------
Pensky and Vidakovic (1999), "Adaptive wavelet estimator for nonparametric density
deconvolution", Annals of Statistics 27.
"""

from __future__ import annotations

import numpy as np

from deconflow._types import Array, Complex


def scaling_window(r: Array) -> Array:
    """Meyer's scaling function at the relative frequencies ``r = |l| / 2^j``."""
    return np.where(r < 2 / 3, np.cos(np.pi / 2 * _rise(3 * r - 1)), 0.0)


def wavelet_window(r: Array) -> Complex:
    """Meyer's wavelet at the relative frequencies ``r``, centred between two shifts."""
    up = np.sin(np.pi / 2 * _rise(3 * r - 1))
    down = np.cos(np.pi / 2 * _rise(1.5 * r - 1))
    return np.where(r < 2 / 3, up, np.where(r < 4 / 3, down, 0.0)) * np.exp(-1j * np.pi * r)


WINDOWS = {"scaling": scaling_window, "wavelet": wavelet_window}
ENDS = {"scaling": 2 / 3, "wavelet": 4 / 3}


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
    spectrum[..., k] = characteristic * (twice * WINDOWS[kind](k / size))
    folded = spectrum[..., :size] + spectrum[..., size:]
    return np.fft.fft(folded).real / np.sqrt(size)


def synthesise(coefficients: Array, level: int, kind: str, order: int) -> Complex:
    """Characteristic function at the frequencies ``0..order`` of a sum of functions."""
    size = 2**level
    k = np.arange(order + 1)
    waves = np.fft.fft(coefficients)[k % size]
    return (WINDOWS[kind](k / size) * waves).conj() / np.sqrt(size)


def _rise(x: Array) -> Array:
    """A smooth step from 0 to 1 with ``rise(x) + rise(1 - x) = 1``."""
    x = np.clip(x, 0, 1)
    return x**4 * (35 - 84 * x + 70 * x**2 - 20 * x**3)
