r"""Choosing the bandwidth of a deconvolving kernel estimator.

All rules minimise an estimate of the integrated squared error, which in Fourier space is

.. math:: \int |\phi_K(h t)|^2 \, \mathrm{var} \, \hat\phi_v(t) + |\phi_v(t)|^2 \,
          (\phi_K(h t) - 1)^2 \, dt

- ``"normal_reference"``: :math:`\phi_v` is that of a normal law with the deconvolved variance.
- ``"plug_in"``: of a normal law with the roughness :math:`\int f''^2` of the truth, which is
  estimated in two stages.
- ``"cv"``: least-squares cross-validation, where :math:`|\phi_v|^2` comes from pairs of rows.

In several dimensions the first two rules give each dimension's bandwidth by itself, and a common
factor is chosen for all.

References
----------
Stefanski and Carroll (1990), "Deconvolving kernel density estimators", Statistics 21.
Delaigle and Gijbels (2004), "Practical bandwidth selection in deconvolution kernel density
estimation", Computational Statistics and Data Analysis 45.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, pi, sqrt

import numpy as np
from scipy.stats import norm

from deconflow._types import Array
from deconflow.classical.empirical import (
    EmpiricalCharacteristic,
    FourierRows,
    empirical_characteristic,
)
from deconflow.classical.kernels import SMOOTH_VARIANCE, smooth
from deconflow.classical.lattice import MOST_ORDERS, Lattice, enclose, orders_for

Kernel = Callable[[Array], Array]

RULES = ("plug_in", "normal_reference", "cv")
CANDIDATES = 100
SMALLEST, LARGEST = 0.02, 3.0
"""Bandwidths to try: from this many scales of the densest rows to this many of all rows."""
DENSEST, FEW = (0.1, 0.5), 100
"""Share of the rows that the densest ones are: the smaller, or more so that they are not few."""
FACTORS = {1: (1.0, 1.0), 2: (0.5, 3.0), 3: (0.6, 3.0)}
"""Common factors to try, by dimension."""
CAUTION = 2.0
"""Variances that cross-validation counts on top of its own."""
LEAST_SHARE, MOST_SCALES = 0.3, 1.2
"""The plug-in rule's reference law: at least this share of the densest rows' scale before the
chain, at most so many of the deconvolved scale after it."""


def kernel_on(lattice: Lattice, kernel: Kernel, bandwidth: Array) -> Array:
    """Characteristic function of the product kernel on a lattice."""
    return lattice.product([kernel(bandwidth[d] * lattice.axis(d)) for d in range(lattice.dim)])


def reference_risk(ecf: EmpiricalCharacteristic, K: Array, truth_square: Array) -> float:
    """Integrated squared error, less a constant, if the truth had this squared modulus."""
    signal = K * ecf.shrinkage
    return ecf.lattice.total(
        np.square(K) * ecf.variance + truth_square * (np.square(signal) - 2 * signal)
    )


def cross_validation(ecf: EmpiricalCharacteristic, K: Array) -> float:
    """Integrated squared error, less a constant, by cross-validation."""
    fitted = np.square(K * np.abs(ecf.estimate))
    return ecf.lattice.total(fitted - 2 * K * ecf.shrinkage * ecf.unbiased_square)


def cautious_cross_validation(ecf: EmpiricalCharacteristic, K: Array) -> float:
    r"""Cross-validation that does not follow the noise.

    Where the truth has no signal left, cross-validation gains
    :math:`|\hat\phi_v|^2 - 2 \, \mathrm{var}`, and the square is exponential with that variance:
    one time in seven it pays to let the largest frequencies through, which are all noise. Counting
    four variances makes that one time in fifty.
    """
    return cross_validation(ecf, K) + CAUTION * ecf.lattice.total(np.square(K) * ecf.variance)


def normal_square(lattice: Lattice, scale: Array) -> Array:
    """Squared modulus of a normal law's characteristic function."""
    return lattice.product(
        [np.exp(-np.square(scale[d] * lattice.axis(d))) for d in range(lattice.dim)]
    )


def by_dimension(
    rows: FourierRows, kernel: Kernel, scale: Array, spread: Array, rule: str
) -> tuple[Array, Array]:
    """Bandwidth of each dimension by itself, and the scale of the reference law that gave it."""
    answers = [
        _of_one_dimension(rows, d, kernel, scale, spread, rule) for d in range(rows.w.shape[1])
    ]
    bandwidth, reference = zip(*answers, strict=True)
    return np.array(bandwidth), np.array(reference)


def choose_factor(
    ecf: EmpiricalCharacteristic, kernel: Kernel, bandwidth: Array, reference: Array, rule: str
) -> float:
    """Choose the common factor of all dimensions' bandwidths."""
    lattice = ecf.lattice
    low, high = FACTORS[lattice.dim]
    factors = np.geomspace(low, high, 60)
    # The lattice may end before the smallest bandwidth's band does.
    orders = np.array([orders_for(lattice.length, c * bandwidth) for c in factors])
    factors = factors[(orders <= lattice.order).all(1)]
    kernels = (kernel_on(lattice, kernel, c * bandwidth) for c in factors)
    if rule == "cv":
        risks = [cautious_cross_validation(ecf, K) for K in kernels]
        return _least_risk(factors, risks, 1.0)
    truth = normal_square(lattice, reference)
    return _least_risk(factors, [reference_risk(ecf, K, truth) for K in kernels], 1.0)


def _of_one_dimension(
    rows: FourierRows, d: int, kernel: Kernel, scale: Array, spread: Array, rule: str
) -> tuple[float, float]:
    densest = min(densest_scale(rows.w[:, d], rows.weights), float(spread[d]))
    smallest = SMALLEST * min(densest, float(scale[d]))
    line = _line(rows, d, spread, smallest)
    smallest = max(smallest, line.length[d] / (2 * pi * line.order[d]))
    candidates = np.geomspace(smallest, LARGEST * spread[d], CANDIDATES)
    ecf = empirical_characteristic(rows.only(rows.are_near(line)), line)
    sigma = np.array(scale)
    if rule == "plug_in":
        noise = np.square(spread[d]) - np.square(scale[d])
        start = sqrt(max(densest**2 - noise, np.square(LEAST_SHARE * densest)))
        sigma[d] = _equally_rough_scale(ecf, d, min(start, float(scale[d])), candidates)
        sigma[d] = min(sigma[d], MOST_SCALES * scale[d])
    truth = normal_square(ecf.lattice, sigma)
    t = ecf.lattice.axes()[d]
    kernels = (kernel(h * t) for h in candidates)
    if rule == "cv":
        risks = [cautious_cross_validation(ecf, K) for K in kernels]
    else:
        risks = [reference_risk(ecf, K, truth) for K in kernels]
    return _least_risk(candidates, risks, scale[d]), float(sigma[d])


def _least_risk(candidates: Array, risks: list[float], usual: float) -> float:
    """Return the candidate of least risk, of equal ones (noise may hide all) the most usual."""
    equal = candidates[risks == np.min(risks)]
    return float(equal[np.argmin(np.abs(np.log(equal / usual)))])


def densest_scale(w: Array, weights: Array) -> float:
    """Standard deviation of a normal law whose densest rows lie as close as these do."""
    densest = float(np.clip(FEW * np.square(weights).sum(), *DENSEST))
    order = np.argsort(w)
    w, share = w[order], np.cumsum(weights[order])
    first = np.flatnonzero(share <= 1 - densest)
    last = np.searchsorted(share, share[first] + densest * (1 - 1e-9))
    widths = w[last.clip(max=len(w) - 1)] - w[first]
    widths = widths[widths > 0]
    return float(widths.min() / (2 * norm.ppf((1 + densest) / 2))) if len(widths) else np.inf


def _line(rows: FourierRows, d: int, spread: Array, smallest: float) -> Lattice:
    """Lattice along one dimension, with frequency zero in the others."""
    longest = np.full(len(spread), 2 * pi * smallest * MOST_ORDERS[1])
    low, length = enclose(rows.w, 0.5 * spread, longest)
    order = [0] * len(spread)
    order[d] = orders_for(length, np.full(len(spread), smallest))[d]
    length = np.where(np.arange(len(length)) == d, length, 1.0)
    return Lattice(low, length, tuple(order))


def _equally_rough_scale(
    ecf: EmpiricalCharacteristic, d: int, start: float, candidates: Array
) -> float:
    r"""Scale of the normal law that is as rough as the truth, :math:`\int f''^2` being equal.

    The roughness of order r needs a bandwidth, and the best one that of order r + 1; the chain
    starts at order 4 from a normal law as narrow as the densest rows, in units of its scale.
    """
    rough = _normal_roughness(4)
    for r in (3, 2):
        bandwidth = _roughness_bandwidth(ecf, d, r, rough, start, candidates)
        rough = _roughness(ecf, d, r, bandwidth, start)
    equal = start * (_normal_roughness(2) / max(rough, 1e-300)) ** 0.2
    return max(equal, float(candidates[0]))


def _normal_roughness(r: int) -> float:
    """Roughness of the standard normal law."""
    return factorial(2 * r) / (2 ** (2 * r + 1) * factorial(r) * sqrt(pi))


def _roughness(
    ecf: EmpiricalCharacteristic, d: int, r: int, bandwidth: float, unit: float
) -> float:
    """Roughness of a smoothed estimate, in units in which no power of it overflows."""
    t = ecf.lattice.axes()[d]
    smoothed = smooth(bandwidth * t) * np.abs(ecf.estimate) * ecf.informative
    return unit * ecf.lattice.total((unit * t) ** (2 * r) * np.square(smoothed))


def _roughness_bandwidth(
    ecf: EmpiricalCharacteristic, d: int, r: int, next_rough: float, unit: float, candidates: Array
) -> float:
    """Bandwidth at which the two biases of a roughness, smoothing and variance, cancel."""
    t = ecf.lattice.axes()[d]
    biases = [
        unit
        * ecf.lattice.total(
            (unit * t) ** (2 * r) * np.square(smooth(h * t)) * ecf.variance * ecf.informative
        )
        - SMOOTH_VARIANCE * np.square(h / unit) * next_rough
        for h in candidates
    ]
    return float(candidates[np.argmin(np.abs(biases))])
