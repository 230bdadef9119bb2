r"""Characteristic functions :math:`\phi(t) = E \exp(i t \cdot n)` of torch distributions.

Closed forms for the laws that have one; for others with independent values an integral over the
density, for others over whole rows an average over draws.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    biject_to,
)

from deconflow.noise.catalogue import CATALOGUE, Array, Complex, as_array
from deconflow.noise.moments import finite_covariance, finite_mean
from deconflow.noise.support import is_real, support_of
from deconflow.randomness import isolated_rng, lend_generator

NODES = 2001
"""Points of the integral over a density without a closed form."""
REACH = 10.0
"""The integral over the line reaches to sinh(10), about 11,000 standard deviations."""
BOUNDED_REACH = 36.0
"""The same for half lines and intervals, in the coordinate of torch's map onto them."""
NEGLIGIBLE = 1e-18
"""Mass of points that are left out of it."""
DRAWS = 20_000
AT_ONCE = 4_000_000
"""Largest number of complex exponentials in memory."""
ROWS_AT_ONCE = AT_ONCE // NODES


def of_values(law: Distribution, t: Array) -> Complex:
    """``(N or 1, T, D)`` of a distribution with batch ``(N or 1, D)`` at ``t``, ``(T, D)``."""
    if isinstance(law, MixtureSameFamily) and type(law.component_distribution) in CATALOGUE:
        shares = as_array(law.mixture_distribution.probs)[:, None]
        parts = law.component_distribution
        return (shares * CATALOGUE[type(parts)].characteristic(parts, t[:, :, None])).sum(-1)
    known = CATALOGUE.get(type(law))
    return _by_quadrature(law, t) if known is None else known.characteristic(law, t)


def of_rows(law: Distribution, t: Array, *, shared: bool) -> Complex:
    """``(N or 1, T)`` of a distribution with batch ``(N or 1,)`` and event ``(D,)``."""
    if isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        phase = np.exp(1j * as_array(law.loc) @ t.T)
        return phase * of_gaussian(as_array(law.covariance_matrix), t)
    parts = getattr(law, "component_distribution", None)
    if isinstance(parts, MultivariateNormal):
        shares = as_array(law.mixture_distribution.probs)  # type: ignore[attr-defined]
        answers = [
            shares[:, j, None]
            * np.exp(1j * as_array(parts.loc)[:, j] @ t.T)
            * of_gaussian(as_array(parts.covariance_matrix)[:, j], t)
            for j in range(shares.shape[1])
        ]
        return np.sum(answers, 0)
    if not shared:
        raise ValueError(
            "Expected noise with a closed characteristic function, independent values, or one law "
            f"for all rows; got a {type(law).__name__} for every row. Use FlowDeconvolver."
        )
    return _by_draws(law, t)


def of_gaussian(covariance: Array, t: Array) -> Complex:
    """``exp(-t' S t / 2)``, with the quadratic form of all rows and frequencies as one product."""
    dim = t.shape[1]
    products = (t[:, :, None] * t[:, None]).reshape(-1, dim * dim)
    form = covariance.reshape(-1, dim * dim) @ products.T
    return np.exp(-0.5 * np.maximum(form, 0.0)) + 0j


def _by_draws(law: Distribution, t: Array) -> Complex:
    with isolated_rng(0), lend_generator():
        draws = as_array(law.sample(torch.Size((DRAWS,))))[:, 0]
    step = max(1, AT_ONCE // DRAWS)
    parts = [np.exp(1j * draws @ t[i : i + step].T).mean(0) for i in range(0, len(t), step)]
    return np.concatenate(parts)[None]


def _by_quadrature(law: Distribution, t: Array) -> Complex:
    """Integrate over a density by the trapezoidal rule."""
    x, mass = nodes(law)
    used = (mass > NEGLIGIBLE).any((1, 2))
    x, mass = x[used], mass[used]
    rows, dim = x.shape[1:]
    answer = np.empty((rows, len(t), dim), complex)
    coarse, fine = _split(t)
    step = max(1, AT_ONCE // (len(x) * (len(coarse) + len(fine))))
    for i, d in product(range(0, rows, step), range(dim)):
        points, shares = x[:, i : i + step, d].T[:, None], mass[:, i : i + step, d].T[:, None]
        left = shares * np.exp(1j * points * coarse[:, d, None])  # (n, C, X)
        right = np.exp(1j * points * fine[:, d, None])
        sums = left @ right.swapaxes(1, 2)
        answer[i : i + step, :, d] = sums.reshape(len(sums), -1)[:, : len(t)]
    return answer


def _split(t: Array) -> tuple[Array, Array]:
    """Write frequencies ``(T, D)`` as sums of few: of a coarse and a fine one each, in order.

    Equal steps need about ``2 sqrt(T)`` exponentials per point instead of ``T``.
    """
    steps = (t[-1:] - t[:1]) / max(1, len(t) - 1)
    n = np.arange(len(t))[:, None]
    regular = len(t) > 2 and (np.abs(t - t[0] - n * steps) <= 1e-12 * np.abs(t).max(0)).all()
    if not regular:
        return t, np.zeros((1, t.shape[1]))
    width = int(np.ceil(np.sqrt(len(t))))
    return t[0] + n[: -(-len(t) // width)] * width * steps, n[:width] * steps


def nodes(law: Distribution) -> tuple[Array, Array]:
    r"""Points ``(X, N or 1, D)`` that cover a law, and its mass at each of them.

    The line is reached by :math:`x = m + s \sinh z`, half lines and intervals by torch's map onto
    them: in ``z`` the density is smooth and falls off fast, where sums are close to integrals.
    """
    support = support_of(law)
    column = (slice(None), None, None)
    if is_real(support):
        scale = finite_covariance(law).diagonal(dim1=-2, dim2=-1).sqrt()
        z = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)[column]
        x, log_slope = finite_mean(law) + scale * z.sinh(), z.cosh().log() + scale.log()
    else:
        z = torch.linspace(-BOUNDED_REACH, BOUNDED_REACH, NODES, dtype=torch.float64)[column]
        z = z.expand(-1, *law.batch_shape)
        onto = biject_to(support)
        x = onto(z)
        log_slope = onto.log_abs_det_jacobian(z, x)
    log_p = law.log_prob(x)
    # Not defined at rounded ends of a support: no mass there. NaN compares as false.
    log_mass = torch.where(log_p < torch.inf, log_p, -torch.inf) + log_slope
    mass = (log_mass - log_mass.amax(0)).exp()
    return as_array(x), as_array(mass / mass.sum(0))
