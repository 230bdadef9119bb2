r"""Characteristic functions :math:`\phi(t) = E \exp(i t \cdot n)` of noise laws.

Closed forms for the laws that have one; for others with independent values an integral over the
torch distribution's density, for others over whole rows an average over draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import special
from torch.distributions import (
    Cauchy,
    Distribution,
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
    biject_to,
)

from deconflow.checks import as_floats
from deconflow.noise.base import Noise
from deconflow.noise.gaussian import GaussianNoise
from deconflow.noise.laws import LawNoise, is_real, support_of
from deconflow.noise.moments import finite_covariance
from deconflow.noise.split_normal import SplitNormal
from deconflow.randomness import isolated_rng

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

NODES = 2001
"""Points of the integral over a density without a closed form."""
REACH = 10.0
"""The integral over the line reaches to sinh(10), about 11,000 standard deviations."""
BOUNDED_REACH = 36.0
"""The same for half lines and intervals, in the coordinate of torch's map onto them."""
DRAWS = 20_000
AT_ONCE = 4_000_000
"""Largest number of complex exponentials in memory."""
ROWS_AT_ONCE = AT_ONCE // NODES


def characteristic_function(noise: Noise, t: ArrayLike) -> Complex:
    """Characteristic function of each row's noise.

    Parameters
    ----------
    noise
        A noise law.
    t
        ``(T, D)`` frequencies.

    Returns
    -------
    array
        ``(N, T)``, or ``(1, T)`` for a law that all rows share.

    Examples
    --------
    >>> from deconflow.noise import laplace
    >>> characteristic_function(laplace([0.5]), [[0.0], [2.0]]).real  # 1 / (1 + scale^2 t^2)
    array([[1. , 0.5]])
    """
    t = as_floats(t, "t")
    if t.ndim != 2 or t.shape[1] != noise.dim:
        raise ValueError(f"Expected t of shape (T, {noise.dim}); got {t.shape}.")
    if isinstance(noise, GaussianNoise) and not noise.diagonal:
        return _gaussian(_array(noise.covariance()), t)
    if has_independent_values(noise):
        return value_characteristics(noise, t).prod(-1)
    assert isinstance(noise, LawNoise)
    return _of_whole_rows(noise.distribution, t / noise.unit.cpu().numpy(), noise)


def value_characteristics(noise: Noise, t: Real) -> Complex:
    """Characteristic function of each value of a row by itself, for independent values.

    ``t`` is ``(T, D)``, frequencies for each value; the answer is ``(N or 1, T, D)``.
    """
    if isinstance(noise, GaussianNoise):
        sd = noise.factor.cpu().numpy()
        return np.exp(-0.5 * np.square(sd[:, None] * t)) + 0j
    assert isinstance(noise, LawNoise)
    if not noise.shared and len(noise) > ROWS_AT_ONCE:
        starts = range(0, len(noise), ROWS_AT_ONCE)
        parts = [value_characteristics(noise[i : i + ROWS_AT_ONCE], t) for i in starts]
        return np.concatenate(parts)
    return _of_values(noise.distribution, t / noise.unit.cpu().numpy())


def has_independent_values(noise: Noise) -> bool:
    """Whether a row's characteristic function is a product over its values."""
    if isinstance(noise, GaussianNoise):
        return noise.diagonal
    if not isinstance(noise, LawNoise):
        raise TypeError(f"Expected a noise of deconflow.noise; got {type(noise).__name__}.")
    return noise.independent or isinstance(noise.distribution, Independent)


def _of_values(law: Distribution, t: Real) -> Complex:
    """``(N or 1, T, D)`` of a distribution with batch ``(N or 1, D)``."""
    if isinstance(law, Independent):
        return _of_values(law.base_dist, t)
    if isinstance(law, MixtureSameFamily) and type(law.component_distribution) in CLOSED_FORMS:
        shares = _array(law.mixture_distribution.probs)[:, None]
        parts = law.component_distribution
        return (shares * CLOSED_FORMS[type(parts)](parts, t[:, :, None])).sum(-1)
    closed = CLOSED_FORMS.get(type(law))
    return _by_quadrature(law, t) if closed is None else closed(law, t)


def _of_whole_rows(law: Distribution, t: Real, noise: LawNoise) -> Complex:
    """``(N or 1, T)`` of a distribution with batch ``(N or 1,)`` and event ``(D,)``."""
    if isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        phase = np.exp(1j * _array(law.loc) @ t.T)
        return phase * _gaussian(_array(law.covariance_matrix), t)
    parts = getattr(law, "component_distribution", None)
    if isinstance(parts, MultivariateNormal):
        shares = _array(law.mixture_distribution.probs)  # type: ignore[attr-defined]
        answers = [
            shares[:, j, None]
            * np.exp(1j * _array(parts.loc)[:, j] @ t.T)
            * _gaussian(_array(parts.covariance_matrix)[:, j], t)
            for j in range(shares.shape[1])
        ]
        return np.sum(answers, 0)
    if not noise.shared:
        raise ValueError(
            "Expected noise with a closed characteristic function, independent values, or one law "
            f"for all rows; got a {type(law).__name__} for every row. Use FlowDeconvolver."
        )
    return _by_draws(law, t)


def _gaussian(covariance: Real, t: Real) -> Complex:
    """``exp(-t' S t / 2)``, with the quadratic form of all rows and frequencies as one product."""
    dim = t.shape[1]
    products = (t[:, :, None] * t[:, None]).reshape(-1, dim * dim)
    form = covariance.reshape(-1, dim * dim) @ products.T
    return np.exp(-0.5 * np.maximum(form, 0.0)) + 0j


def _by_draws(law: Distribution, t: Real) -> Complex:
    with isolated_rng(0):
        draws = _array(law.sample(torch.Size((DRAWS,))))[:, 0]
    step = max(1, AT_ONCE // DRAWS)
    parts = [np.exp(1j * draws @ t[i : i + step].T).mean(0) for i in range(0, len(t), step)]
    return np.concatenate(parts)[None]


def _by_quadrature(law: Distribution, t: Real) -> Complex:
    r"""Integrate over a density by the trapezoidal rule, after a change of variable.

    The line is reached by :math:`x = m + s \sinh z`, half lines and intervals by torch's map onto
    them: in ``z`` the density is smooth and falls off fast, where that rule is at its best.
    """
    x, mass = _nodes(law)
    rows, dim = x.shape[1:]
    answer = np.empty((rows, len(t), dim), complex)
    step = max(1, AT_ONCE // (NODES * rows))
    for i in range(0, len(t), step):
        part = t[i : i + step]
        for d in range(dim):
            wave = np.exp(1j * x[:, :, d, None] * part[:, d])
            answer[:, i : i + step, d] = np.einsum("xn,xnt->nt", mass[:, :, d], wave)
    return answer


def _nodes(law: Distribution) -> tuple[Real, Real]:
    """Points ``(X, N or 1, D)`` that cover a law, and its mass at each of them."""
    support = support_of(law)
    scale = finite_covariance(law).diagonal(dim1=-2, dim2=-1).sqrt()
    column = (slice(None), None, None)
    if is_real(support):
        z = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)[column]
        mean = torch.where(law.mean.isfinite(), law.mean, 0.0)
        x, log_slope = mean + scale * z.sinh(), z.cosh().log() + scale.log()
    else:
        z = torch.linspace(-BOUNDED_REACH, BOUNDED_REACH, NODES, dtype=torch.float64)[column]
        z = z.expand(-1, *law.batch_shape)
        onto = biject_to(support)
        x = onto(z)
        log_slope = onto.log_abs_det_jacobian(z, x)
    log_mass = log_prob_or_nothing(law, x) + log_slope
    mass = (log_mass - log_mass.amax(0)).exp()
    return _array(x), _array(mass / mass.sum(0))


def log_prob_or_nothing(law: Distribution, x: torch.Tensor) -> torch.Tensor:
    """Log density, minus infinity where it is not defined, as at rounded ends of a support."""
    log_p = law.log_prob(x)
    return torch.where(log_p < torch.inf, log_p, -torch.inf)  # NaN compares as false


def _normal(law: Any, t: Real) -> Complex:
    return _shift(law.loc, t) * np.exp(-0.5 * np.square(_rows(law.scale) * t))


def _laplace(law: Any, t: Real) -> Complex:
    return _shift(law.loc, t) / (1 + np.square(_rows(law.scale) * t))


def _cauchy(law: Any, t: Real) -> Complex:
    return _shift(law.loc, t) * np.exp(-np.abs(_rows(law.scale) * t))


def _uniform(law: Any, t: Real) -> Complex:
    centre, half_width = (law.low + law.high) / 2, (law.high - law.low) / 2
    return _shift(centre, t) * np.sinc(_rows(half_width) * t / np.pi)


def _split_normal(law: Any, t: Real) -> Complex:
    r"""A half normal of scale ``s`` has :math:`w(s t / \sqrt 2)`, with Faddeeva's function."""
    below, above = _rows(law.below), _rows(law.above)
    left = below * special.wofz(-below * t / np.sqrt(2))
    right = above * special.wofz(above * t / np.sqrt(2))
    return (left + right) / (below + above)


def _student_t(law: Any, t: Real) -> Complex:
    r""":math:`K_{\nu/2}(x) \, x^{\nu/2} / (\Gamma(\nu/2) \, 2^{\nu/2 - 1})`, with
    :math:`x = \sqrt\nu |s t|`; by cumulants where Bessel's function overflows.
    """
    df, size = _rows(law.df), np.abs(_rows(law.scale) * t)
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


CLOSED_FORMS: dict[type, Callable[[Any, Real], Complex]] = {
    Normal: _normal,
    Laplace: _laplace,
    Cauchy: _cauchy,
    Uniform: _uniform,
    SplitNormal: _split_normal,
    StudentT: _student_t,
}


def _shift(location: torch.Tensor, t: Real) -> Complex:
    return np.exp(1j * _rows(location) * t)


def _rows(parameter: torch.Tensor) -> Real:
    """Parameters ``(N, D, ...)`` with an axis for the frequencies."""
    return _array(parameter)[:, None]


def _array(tensor: torch.Tensor) -> Real:
    return tensor.detach().cpu().double().numpy()
