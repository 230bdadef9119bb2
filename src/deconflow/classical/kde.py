r"""The deconvolving kernel density estimator on a grid.

.. math:: \hat f(x) = (2 \pi)^{-D} \int e^{-i t \cdot x} \, \hat\phi_v(t)
          \prod_d \phi_K(h_d t_d) \, dt
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deconflow._types import Array, Complex
from deconflow.classical.bandwidths import (
    FACTORS,
    by_dimension,
    choose_factor,
    kernel_on,
    normal_square,
)
from deconflow.classical.empirical import (
    EmpiricalCharacteristic,
    FourierRows,
    empirical_characteristic,
)
from deconflow.classical.kernels import KERNELS
from deconflow.classical.lattice import MOST_ORDERS, Lattice, enclose, orders_for


@dataclass(frozen=True)
class FourierFit:
    """A density by its characteristic function on a lattice, before the cut at zero.

    Attributes
    ----------
    lattice, characteristic
        The frequencies, and the smoothed characteristic function there.
    relative_error : float
        Integrated squared error that comes from the noise, over the density's integrated square.
    far_weights : array
        Weights of the rows that lie too far out for the grid.
    """

    lattice: Lattice
    characteristic: Complex
    relative_error: float
    far_weights: Array


def fit_kde(
    rows: FourierRows, scale: Array, spread: Array, kernel_name: str, bandwidth: str | Array
) -> tuple[Array, FourierFit]:
    """Choose bandwidths ``(D,)`` unless they are given, and estimate.

    ``scale`` and ``spread`` are standard deviations of the truth and of the measurement.
    """
    kernel, dim = KERNELS[kernel_name], rows.w.shape[1]
    rule = bandwidth if isinstance(bandwidth, str) else None
    if isinstance(bandwidth, str):
        chosen, reference = by_dimension(rows, kernel, scale, spread, bandwidth)
    else:
        chosen, reference = bandwidth, scale
    box = box_lattice(rows.w, chosen, FACTORS[dim][0] if rule else 1.0)
    near = rows.are_near(box)
    ecf = empirical_characteristic(rows.only(near), box)
    if rule and dim > 1:
        chosen = chosen * choose_factor(ecf, kernel, chosen, reference, rule)
    K = kernel_on(ecf.lattice, kernel, chosen)
    error = relative_error(ecf, K, scale)
    order = np.minimum(box.order, orders_for(box.length, chosen))
    trimmed = box.trim(tuple(int(k) for k in order), ecf.estimate * K)
    return chosen, FourierFit(*trimmed, error, rows.weights[~near])


def box_lattice(w: Array, bandwidth: Array, factor: float) -> Lattice:
    """Lattice of a box around the rows, up to the band of ``factor`` bandwidths.

    Where that would be too many frequencies, the factor is raised up to one; if even that is not
    enough, the box is cut.
    """
    dim = w.shape[1]
    most = MOST_ORDERS[dim]
    pad = np.maximum(10 * bandwidth, 0.1 * np.ptp(w, axis=0))
    low, length = enclose(w, pad, 2 * np.pi * bandwidth * most)
    needed = float(np.max(length / (2 * np.pi * bandwidth * most)))
    return Lattice(low, length, orders_for(length, max(factor, needed) * bandwidth))


def relative_error(ecf: EmpiricalCharacteristic, K: Array, scale: Array) -> float:
    """Error that the noise causes, over the integrated square of the truth.

    The error is the variance, and what is shrunk to zero because nothing is known. The square is
    what pairs of rows tell, or a normal law's if that is more. Frequency zero is left out, where
    all densities agree.
    """
    band = np.square(K)
    band[(*ecf.lattice.order[:-1], 0)] = 0.0
    normal = normal_square(ecf.lattice, scale)
    hidden = normal * np.square(1 - ecf.shrinkage)
    squares = (ecf.lattice.total(band * square) for square in (ecf.unbiased_square, normal))
    signal = max(squares)
    return ecf.lattice.total(band * (ecf.variance + hidden)) / signal if signal > 0 else 0.0
