r"""The deconvolving kernel density estimator on a grid.

.. math:: \hat f(x) = (2 \pi)^{-D} \int e^{-i t \cdot x} \, \hat\phi_v(t)
          \prod_d \phi_K(h_d t_d) \, dt
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deconflow.classical.bandwidths import (
    FACTORS,
    by_dimension,
    choose_factor,
    kernel_on,
    normal_square,
)
from deconflow.classical.empirical import EmpiricalCharacteristic, Rows, look_at
from deconflow.classical.kernels import KERNELS
from deconflow.classical.lattice import MOST_ORDERS, Lattice, enclose, orders_for, warn_outside

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class FourierFit:
    """A density by its characteristic function on a lattice, before the cut at zero.

    Attributes
    ----------
    lattice, characteristic
        The frequencies, and the smoothed characteristic function there.
    relative_error : float
        Integrated squared error that comes from the noise, over the density's integrated square.
    """

    lattice: Lattice
    characteristic: Complex
    relative_error: float


def fit_kde(
    rows: Rows, scale: Array, spread: Array, kernel_name: str, bandwidth: str | Array
) -> tuple[Array, FourierFit]:
    """Choose bandwidths ``(D,)`` unless they are given, and estimate.

    ``scale`` and ``spread`` are standard deviations of the truth and of the measurement.
    """
    kernel, dim = KERNELS[kernel_name], rows.w.shape[1]
    if isinstance(bandwidth, str):
        single, reference = by_dimension(rows, kernel, scale, spread, bandwidth)
        alone = dim == 1 and bandwidth != "cv"
        look = look_at(rows, box_lattice(rows.w, single, 1.0 if alone else FACTORS[dim][0]))
        factor = 1.0 if alone else choose_factor(look, kernel, single, reference, bandwidth)
        chosen = factor * single
    else:
        chosen = bandwidth
        look = look_at(rows, box_lattice(rows.w, chosen, 1.0))
    K = kernel_on(look.lattice, kernel, chosen)
    return chosen, _smooth(look, K, scale, chosen)


def box_lattice(w: Array, bandwidth: Array, factor: float) -> Lattice:
    """Lattice of a box around the rows, up to the band of ``factor`` bandwidths.

    Where that would be too many frequencies, the factor is raised up to one; if even that is not
    enough, the box is cut.
    """
    dim = w.shape[1]
    most = MOST_ORDERS[dim]
    pad = np.maximum(5 * bandwidth, 0.1 * np.ptp(w, axis=0))
    low, length = enclose(w, pad, 2 * np.pi * bandwidth * most)
    warn_outside(w, low, length)
    needed = float(np.max(length / (2 * np.pi * bandwidth * most)))
    return Lattice(low, length, orders_for(length, max(factor, needed) * bandwidth))


def _smooth(look: EmpiricalCharacteristic, K: Array, scale: Array, bandwidth: Array) -> FourierFit:
    error = relative_error(look, K, scale)
    order = np.minimum(look.lattice.order, orders_for(look.lattice.length, bandwidth))
    trimmed = look.lattice.trim(tuple(int(k) for k in order), look.estimate * K)
    return FourierFit(*trimmed, error)


def relative_error(look: EmpiricalCharacteristic, K: Array, scale: Array) -> float:
    """Error that the noise causes if the truth is normal, over the truth's integrated square.

    Variance, and what is shrunk to zero because nothing is known; frequency zero is left out,
    where all densities agree.
    """
    signal = np.square(K) * normal_square(look.lattice, scale)
    error = np.square(K) * look.variance + signal * np.square(1 - look.shrinkage)
    origin = (*look.lattice.order[:-1], 0)
    signal[origin] = error[origin] = 0.0
    signal_total = look.lattice.total(signal)
    return look.lattice.total(error) / signal_total if signal_total > 0 else 0.0
