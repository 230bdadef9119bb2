"""True laws of simulated tasks: draws of ``v`` and the exact ``log p(v)``."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import expon, gamma, lognorm, norm

Array = NDArray[np.float64]

RADIUS, RADIUS_SD = 2.0, 0.15
LOG_SD = 0.6
CLUMP_SDS, CLUMP_DISTANCE = np.array([1.0, 0.5]), 4.0
SLAB_SHARE, SLAB_SD = 0.15, 0.3


def ring(n: int, rng: np.random.Generator) -> Array:
    """Draw ``r (cos t, sin t)``, ``t ~ U(0, 2 pi)``, ``r ~ N(2, .15^2)``."""
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(RADIUS, RADIUS_SD, n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)


def ring_log_p(v: Array) -> Array:
    """``p(v) = N(|v|; 2, .15^2) / (2 pi |v|)``; negative radii are 13 deviations away."""
    radius = np.hypot(v[:, 0], v[:, 1])
    return norm.logpdf(radius, RADIUS, RADIUS_SD) - np.log(2 * np.pi * radius)


def explog(n: int, rng: np.random.Generator) -> Array:
    """Draw ``a ~ Exp(1)``, ``b = exp(.6 N(0, 1))``, ``c = a / 2 + Exp(mean .5)``."""
    a, b = rng.exponential(1.0, n), np.exp(LOG_SD * rng.normal(size=n))
    return np.stack([a, b, a / 2 + rng.exponential(0.5, n)], -1)


def explog_log_p(v: Array) -> Array:
    """``p(a, b, c) = exp(-a) p(b) 2 exp(-2 (c - a / 2))`` for ``a, b > 0``, ``c > a / 2``.

    The map from ``(a, c - a / 2)`` to ``(a, c)`` has determinant one.
    """
    a, b, c = v.T
    return expon.logpdf(a) + lognorm.logpdf(b, LOG_SD) + expon.logpdf(c - a / 2, scale=0.5)


def gamma_log_p(shape: float, v: Array) -> Array:
    """``log p`` of Gamma(k, 1)."""
    return gamma.logpdf(v, shape)


def sparse(n: int, rng: np.random.Generator) -> Array:
    """Draw 0 with probability .85, else ``N(0, .3^2)``."""
    return np.where(rng.uniform(size=n) < SLAB_SHARE, SLAB_SD * rng.normal(size=n), 0.0)[:, None]


def slab_density(v: float) -> float:
    """``.15 N(v; 0, .3^2)``: the density of the sparse law away from its atom at zero."""
    return float(SLAB_SHARE * norm.pdf(v, 0.0, SLAB_SD))


def clumps(n: int, rng: np.random.Generator) -> Array:
    """Draw from two Gaussians with equal shares, ``N((m, m), diag(1, .25))``, m = 0 and 4."""
    which = rng.integers(2, size=(n, 1))
    return CLUMP_SDS * rng.normal(size=(n, 2)) + CLUMP_DISTANCE * which


def clumps_log_p(v: Array) -> Array:
    """``log p`` of the two clumps."""
    each = [norm.logpdf(v, mean, CLUMP_SDS).sum(1) for mean in (0.0, CLUMP_DISTANCE)]
    return np.logaddexp(*each) - np.log(2)
