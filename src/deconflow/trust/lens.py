r"""Score tests: derivatives of each row's log likelihood under a Gaussian mixture.

With :math:`T = R V R^T + S`, :math:`t = T^{-1} (w - R m - b)` and the probability :math:`q` of each
component (and part of the noise) given the row, the derivatives of :math:`\log p(w)` are

.. math:: \frac{\partial}{\partial m} = q R^T t, \quad
          \frac{\partial}{\partial V} = \tfrac12 q R^T (t t^T - T^{-1}) R, \quad
          \frac{\partial}{\partial S} = \tfrac12 q (t t^T - T^{-1}).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from deconflow._types import Array
from deconflow.mixtures import LOG_2PI, GaussianMixture
from deconflow.noise import JointMixture
from deconflow.observations import Observations

#: Gaussians that noise is seen as at most: each costs as much as a component.
MOST_PARTS = 8
#: Variance of a missing value, in units of the data's: so large that it says nothing.
IDLE = 1e12


@dataclass(frozen=True)
class Rows:
    """Rows in units in which they spread by about one, each beside others with the same noise.

    Attributes
    ----------
    w : array
        ``(N, C, M)`` values; a row and its ``C - 1`` companions have the same noise. Zero where
        missing.
    seen : array
        ``(N, M)``: which values are measured.
    shares, shifts, covariances : array
        ``(N or 1, J)``, ``(N or 1, J, M)`` and ``(N or 1, J, M, M)``: the noise as a mixture of
        Gaussians.
    projection : array or None
        ``(N, M, D)``; None for the identity.
    """

    w: Array
    seen: Array
    shares: Array
    shifts: Array
    covariances: Array
    projection: Array | None

    @classmethod
    def of(cls, data: Observations, values: list[Array]) -> "Rows":
        """Put measured values ``(N, M)``, several per row, beside the noise of the rows."""
        parts = data.noise.as_mixture()
        if parts.n_parts > MOST_PARTS:  # companions are drawn by the law itself
            moments = data.noise.mean(), data.noise.covariance()
            mean, covariance = (np.asarray(x, np.float64)[:, None] for x in moments)
            parts = JointMixture(np.ones((1, 1)), mean, covariance)
        parts = parts.take()
        seen, dim = ~np.isnan(data.measured()), data.dim
        covariances = parts.covariances
        if covariances.ndim == 3:
            covariances = covariances[..., None] * np.eye(dim)
        if data.observed is not None:
            both = (seen[:, :, None] & seen[:, None, :])[:, None]
            idle = np.where(seen, 0.0, IDLE)[:, None, :, None] * np.eye(dim)
            covariances = np.where(both, covariances, 0.0) + idle
        shifts = np.zeros((1, parts.n_parts, dim)) if parts.means is None else parts.means
        w = np.where(seen[:, None], np.stack(values, axis=1), 0.0)
        return cls(w, seen, parts.weights, shifts, covariances, data.projection)

    @property
    def sd(self) -> Array:
        """Standard deviations ``(N or 1, M)`` of the noise; large where a value is missing."""
        mean = np.einsum("nj,njm->nm", self.shares, self.shifts)
        second = np.diagonal(self.covariances, axis1=2, axis2=3) + np.square(self.shifts)
        return np.sqrt(np.einsum("nj,njm->nm", self.shares, second) - np.square(mean))

    def measured(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and covariance of a component, as the rows see it."""
        if self.projection is None:
            return mean, covariance
        return (self.projection @ mean)[:, None], self.projection @ covariance @ self.projection.mT

    def stretched(self, factors: Array) -> "Rows":
        """Return the same values with noise of other sizes, by a factor per column."""
        covariances = self.covariances * factors[:, None] * factors
        return replace(self, shifts=self.shifts * factors, covariances=covariances)

    def swapped(self, a: int, b: int, scale: Array) -> "Rows":
        """Return the same values with the noise of two columns exchanged.

        ``scale`` are the columns' units, in which the exchange is made.
        """
        order = np.arange(self.w.shape[2])
        order[[a, b]] = b, a
        covariances = self.covariances[..., order, :][..., order]
        exchanged = replace(self, shifts=self.shifts[..., order], covariances=covariances)
        return exchanged.stretched(scale[order] / scale)


@dataclass(frozen=True)
class View:
    """What a mixture sees of rows; the second axis is that of the companions of a row.

    Attributes
    ----------
    log_p : array
        ``(N, C)`` log-likelihoods.
    scores : array
        ``(N, C, P)`` derivatives by the mixture's weights, means and covariances.
    by_covariance : array
        ``(N, C, M, M)``: twice the derivative by the covariance of the noise.
    by_size : array
        ``(N, C, M)``: the derivative by the logarithm of a factor on the noise of each column.
    skewness : array
        ``(N, C, M)``: expected third Hermite polynomial of the noise, in units of its size.
    """

    log_p: Array
    scores: Array
    by_covariance: Array
    by_size: Array
    skewness: Array


def log_p(mixture: GaussianMixture, rows: Rows) -> Array:
    """Log-likelihoods ``(N, C)``, but for a constant of the rows' missing values."""
    return np.logaddexp.reduce([log_joint for *_, log_joint in _parts(mixture, rows)])


def view(mixture: GaussianMixture, rows: Rows) -> View:
    """Look at rows."""
    parts, R = list(_parts(mixture, rows)), rows.projection
    whole = np.logaddexp.reduce([log_joint for *_, log_joint in parts])
    shape, size, latent = rows.w.shape, mixture.n_components, mixture.dim
    lower = np.tril_indices(latent)
    of_weights, of_means, of_covariances = (
        np.zeros((*shape[:2], size, m)) for m in (1, latent, len(lower[0]))
    )
    by_covariance, by_size = np.zeros((*shape, shape[2])), np.zeros(shape)
    skewness, sd = np.zeros(shape), np.where(rows.sd > 0, rows.sd, 1.0)  # exact values have no skew
    for k, j, residual, precision, log_joint in parts:
        q, t = np.exp(log_joint - whole), residual @ precision
        g = t[..., :, None] * t[..., None, :] - precision[:, None]
        shift, covariance = rows.shifts[:, None, j], rows.covariances[:, j]
        left = covariance - covariance @ precision @ covariance
        variance = (np.diagonal(left, axis1=1, axis2=2) / np.square(sd))[:, None]
        covariance = np.broadcast_to(covariance, precision.shape)
        by_covariance += q[..., None, None] * g
        # A factor on the noise moves the mean of a part, too.
        by_size += q[..., None] * (np.einsum("ncij,nij->nci", g, covariance) + t * shift)
        mean = (np.einsum("nij,ncj->nci", covariance, t) + shift) / sd[:, None]
        skewness += q[..., None] * (mean**3 + 3 * mean * (variance - 1))
        if R is not None:
            t, g = np.einsum("nmd,ncm->ncd", R, t), np.einsum("nmd,ncmk,nke->ncde", R, g, R)
        of_weights[:, :, k, 0] += q
        of_means[:, :, k] += q[..., None] * t
        of_covariances[:, :, k] += q[..., None] * g[..., lower[0], lower[1]]
    scores = [each.reshape(*whole.shape, -1) for each in (of_weights, of_means, of_covariances)]
    return View(whole, np.concatenate(scores, axis=-1), by_covariance, by_size, skewness)


def _parts(mixture: GaussianMixture, rows: Rows) -> Iterator[tuple[int, int, Array, Array, Array]]:
    """Yield a Gaussian per row for each component with each part of the noise.

    These are the numbers of both, residuals, precisions, and logarithms of joint densities.
    """
    with np.errstate(divide="ignore"):
        log_shares = np.log(rows.shares)
    for k in np.flatnonzero(mixture.weights > 0).tolist():
        mean, covariance = rows.measured(mixture.means[k], mixture.covariances[k])
        for j in range(rows.shares.shape[1]):
            total = np.broadcast_to(
                covariance + rows.covariances[:, j], (len(rows.w), *rows.covariances.shape[2:])
            )
            precision = np.asarray(np.linalg.inv(total), np.float64)
            offset = rows.w - mean - rows.shifts[:, None, j]
            residual = np.where(rows.seen[:, None], offset, 0.0)
            distance = np.einsum("nci,ncj,nij->nc", residual, residual, precision, optimize=True)
            constant = np.linalg.slogdet(total)[1] + rows.w.shape[2] * LOG_2PI
            log_joint = log_shares[:, None, j] - 0.5 * (distance + constant[:, None])
            yield k, j, residual, precision, np.log(mixture.weights[k]) + log_joint


def below(mixture: GaussianMixture, rows: Rows) -> Array:
    """Probability ``(N, C, M)`` of a smaller value in each column; a half where it is missing."""
    answer = np.zeros(rows.w.shape)
    for k in range(mixture.n_components):
        mean, covariance = rows.measured(mixture.means[k], mixture.covariances[k])
        spread = np.diagonal(covariance, axis1=-2, axis2=-1)
        for j in range(rows.shares.shape[1]):
            variance = spread + np.diagonal(rows.covariances[:, j], axis1=1, axis2=2)
            white = (rows.w - mean - rows.shifts[:, None, j]) / np.sqrt(variance)[:, None]
            answer += mixture.weights[k] * rows.shares[:, None, j, None] * ndtr(white)
    return np.where(rows.seen[:, None], answer, 0.5)
