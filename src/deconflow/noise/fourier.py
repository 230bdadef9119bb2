r"""Characteristic functions :math:`\phi(t) = E \exp(i t \cdot n)` of torch distributions.

Closed forms only: of the distributions in the catalogue, of Gaussians and of their mixtures.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from torch.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
)

from deconflow.noise.catalogue import CATALOGUE, Array, Complex, as_array


def of_values(law: Distribution, t: Array) -> Complex:
    """``(N or 1, T, D)`` of a distribution with batch ``(N or 1, D)`` at ``t``, ``(T, D)``."""
    if isinstance(law, MixtureSameFamily) and type(law.component_distribution) in CATALOGUE:
        shares = as_array(law.mixture_distribution.probs)[:, None]
        parts = law.component_distribution
        return (shares * CATALOGUE[type(parts)].characteristic(parts, t[:, :, None])).sum(-1)
    if type(law) not in CATALOGUE:
        _refuse(law)
    return CATALOGUE[type(law)].characteristic(law, t)


def of_rows(law: Distribution, t: Array) -> Complex:
    """``(N or 1, T)`` of a distribution with batch ``(N or 1,)`` and event ``(D,)``."""
    if isinstance(law, MultivariateNormal | LowRankMultivariateNormal):
        phase = np.exp(1j * as_array(law.loc) @ t.T)
        return phase * of_gaussian(as_array(law.covariance_matrix), t)
    parts = getattr(law, "component_distribution", None)
    if not isinstance(parts, MultivariateNormal):
        _refuse(law)
    shares = as_array(law.mixture_distribution.probs)  # type: ignore[attr-defined]
    answers = [
        shares[:, j, None]
        * np.exp(1j * as_array(parts.loc)[:, j] @ t.T)
        * of_gaussian(as_array(parts.covariance_matrix)[:, j], t)
        for j in range(shares.shape[1])
    ]
    return np.sum(answers, 0)


def of_gaussian(covariance: Array, t: Array) -> Complex:
    """``exp(-t' S t / 2)``, with the quadratic form of all rows and frequencies as one product."""
    dim = t.shape[1]
    products = (t[:, :, None] * t[:, None]).reshape(-1, dim * dim)
    form = covariance.reshape(-1, dim * dim) @ products.T
    return np.exp(-0.5 * np.maximum(form, 0.0)) + 0j


def _refuse(law: Distribution) -> NoReturn:
    raise ValueError(
        "Expected noise whose characteristic function has a closed form, such as Gaussian, Laplace "
        f"or Student-t; got a {type(law).__name__}. Use XDGMM or FlowDeconvolver."
    )
