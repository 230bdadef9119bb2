"""Rows in units of their own: moved, scaled or mirrored, each by its own numbers."""

from dataclasses import replace
from itertools import product

import numpy as np

from deconflow._types import Array
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations

SYMMETRIC = 1e-6


def in_units(data: Observations, location: Array, scale: Array) -> Observations:
    r"""Return the rows of ``z`` with :math:`v = m + s z` for ``m`` and ``s`` of each row.

    A negative scale makes a mirror image. Noise that is neither Gaussian nor symmetric, and rows
    with a projection, stay as they are and get a projection that holds the scale.

    Parameters
    ----------
    data
        Rows of ``v``.
    location, scale
        ``(N, D)``: ``m`` and ``s``.
    """
    m, s = location, scale
    noise = data.noise.mirrored(np.sign(s))
    if noise is None:
        turned = bool((s < 0).any()) and not symmetric(data.noise)
        if turned or data.projection is not None:  # w = R (m + s z) + n
            R = np.broadcast_to(data.projections(), (len(data), data.dim, data.latent_dim))
            w = data.w - np.einsum("nmd,nd->nm", R, m)
            return replace(data, w=w, projection=R * s[:, None])
        noise = _scaled(data.noise, s)
    w = (data.w - m) / s
    return replace(
        data, w=w if data.observed is None else np.where(data.observed, w, 0.0), noise=noise
    )


def _scaled(noise: Noise, scale: Array) -> Noise:
    """Divide each row's noise by its own scales ``(N, M)``."""
    size, signs = np.abs(scale), np.sign(scale)
    if isinstance(noise, GaussianNoise):
        if noise.diagonal and (size == 1).all():
            return noise  # maybe one for all rows
        factor = np.broadcast_to(noise.factor, (len(size), *noise.factor.shape[1:]))
        noise = replace(noise, factor=factor, shared=False, n_rows=len(size)).divide(size)
        if noise.diagonal:
            return noise
        return replace(noise, factor=noise.factor * signs[:, :, None] * signs[:, None])
    if len(size) and not np.allclose(size, size[:1]):
        raise ValueError(
            "Expected Gaussian noise, because the model was fitted with covariates to rows "
            "with such; got another law. Fit again with rows of that law."
        )
    return noise.divide(size[0])


def symmetric(noise: Noise) -> bool:
    """Whether each value of the noise has the distribution of its mirror image, by itself."""
    if isinstance(noise, GaussianNoise):
        return True
    if not noise.independent:
        return False
    mean, sd = np.broadcast_arrays(noise.mean(), np.sqrt(noise.variance()))
    for d, size in product(range(noise.dim), (0.3, 1.0, 2.5)):
        ahead, behind = mean.copy(), mean.copy()
        ahead[:, d], behind[:, d] = size * sd[:, d], -size * sd[:, d]
        there, back = noise.log_prob(np.stack([ahead, behind]))
        if not np.allclose(there, back, rtol=SYMMETRIC, atol=SYMMETRIC):
            return False
    return True
