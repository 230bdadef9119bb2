r"""What a row that was seen says of its truth.

The truths of the rows that were seen have the density :math:`q(v) \propto p(v) F(v)`, and a row
with such a truth has the likelihood

.. math:: p(w_i \mid v, \text{seen}) \propto p_i(w_i - v) / F(v)

with the chance ``F`` to be seen. So ``q`` is deconvolved as ever, from rows whose likelihoods lean
towards what is seldom seen, and ``p`` is ``q / F``. Here that likelihood becomes one Gaussian.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from deconflow._types import Array
from deconflow.noise import gaussian, psd_cholesky
from deconflow.observations import Observations

#: Points per row, how much wider than the likelihood they lie, and how often they move to it.
POINTS, WIDER, ROUNDS = 64, 1.5, 2
LEAST_CHANCE, LEAST_WIDTH = 1e-3, 1e-5
NUMBERS_AT_ONCE = 4_000_000


def seen_rows(data: Observations, chances: Callable[[Array], Array]) -> Observations:
    """Return rows as Gaussians: mean and covariance of each one's likelihood, if it was seen."""
    half = ndtri(qmc.Sobol(data.dim, seed=0).random(POINTS // 2).clip(1e-9, 1 - 1e-9))
    white = np.concatenate([half, -half])
    size = max(1, NUMBERS_AT_ONCE // (POINTS * data.dim))
    pieces = [_leaning(piece, chances, white, _least(data)) for piece in data.chunks(size)]
    means, covariances = (np.concatenate(each) for each in zip(*pieces, strict=True))
    noise = gaussian(covariance=covariances)
    return replace(data, w=means, noise=noise)


def _least(data: Observations) -> Array:
    """Give rows that are exact a width, too: a covariance that is small beside the data's."""
    spread = data.measured().var(0) + np.asarray(data.noise.variance()).mean(0)
    return np.diag(np.maximum(LEAST_WIDTH**2 * spread, 1e-300))


def _leaning(
    data: Observations, chances: Callable[[Array], Array], white: Array, least: Array
) -> tuple[Array, Array]:
    """Mean ``(N, D)`` and covariance ``(N, D, D)`` of ``p(w - v) / F(v)`` over ``v``."""
    count, dim = len(data), data.dim
    centre = data.measured() - np.asarray(data.noise.mean())
    covariance = np.broadcast_to(np.asarray(data.noise.covariance()), (count, dim, dim))
    own = _factor(covariance + least)
    mean, factor = centre, own
    for _ in range(ROUNDS):
        v = mean[:, None] + WIDER * np.einsum("nij,pj->npi", factor, white)
        residual = np.linalg.solve(own, np.swapaxes(v - centre[:, None], 1, 2))
        chance = chances(v.reshape(-1, dim)).reshape(v.shape[:2])
        logs = 0.5 * np.square(white).sum(1) - 0.5 * np.square(residual).sum(1)
        logs = logs - np.log(np.maximum(chance, LEAST_CHANCE))
        share = np.exp(logs - logs.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        mean = np.einsum("np,npi->ni", share, v)
        offset = v - mean[:, None]
        covariance = np.einsum("np,npi,npj->nij", share, offset, offset)
        factor = _factor(covariance + least)
    return mean, covariance


def _factor(covariance: Array) -> Array:
    return psd_cholesky(np.ascontiguousarray(covariance))
