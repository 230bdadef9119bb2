r"""The deconvolving kernel density estimator, with its bandwidth by cross-validation.

.. math:: \hat f(x) = (2 \pi)^{-D} \int e^{-i t \cdot x} \, \hat\phi_v(t)
          \prod_d \phi_K(h_d t_d) \, dt

The bandwidth minimises an estimate of the integrated squared error, in which
:math:`|\phi_v|^2` comes from pairs of rows. In several dimensions each dimension's bandwidth is
chosen by itself, then a common factor for all.

References
----------
Stefanski and Carroll (1990), "Deconvolving kernel density estimators", Statistics 21.
Delaigle and Meister (2008), "Density estimation with heteroscedastic error", Bernoulli 14.
"""

import numpy as np
from scipy.stats import norm

from deconflow._types import Array
from deconflow.classical.fourier import (
    MOST_ORDERS,
    EmpiricalCharacteristic,
    FourierFit,
    Lattice,
    enclose,
    near,
    orders_for,
    product,
)
from deconflow.observations import Observations

CANDIDATES = 100
#: Bandwidths to try: from this many scales of the densest rows to this many of all rows.
SMALLEST, LARGEST = 0.02, 3.0
#: Share of the rows that the densest ones are: the smaller, or more so that they are not few.
DENSEST, FEW = (0.1, 0.5), 100
#: Common factors to try, by dimension.
FACTORS = {1: (1.0, 1.0), 2: (0.5, 3.0), 3: (0.6, 3.0)}
#: Variances that cross-validation counts on top of its own.
CAUTION = 2.0


def flat_top(t: Array) -> Array:
    """Kernel in Fourier space: one up to a half, then a line to zero (de la Vallée Poussin)."""
    return np.clip(2 - 2 * np.abs(t), 0, 1)


def kernel_on(lattice: Lattice, bandwidth: Array) -> Array:
    """Characteristic function of the product kernel on a lattice."""
    return product([flat_top(h * t) for h, t in zip(bandwidth, lattice.axes, strict=True)])


def cross_validation(ecf: EmpiricalCharacteristic, K: Array, caution: float = CAUTION) -> float:
    r"""Integrated squared error, less a constant, that does not follow the noise.

    Where the truth has no signal left, plain cross-validation gains
    :math:`|\hat\phi_v|^2 - 2 \, \mathrm{var}`, and the square is exponential with that variance:
    one time in seven it pays to let the largest frequencies through, which are all noise. Counting
    four variances makes that one time in fifty.
    """
    fitted = np.square(K * np.abs(ecf.estimate))
    own = ecf.lattice.total(fitted - 2 * K * ecf.shrinkage * ecf.unbiased_square)
    return own + caution * ecf.lattice.total(np.square(K) * ecf.variance)


def fit_kde(
    rows: Observations, scale: Array, spread: Array, bandwidth: Array | None
) -> tuple[Array, FourierFit]:
    """Choose bandwidths ``(D,)`` unless they are given, and estimate.

    ``scale`` and ``spread`` are standard deviations of the true values and of the measurements.
    """
    dim, chosen, smallest = rows.dim, bandwidth, 1.0
    if chosen is None:
        chosen = np.array([_of_one_dimension(rows, d, scale, spread) for d in range(dim)])
        smallest = FACTORS[dim][0]
    # Where that would be too many frequencies, the factor is raised up to one; if even that is not
    # enough, the box is cut.
    finest = 2 * np.pi * chosen * MOST_ORDERS[dim]
    low, length = enclose(rows.w, np.maximum(10 * chosen, 0.1 * np.ptp(rows.w, axis=0)), finest)
    band = max(smallest, (length / finest).max()) * chosen
    box = Lattice(low, length, orders_for(length, band))
    some, n_far = near(rows, box)
    ecf = EmpiricalCharacteristic(some, box)
    if bandwidth is None and dim > 1:
        chosen = chosen * _common_factor(ecf, chosen)
    K = kernel_on(box, chosen)
    error = _relative_error(ecf, K, scale)
    order = tuple(map(min, box.order, orders_for(box.length, chosen)))
    return chosen, FourierFit(*box.trim(order, ecf.estimate * K), error, n_far)


def _of_one_dimension(rows: Observations, d: int, scale: Array, spread: Array) -> float:
    """Bandwidth of a dimension by itself."""
    densest = min(densest_scale(rows.w[:, d], rows.weights), float(spread[d]))
    smallest = SMALLEST * min(densest, float(scale[d]))
    line = _line(rows, d, spread, smallest)
    smallest = max(smallest, line.length[d] / (2 * np.pi * line.order[d]))
    candidates = np.geomspace(smallest, LARGEST * spread[d], CANDIDATES)
    ecf = EmpiricalCharacteristic(near(rows, line)[0], line)
    kernels = (flat_top(h * line.axes[d]).reshape(line.shape) for h in candidates)
    return _least_risk(candidates, [cross_validation(ecf, K) for K in kernels], scale[d])


def _common_factor(ecf: EmpiricalCharacteristic, bandwidth: Array) -> float:
    """Common factor of all dimensions' bandwidths."""
    lattice = ecf.lattice
    factors = np.geomspace(*FACTORS[lattice.dim], 60)
    # The lattice may end before the smallest bandwidth's band does.
    orders = np.array([orders_for(lattice.length, c * bandwidth) for c in factors])
    factors = factors[(orders <= lattice.order).all(1)]
    risks = [cross_validation(ecf, kernel_on(lattice, c * bandwidth)) for c in factors]
    return _least_risk(factors, risks, 1.0)


def _least_risk(candidates: Array, risks: list[float], usual: float) -> float:
    """Return the candidate of least risk, of equal ones (noise may hide all) the most usual."""
    equal = candidates[risks == np.min(risks)]
    return float(equal[np.argmin(np.abs(np.log(equal / usual)))])


def densest_scale(w: Array, weights: Array) -> float:
    """Standard deviation of a normal distribution whose densest rows lie as close as these do."""
    densest = float(np.clip(FEW * np.square(weights).sum(), *DENSEST))
    order = np.argsort(w)
    w, share = w[order], np.cumsum(weights[order])
    first = np.flatnonzero(share <= 1 - densest)
    last = np.searchsorted(share, share[first] + densest * (1 - 1e-9))
    widths = w[last.clip(max=len(w) - 1)] - w[first]
    widths = widths[widths > 0]
    return float(widths.min() / (2 * norm.ppf((1 + densest) / 2))) if len(widths) else np.inf


def _line(rows: Observations, d: int, spread: Array, smallest: float) -> Lattice:
    """Lattice along one dimension, with frequency zero in the others."""
    along = np.arange(len(spread)) == d
    low, length = enclose(rows.w, 0.5 * spread, 2 * np.pi * smallest * MOST_ORDERS[1] + 0 * spread)
    order = np.where(along, orders_for(length, smallest + 0 * spread), 0)
    return Lattice(low, np.where(along, length, 1.0), tuple(order.tolist()))


def _relative_error(ecf: EmpiricalCharacteristic, K: Array, scale: Array) -> float:
    """Error that the noise causes, over the integrated square of the true density.

    The error is the variance, and what is shrunk to zero because nothing is known. The square is
    estimated from pairs of rows, or that of a normal density if this is larger. Frequency zero is
    left out, where all densities agree.
    """
    lattice = ecf.lattice
    band = np.square(K)
    band[(*lattice.order[:-1], 0)] = 0.0
    sides = zip(scale, lattice.axes, strict=True)
    normal = product([np.exp(-np.square(size * t)) for size, t in sides])
    hidden = normal * np.square(1 - ecf.shrinkage)
    signal = max(lattice.total(band * square) for square in (ecf.unbiased_square, normal))
    return lattice.total(band * (ecf.variance + hidden)) / signal if signal > 0 else 0.0
