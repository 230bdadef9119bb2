r"""Noise of independent values with a distribution in closed form: one row of a table for each.

All have location zero and scale one; ``q`` is the parameter of their shape, 0 for none. Log
densities are written for numpy and torch at once. To add one, write its row of ``STANDARD``, the
function that users call, and its row of ``BY_ERROR``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from deconflow._types import Array, Complex
from deconflow.checks import (
    SMALLEST,
    array_namespace,
    as_array,
    as_parameter,
    like,
    refuse_if,
    refuse_where,
    special_of,
)
from deconflow.noise.base import Noise, OtherNoise, Table, total
from deconflow.noise.gaussian_noise import gaussian
from deconflow.noise.mixture_fits import fit_scales, fit_tables
from deconflow.noise.mixture_noise import IndependentMixture
from deconflow.randomness import own_rng

__all__ = ["BY_ERROR", "TableNoise", "laplace", "split_normal", "student_t", "uniform"]

#: The normal law's probability of a value below its mean plus one standard deviation.
CENTRAL = 0.8413447460685429
#: Largest log ratio of the two sides of a split normal that is written as a mixture.
LARGEST_LOG_RATIO = 3.0
PARTS_FOR_DIMENSION = {1: 12, 2: 6, 3: 5, 4: 4, 5: 3}
#: Gaussians for each value: in few dimensions so few that all their products are kept.
PARTS_BEYOND = 4


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
    refuse_if(
        abs(q) > LARGEST_LOG_RATIO,
        "Expected lower and upper errors within a factor of 20 of each other for XD; "
        f"got a factor of {np.exp(abs(q)):.3g}. Use a flow.",
    )
    return np.linspace(-4.5 * special.expit(-q), 4.5 * special.expit(q), 300)


def _skew(q: Array) -> Array:
    return 2 * special.expit(q) - 1


#: The table.
STANDARD = {
    "normal": Standard(
        lambda xp, x, q: -0.5 * x**2 - 0.5 * math.log(2 * math.pi),
        _constant(1.0), lambda share, q: special.ndtri(share),
        lambda t, q: np.exp(-0.5 * np.square(t)) + 0j, None, symmetric=True,
    ),
    "laplace": Standard(
        lambda xp, x, q: -math.log(2) - xp.abs(x), _constant(2.0),
        lambda share, q: np.copysign(-np.log(2 * np.minimum(share, 1 - share)), share - 0.5),
        lambda t, q: 1 / (1 + np.square(t)) + 0j, _half_line, symmetric=True,
    ),
    "student_t": Standard(
        _student_t, _student_t_variance, lambda share, q: special.stdtrit(q, share),
        _student_t_wave, _half_line, symmetric=True,
        draw=lambda rng, q, size: rng.standard_t(np.broadcast_to(q, size)),
    ),
    "uniform": Standard(
        lambda xp, x, q: 0 * x - math.log(2),  # on the interval
        _constant(1 / 3), lambda share, q: 2 * share - 1,
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


@dataclass(frozen=True, repr=False)
class TableNoise(OtherNoise):
    """Noise whose values are independent, all of one distribution of the table.

    Attributes
    ----------
    kind : str
        Name of the distribution in the table.
    scale, q : array
        ``(N or 1, D)``; the latter are the parameters of its shape, 0 for none.
    location : array or None
        ``(N or 1, D)``; None for zero.
    """

    kind: str
    scale: Any
    q: Any
    location: Any = None
    by_row = ("scale", "q", "location")

    @property
    def standard(self) -> Standard:
        """Row of the table."""
        return STANDARD[self.kind]

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp = array_namespace(residual)
        scale, q = like(self.scale, residual), like(self.q, residual)
        x = residual if self.location is None else residual - like(self.location, residual)
        x = x / scale
        log_p = self.standard.log_prob(xp, x, q) - xp.log(scale)
        if self.standard.half_width < np.inf:
            rounding = 50 * xp.finfo(residual.dtype).eps / scale
            log_p = xp.where(xp.abs(x) <= self.standard.half_width + rounding, log_p, -xp.inf)
        return total(log_p, self.observed)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        size, q = (k, self.n_rows or len(self.scale), self.dim), as_array(self.q)
        if self.standard.draw is not None:
            drawn = self.standard.draw(own_rng(), q, size)
        else:
            drawn = self.standard.quantile(own_rng().random(size), q)
        return self._moved(like(drawn, self.scale))

    def from_uniform(self, share: Array) -> Array:
        """Make noise ``(K, N, D)`` of as many uniform numbers."""
        return self._moved(self.standard.quantile(share, self.q))

    def _moved(self, x: Any) -> Any:
        """Bring standard values ``(K, N, D)`` to location and scale."""
        return x * self.scale if self.location is None else self.location + x * self.scale

    def mean(self) -> Any:
        """Means ``(N or 1, D)``."""
        return self._moved(like(self.standard.mean(as_array(self.q)), self.scale))

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``; finite also for laws without one."""
        return self.scale**2 * like(self.standard.variance(as_array(self.q)), self.scale)

    def as_mixture(self) -> IndependentMixture:
        """Write the law as a mixture of Gaussians."""
        parts, step = PARTS_FOR_DIMENSION.get(self.dim, PARTS_BEYOND), self.standard.step
        q = as_array(self.q)
        different, which = np.unique(np.round(q * step) / step if step else q, return_inverse=True)
        fits = [parts_of(self.kind, float(each), parts) for each in different]
        weights, means, variances = (np.stack(column) for column in zip(*fits, strict=True))
        return IndependentMixture(
            (weights, means, variances),
            which.reshape(q.shape),
            None if self.location is None else as_array(self.location),
            as_array(self.scale),
        )

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        waves = self.standard.characteristic(self.scale[:, None] * t, self.q[:, None])
        return waves if self.location is None else np.exp(1j * self.location[:, None] * t) * waves

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        return replace(
            self,
            scale=self.scale / scale,
            location=None if self.location is None else self.location / scale,
            kept=None,
        )

    def support_map(self) -> tuple[Any, Any, Any] | None:
        """Return how to reach an interval: the map, its unit, and where it starts."""
        if self.standard.half_width == np.inf:
            return None
        from torch.distributions import biject_to, constraints

        noise = self.to()
        middle, ones = noise.mean(), 1.0 + 0 * noise.scale[0]
        low, high = (middle + sign * self.standard.half_width * noise.scale for sign in (-1, 1))
        return biject_to(constraints.interval(low, high)), ones, 0 * ones


# -- what users call ------------------------------------------------------------------------------


def student_t(scale: ArrayLike, df: ArrayLike) -> TableNoise:
    """Student-t noise with ``df`` degrees of freedom, independent in each value.

    ``scale`` and its kin have shape ``(D,)`` for all rows, or ``(N, D)`` row by row.

    Examples
    --------
    >>> student_t(scale=[0.1, 0.2], df=3.0)
    TableNoise(rows=any number of, dim=2, shared=True)
    """
    (scale, df), shared = _positive(scale=scale, df=df)
    return table_noise("student_t", scale, df, shared)


def laplace(scale: ArrayLike) -> TableNoise:
    """Laplace noise with density proportional to ``exp(-|n| / scale)``."""
    (scale,), shared = _positive(scale=scale)
    return table_noise("laplace", scale, 0 * scale, shared)


def uniform(half_width: ArrayLike) -> TableNoise:
    """Noise uniform between ``-half_width`` and ``half_width``, as from rounding."""
    (half_width,), shared = _positive(half_width=half_width)
    return table_noise("uniform", half_width, 0 * half_width, shared)


def split_normal(lower: ArrayLike, upper: ArrayLike) -> TableNoise:
    """Asymmetric error bars: the measurement ``w`` with ``+upper`` and ``-lower``.

    The true value lies above ``w`` by about ``upper``, or below it by about ``lower``. Since
    ``n = w - v``, the noise itself is ``upper`` wide on its negative side.
    """
    (lower, upper), shared = _positive(lower=lower, upper=upper)
    return table_noise("split_normal", lower + upper, np.log(lower / upper), shared)


#: Noise by its name in tables, of one error for each value, and degrees of freedom.
BY_ERROR: dict[str, Callable[[Array, float], Noise]] = {
    "gaussian": lambda error, df: gaussian(sd=error),
    "student-t": student_t,
    "laplace": lambda error, df: laplace(error / np.sqrt(2)),
    "uniform": lambda error, df: uniform(error),
    "lognormal": lambda error, df: gaussian(sd=error),
}


def table_noise(
    kind: str, scale: Array, q: Array, shared: bool, location: Any = None
) -> TableNoise:
    """Make noise out of the table, of parameters ``(N or 1, D)``."""
    noise = TableNoise(
        kind, scale, q, location, shared=shared, n_rows=None if shared else len(scale)
    )
    refuse_where(
        ~(noise.variance() > 0),
        f"noise wider than {SMALLEST:g}",
        scale,
        "the scale {:g}",
        advice="Change the units.",
        shared=shared,
    )
    return noise


def _positive(**parameters: ArrayLike) -> tuple[list[Array], bool]:
    """Bring positive parameters to ``(1, D)`` or ``(N, D)``, and whether all rows share them."""
    arrays = {name: as_parameter(value, name) for name, value in parameters.items()}
    try:
        shape = np.broadcast_shapes(*(value.shape for value in arrays.values()))
    except ValueError as error:
        shapes = {name: value.shape for name, value in arrays.items()}
        raise ValueError(f"Expected shapes that fit together; got {shapes}.") from error
    refuse_if(
        len(shape) not in (1, 2),
        f"Expected {next(iter(arrays))} of shape (D,) or (N, D); got {shape}.",
    )
    for name, value in arrays.items():
        refuse_where(
            ~(value > 0) | ~np.isfinite(value),
            f"positive, finite values of {name} as noise",
            value,
            shared=value.ndim < 2,
        )
    full = [np.array(np.broadcast_to(value, shape), ndmin=2) for value in arrays.values()]
    return full, len(shape) == 1
