r"""Distributions of single values in closed form: one row of a table for each.

All have location zero and scale one; ``q`` is the parameter of their shape, 0 for none. Log
densities are written for numpy and torch at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from deconflow._types import Array, Complex
from deconflow.checks import special_of
from deconflow.noise.gaussian_parts import Table
from deconflow.noise.mixture_fits import fit_scales, fit_tables

#: The normal law's probability of a value below its mean plus one standard deviation.
CENTRAL = 0.8413447460685429
#: Largest log ratio of the two sides of a split normal that is written as a mixture.
LARGEST_LOG_RATIO = 3.0


@dataclass(frozen=True)
class Standard:
    """One row of the table.

    Attributes
    ----------
    log_prob : callable
        ``(xp, x, q)``: log density in the language of the namespace ``xp``.
    variance, mean : callable
        ``(q)``: of laws without a variance the squared half width of the central 68 %.
    quantile : callable
        ``(share, q)``: values below which these shares lie.
    characteristic : callable
        ``(t, q)``.
    points : callable or None
        ``(q)``: points that cover the law; None for the normal law, which is its own mixture.
    symmetric : bool
        Whether the law is a scale mixture of centred Gaussians; points then cover its positive
        half.
    half_width : float
        Half the length of its support.
    draw : callable or None
        ``(rng, q, size)``, if that is quicker than quantiles.
    step : int
        Mixtures are those of shapes rounded to ``1 / step``; 0 for no rounding.
    """

    log_prob: Callable[[Any, Any, Any], Any]
    variance: Callable[[Array], Array]
    quantile: Callable[[Array, Array], Array]
    characteristic: Callable[[Array, Array], Any]
    points: Callable[[float], Array] | None
    mean: Callable[[Array], Array] = np.zeros_like
    symmetric: bool = False
    half_width: float = math.inf
    draw: Callable[..., Array] | None = None
    step: int = 0


# -- normal, Laplace, uniform -------------------------------------------------------------------


def _normal(xp: Any, x: Any, q: Any) -> Any:
    return -0.5 * x**2 - 0.5 * math.log(2 * math.pi)


def _laplace(xp: Any, x: Any, q: Any) -> Any:
    return -math.log(2) - xp.abs(x)


def _laplace_quantile(share: Array, q: Array) -> Array:
    return np.copysign(-np.log(2 * np.minimum(share, 1 - share)), share - 0.5)


def _uniform(xp: Any, x: Any, q: Any) -> Any:
    """Log density on the interval; who asks says what lies outside."""
    return 0 * x - math.log(2)


def _constant(value: float) -> Callable[[Array], Array]:
    return lambda q: np.full(np.shape(q), value)


# -- Student-t ----------------------------------------------------------------------------------


def _student_t(xp: Any, x: Any, q: Any) -> Any:
    gammaln = special_of(xp).gammaln
    top = gammaln((q + 1) / 2) - gammaln(q / 2) - 0.5 * xp.log(q * math.pi)
    return top - (q + 1) / 2 * xp.log1p(x**2 / q)


def _student_t_variance(q: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(q > 2, q / (q - 2), special.stdtrit(q, CENTRAL) ** 2)


def _student_t_wave(t: Array, q: Array) -> Complex:
    r""":math:`K_{\nu/2}(x) \, x^{\nu/2} / (\Gamma(\nu/2) \, 2^{\nu/2 - 1})`, with
    :math:`x = \sqrt\nu |t|`; by cumulants where Bessel's function overflows.
    """
    size = np.abs(t)
    x = np.sqrt(q) * size
    with np.errstate(all="ignore"):
        log_bessel = np.log(special.kve(q / 2, x)) - x
        log_phi = log_bessel + q / 2 * np.log(x / 2) - special.gammaln(q / 2) + np.log(2)
        square = np.square(size) * q / (q - 2)
        by_cumulants = -square / 2 + np.square(square) / (4 * (q - 4))
        by_cumulants = np.where(square < q, by_cumulants, -square / 4)  # next to nothing
    # Few degrees of freedom fail only where x is so small or large that the answer is one or zero.
    close = np.where(q > 50, by_cumulants, np.where(x < 1, 0.0, -x))
    return np.exp(np.where(np.isfinite(log_phi), log_phi, close)) + 0j


def _half_line(q: float) -> Array:
    return np.sinh(np.linspace(0, 14, 501)) * 1e-3


# -- split normal: half normals of scales that sum to one, q is the log of their ratio -----------


def _split(xp: Any, x: Any, q: Any) -> Any:
    side = 1 / (1 + xp.exp(xp.where(x < 0, q, -q)))
    return 0.5 * math.log(2 / math.pi) - 0.5 * (x / side) ** 2


def _split_quantile(share: Array, q: Array) -> Array:
    """Each side is half a normal, with a mass as large as its scale."""
    below, above = special.expit(-q), special.expit(q)
    left = share < below
    mass = np.where(left, share / below, (1 - share) / above)
    return np.where(left, below, -above) * special.ndtri(mass / 2)


def _split_wave(t: Array, q: Array) -> Any:
    r"""A half normal of scale ``s`` has :math:`w(s t / \sqrt 2)`, with Faddeeva's function."""
    below, above = special.expit(-q), special.expit(q)
    left = below * special.wofz(-below * t / np.sqrt(2))
    return left + above * special.wofz(above * t / np.sqrt(2))


def _split_points(q: float) -> Array:
    if abs(q) > LARGEST_LOG_RATIO:
        raise ValueError(
            "Expected lower and upper errors within a factor of 20 of each other for XD; "
            f"got a factor of {np.exp(abs(q)):.3g}. Use a flow."
        )
    return np.linspace(-4.5 * special.expit(-q), 4.5 * special.expit(q), 300)


def _skew(q: Array) -> Array:
    return 2 * special.expit(q) - 1


#: The table.
STANDARD = {
    "normal": Standard(
        _normal, _constant(1.0), lambda share, q: special.ndtri(share),
        lambda t, q: np.exp(-0.5 * np.square(t)) + 0j, None, symmetric=True,
    ),
    "laplace": Standard(
        _laplace, _constant(2.0), _laplace_quantile,
        lambda t, q: 1 / (1 + np.square(t)) + 0j, _half_line, symmetric=True,
    ),
    "student_t": Standard(
        _student_t, _student_t_variance, lambda share, q: special.stdtrit(q, share),
        _student_t_wave, _half_line, symmetric=True,
        draw=lambda rng, q, size: rng.standard_t(np.broadcast_to(q, size)),
    ),
    "uniform": Standard(
        _uniform, _constant(1 / 3), lambda share, q: 2 * share - 1,
        lambda t, q: np.sinc(t / np.pi) + 0j, lambda q: np.linspace(-1, 1, 300), half_width=1.0,
    ),
    "split_normal": Standard(
        _split, lambda q: (1 - 2 / math.pi) * _skew(q) ** 2 + special.expit(q) * special.expit(-q),
        _split_quantile, _split_wave, _split_points,
        mean=lambda q: math.sqrt(2 / math.pi) * _skew(q), step=20,
    ),
}  # fmt: skip


@lru_cache(maxsize=1000)
def parts_of(kind: str, q: float, parts: int) -> Table:
    """Weights, means and variances of the mixture nearest to a standard law."""
    row = STANDARD[kind]
    if row.points is None:
        return np.ones(1), np.zeros(1), np.ones(1)
    x = row.points(q)
    mass = np.exp(row.log_prob(np, x, np.float64(q)))
    if row.symmetric:
        mass = mass * np.gradient(x)
        return fit_scales(x, mass / mass.sum(), parts)
    weights, means, variances = fit_tables(x[None], (mass / mass.sum())[None], parts)
    return weights[0], means[0], variances[0]
