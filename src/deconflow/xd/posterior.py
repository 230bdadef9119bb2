r"""The exact posterior of each row under a mixture: again a mixture.

For component ``k`` and part ``j`` of the noise, with :math:`T = R V_k R^T + S_j`,

.. math:: v | w \sim N(m_k + V_k R^T T^{-1} (w - b_j - R m_k), \; V_k - V_k R^T T^{-1} R V_k).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow.noise import JointMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd.mixture import LOG_2PI, Mixture

Array = NDArray[np.float64]
NUMBERS_AT_ONCE = 4_000_000


@dataclass(frozen=True, repr=False)
class MixturePosterior:
    """A Gaussian mixture for every row.

    Attributes
    ----------
    weights, means, covariances : array
        ``(N, C)``, ``(N, C, D)`` and ``(N, C, D, D)``.
    """

    weights: Array
    means: Array
    covariances: Array

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        rows, components, dim = self.means.shape
        return f"MixturePosterior({rows} rows, {components} components each, {dim} dimensions)"

    @property
    def mean(self) -> Array:
        """Posterior means ``(N, D)``."""
        return np.einsum("nc,ncd->nd", self.weights, self.means)

    @property
    def covariance(self) -> Array:
        """Posterior covariances ``(N, D, D)``."""
        offset = self.means - self.mean[:, None]
        within = np.einsum("nc,ncij->nij", self.weights, self.covariances)
        return within + np.einsum("nc,nci,ncj->nij", self.weights, offset, offset)

    @property
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))

    def sample(self, n_samples: int, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""
        rng = check_random_state(random_state)
        edges = np.cumsum(self.weights, axis=1)
        u = rng.uniform(size=(len(self), n_samples)) * edges[:, -1:]
        which = (u[:, :, None] > edges[:, None, :]).sum(2).clip(0, edges.shape[1] - 1)
        row = np.arange(len(self))[:, None]
        values, vectors = np.linalg.eigh(self.covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        white = rng.standard_normal((len(self), n_samples, self.means.shape[2]))
        return self.means[row, which] + np.einsum("nsij,nsj->nsi", roots[row, which], white)


def posterior(mixture: Mixture, data: Observations) -> MixturePosterior:
    """Compute the posterior of every row."""
    parts = data.noise.as_mixture()
    size = len(mixture) * parts.n_parts * max(data.dim, data.latent_dim) ** 2
    step = max(1, NUMBERS_AT_ONCE // size)
    pieces = [
        _posterior(mixture, data[lo : lo + step], parts.take(_range(lo, step, len(data))))
        for lo in range(0, len(data), step)
    ]
    return MixturePosterior(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _range(lo: int, step: int, n: int) -> NDArray[np.int64]:
    return np.arange(lo, min(lo + step, n))


def _posterior(
    mixture: Mixture, data: Observations, parts: JointMixture
) -> tuple[Array, Array, Array]:
    n, size = data.w.shape
    R = seen_through(data)
    noise = parts.covariances
    noise = noise[..., None] * np.eye(size) if parts.diagonal else noise
    if data.observed is not None:
        seen = data.observed.numpy()
        both = seen[:, None, :, None] & seen[:, None, None, :]
        noise = np.where(both, noise, np.eye(size))
    RV = R[:, None] @ mixture.covariances[None]  # (n or 1, K, M, D)
    T = (RV @ np.swapaxes(R, 1, 2)[:, None])[:, :, None] + noise[:, None]  # (n, K, J, M, M)
    shift = np.zeros((1, 1, size)) if parts.means is None else parts.means
    centre = np.einsum("nmd,kd->nkm", R, mixture.means)[:, :, None] + shift[:, None]
    offset = data.w.numpy()[:, None, None] - centre
    if data.observed is not None:
        offset = np.where(data.observed.numpy()[:, None, None], offset, 0.0)
    gain = np.linalg.solve(T, np.broadcast_to(RV[:, :, None], (*T.shape[:-1], RV.shape[-1])))
    means = mixture.means[:, None] + np.einsum("nkjmd,nkjm->nkjd", gain, offset)
    covariances = mixture.covariances[:, None] - np.swapaxes(gain, -1, -2) @ RV[:, :, None]
    covariances = 0.5 * (covariances + np.swapaxes(covariances, -1, -2))
    weights = _weights(mixture, parts, T, offset)
    shape = (n, len(mixture) * parts.weights.shape[1])
    D = mixture.dim
    return (
        np.broadcast_to(weights, (n, *weights.shape[1:])).reshape(shape),
        np.broadcast_to(means, (n, *means.shape[1:])).reshape(*shape, D),
        np.broadcast_to(covariances, (n, *covariances.shape[1:])).reshape(*shape, D, D),
    )


def _weights(mixture: Mixture, parts: JointMixture, T: Array, offset: Array) -> Array:
    factor = np.linalg.cholesky(T)
    white = np.linalg.solve(factor, offset[..., None])[..., 0]
    log_det = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    log_p = -0.5 * (np.square(white).sum(-1) + offset.shape[-1] * LOG_2PI) - log_det
    with np.errstate(divide="ignore"):
        log_p = log_p + np.log(mixture.weights)[:, None] + np.log(parts.weights)[:, None]
    return np.exp(log_p - logsumexp(log_p, axis=(1, 2), keepdims=True))


def seen_through(data: Observations) -> Array:
    """Projection of each row, ``(n or 1, M, D)``, zero where a value is missing."""
    if data.projection is not None:
        return data.projection.numpy()
    if data.observed is not None:
        return data.observed.numpy()[:, :, None] * np.eye(data.dim)
    return np.eye(data.dim)[None]
