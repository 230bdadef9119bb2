r"""What is known in closed form of one-dimensional laws: one row for each torch distribution.

A row holds a law's characteristic function, its quantiles, and how it differs from its standard
form: a location, a scale and a shape. Laws are found by the type of the distribution, whoever made
it, so that a noise of :func:`~deconflow.noise.from_law` profits from the table as much as a
ready-made one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special
from torch.distributions import Cauchy, Distribution, Laplace, Normal, StudentT, Uniform

from deconflow._types import Array, Complex
from deconflow.noise.split_normal_law import SplitNormal

LARGEST_LOG_RATIO = 3.0
"""Largest log ratio of the two sides of a split normal that is written as a mixture."""


@dataclass(frozen=True)
class KnownLaw:
    """One row of the catalogue.

    Attributes
    ----------
    characteristic : callable
        Takes the distribution with batch ``(N, D, ...)`` and frequencies ``(T, D, ...)``, and
        returns ``(N, T, D, ...)``.
    quantile : callable
        Takes the distribution and shares ``(..., N, D)``, and returns the values below which these
        lie, of the same shape.
    standard_form : callable
        Takes the distribution and returns location, scale and shape, each ``(N, D)``.
    table : callable or None
        Takes a shape and returns points and masses of the law at location zero and scale one.
        None for the normal law, which is a mixture of one Gaussian.
    symmetric : bool
        Whether the law is a scale mixture of centred Gaussians; its table then is that of the
        positive half line.
    """

    characteristic: Callable[[Any, Array], Complex]
    quantile: Callable[[Any, Array], Array]
    standard_form: Callable[[Any], tuple[Array, Array, Array]]
    table: Callable[[float], tuple[Array, Array]] | None
    symmetric: bool = False


def as_array(tensor: torch.Tensor) -> Array:
    """Bring a tensor to numpy, in double precision."""
    return tensor.detach().cpu().double().numpy()


def _with_axis(parameter: torch.Tensor) -> Array:
    """Parameters ``(N, D, ...)`` with an axis for the frequencies."""
    return as_array(parameter)[:, None]


def _shift(location: torch.Tensor, t: Array) -> Complex:
    return np.exp(1j * _with_axis(location) * t)


# -- characteristic functions -------------------------------------------------------------------


def _normal(law: Any, t: Array) -> Complex:
    return _shift(law.loc, t) * np.exp(-0.5 * np.square(_with_axis(law.scale) * t))


def _laplace(law: Any, t: Array) -> Complex:
    return _shift(law.loc, t) / (1 + np.square(_with_axis(law.scale) * t))


def _cauchy(law: Any, t: Array) -> Complex:
    return _shift(law.loc, t) * np.exp(-np.abs(_with_axis(law.scale) * t))


def _uniform(law: Any, t: Array) -> Complex:
    centre, half_width = (law.low + law.high) / 2, (law.high - law.low) / 2
    return _shift(centre, t) * np.sinc(_with_axis(half_width) * t / np.pi)


def _split_normal(law: Any, t: Array) -> Complex:
    r"""A half normal of scale ``s`` has :math:`w(s t / \sqrt 2)`, with Faddeeva's function."""
    below, above = _with_axis(law.below), _with_axis(law.above)
    left = below * special.wofz(-below * t / np.sqrt(2))
    right = above * special.wofz(above * t / np.sqrt(2))
    return (left + right) / (below + above)


def _student_t(law: Any, t: Array) -> Complex:
    r""":math:`K_{\nu/2}(x) \, x^{\nu/2} / (\Gamma(\nu/2) \, 2^{\nu/2 - 1})`, with
    :math:`x = \sqrt\nu |s t|`; by cumulants where Bessel's function overflows.
    """
    df, size = _with_axis(law.df), np.abs(_with_axis(law.scale) * t)
    x = np.sqrt(df) * size
    with np.errstate(all="ignore"):
        log_bessel = np.log(special.kve(df / 2, x)) - x
        log_phi = log_bessel + df / 2 * np.log(x / 2) - special.gammaln(df / 2) + np.log(2)
        square = np.square(size) * df / (df - 2)
        by_cumulants = -square / 2 + np.square(square) / (4 * (df - 4))
        by_cumulants = np.where(square < df, by_cumulants, -square / 4)  # next to nothing
    # Few degrees of freedom fail only where x is so small or large that the answer is one or zero.
    close = np.where(df > 50, by_cumulants, np.where(x < 1, 0.0, -x))
    return _shift(law.loc, t) * np.exp(np.where(np.isfinite(log_phi), log_phi, close))


# -- quantiles ----------------------------------------------------------------------------------


def _normal_quantile(law: Any, share: Array) -> Array:
    return as_array(law.loc) + as_array(law.scale) * special.ndtri(share)


def _laplace_quantile(law: Any, share: Array) -> Array:
    size = -np.log(2 * np.minimum(share, 1 - share))
    return as_array(law.loc) + as_array(law.scale) * np.copysign(size, share - 0.5)


def _cauchy_quantile(law: Any, share: Array) -> Array:
    return as_array(law.loc) + as_array(law.scale) * np.tan(np.pi * (share - 0.5))


def _student_t_quantile(law: Any, share: Array) -> Array:
    return as_array(law.loc) + as_array(law.scale) * special.stdtrit(as_array(law.df), share)


def _uniform_quantile(law: Any, share: Array) -> Array:
    low, high = as_array(law.low), as_array(law.high)
    return low + (high - low) * share


def _split_normal_quantile(law: Any, share: Array) -> Array:
    """Each side is half a normal, with a mass as large as its scale."""
    below, above = as_array(law.below), as_array(law.above)
    left = share * (below + above) < below
    scale = np.where(left, -below, above)
    mass = np.where(left, share, 1 - share) * (below + above) / np.where(left, below, above)
    return -scale * special.ndtri(mass / 2)


# -- standard forms -----------------------------------------------------------------------------


def _location_scale(law: Any) -> tuple[Array, Array, Array]:
    scale = as_array(law.scale)
    return as_array(law.loc), scale, np.zeros_like(scale)


def _student_t_form(law: Any) -> tuple[Array, Array, Array]:
    return as_array(law.loc), as_array(law.scale), as_array(law.df)


def _uniform_form(law: Any) -> tuple[Array, Array, Array]:
    low, high = as_array(law.low), as_array(law.high)
    return (low + high) / 2, (high - low) / 2, np.zeros_like(low)


def _split_normal_form(law: Any) -> tuple[Array, Array, Array]:
    """Total width, and log ratio of the noise's positive to its negative side, in steps of 5 %."""
    below, above = as_array(law.below), as_array(law.above)
    ratio = np.log(above / below)
    if np.abs(ratio).max() > LARGEST_LOG_RATIO:
        raise ValueError(
            "Expected lower and upper errors within a factor of 20 of each other for XD; "
            f"got a factor of {np.exp(np.abs(ratio).max()):.3g}. Use a flow."
        )
    return np.zeros_like(below), above + below, np.round(20 * ratio) / 20


# -- standard laws as tables --------------------------------------------------------------------


def _half_line(law: Distribution) -> tuple[Array, Array]:
    points = torch.as_tensor(np.sinh(np.linspace(0, 14, 501)) * 1e-3)
    mass = law.log_prob(points).exp().numpy() * np.gradient(points.numpy())
    return points.numpy(), mass / mass.sum()


def _student_t_table(df: float) -> tuple[Array, Array]:
    return _half_line(StudentT(df))


def _laplace_table(_: float) -> tuple[Array, Array]:
    return _half_line(Laplace(0.0, 1.0))


def _cauchy_table(_: float) -> tuple[Array, Array]:
    return _student_t_table(1.0)


def _uniform_table(_: float) -> tuple[Array, Array]:
    return np.linspace(-1, 1, 300), np.full(300, 1 / 300)


def _split_normal_table(log_ratio: float) -> tuple[Array, Array]:
    above = 1 / (1 + np.exp(-log_ratio))
    below = 1 - above
    x = np.linspace(-4.5 * below, 4.5 * above, 300)
    mass = np.exp(-0.5 * (x / np.where(x < 0, below, above)) ** 2)
    return x, mass / mass.sum()


CATALOGUE: dict[type[Distribution], KnownLaw] = {
    Normal: KnownLaw(_normal, _normal_quantile, _location_scale, None),
    Laplace: KnownLaw(_laplace, _laplace_quantile, _location_scale, _laplace_table, symmetric=True),
    Cauchy: KnownLaw(_cauchy, _cauchy_quantile, _location_scale, _cauchy_table, symmetric=True),
    StudentT: KnownLaw(
        _student_t, _student_t_quantile, _student_t_form, _student_t_table, symmetric=True
    ),
    Uniform: KnownLaw(_uniform, _uniform_quantile, _uniform_form, _uniform_table),
    SplitNormal: KnownLaw(
        _split_normal, _split_normal_quantile, _split_normal_form, _split_normal_table
    ),
}
"""The table; a law that is not in it has its integrals and mixtures by numbers."""
