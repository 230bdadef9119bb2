r"""Anderson acceleration of EM's map, in coordinates without constraints."""

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.layout import lower_triangle
from deconflow.xd.maximisation import Constraints, with_floor


class Anderson:
    r"""Extrapolates from the last ``memory`` EM steps.

    With :math:`x` the parameters before and :math:`F(x)` after a step, and
    :math:`f = F(x) - x`, the proposal is :math:`F(x) - \Delta F \gamma`, where :math:`\gamma`
    solves the least squares :math:`\min |f - \Delta f \gamma|`. Coordinates are log weights, means
    and log-Cholesky factors. The caller refuses a proposal that lowers the likelihood.

    References
    ----------
    Walker and Ni (2011), "Anderson Acceleration for Fixed-Point Iterations"; Henderson and
    Varadhan (2019), "Damped Anderson Acceleration with Restarts", https://arxiv.org/abs/1803.06673
    """

    def __init__(self, constraints: Constraints, memory: int = 10) -> None:
        self.constraints, self.memory = constraints, memory
        self.forget()

    def forget(self) -> None:
        """Start anew, after a refused proposal."""
        self.befores: list[Array] = []
        self.afters: list[Array] = []

    def propose(
        self, before: GaussianMixture, after: GaussianMixture, sums: object = None
    ) -> GaussianMixture:
        """Return a mixture beyond ``after``, or ``after`` itself while there is no history."""
        x, fx = coordinates(before), coordinates(after)
        self.befores.append(x)
        self.afters.append(fx)
        del self.befores[: -self.memory - 1], self.afters[: -self.memory - 1]
        if len(self.befores) < 2:
            return after
        residuals = np.stack(self.afters) - np.stack(self.befores)
        steps = np.diff(np.stack(self.afters), axis=0)
        gamma = _damped_least_squares(np.diff(residuals, axis=0).T, residuals[-1])
        new = mixture_at(fx - steps.T @ gamma, after, self.constraints)
        return after if new is None else new


def _damped_least_squares(A: Array, b: Array) -> Array:
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    damped = s / (s**2 + (1e-6 * s[0]) ** 2 + 1e-300)
    return Vt.T @ (damped * (U.T @ b))


def _factors(covariances: Array) -> NDArray[np.floating]:
    try:
        return np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:  # only without a floor
        return np.linalg.cholesky(with_floor(covariances, 1e-14 * np.eye(covariances.shape[1])))


def coordinates(mixture: GaussianMixture) -> Array:
    """Return log weights, means and log-Cholesky factors, which may have any value."""
    factors = _factors(mixture.covariances)
    i, j = lower_triangle(mixture.dim, -1)
    diagonal = np.diagonal(factors, axis1=1, axis2=2)
    log_weights = np.log(np.maximum(mixture.weights, 1e-300))
    scale = diagonal[:, i]  # rows of a factor in units of its own pivot
    parts = (log_weights, mixture.means, np.log(diagonal), factors[:, i, j] / scale)
    return np.concatenate([part.ravel() for part in parts])


def mixture_at(x: Array, like: GaussianMixture, constraints: Constraints) -> GaussianMixture | None:
    """Return the mixture at some coordinates, fixed parts as in ``like``; None if there is none."""
    K, D = like.means.shape
    i, j = lower_triangle(D, -1)
    log_weights, means, log_diagonal, below = np.split(x, np.cumsum([K, K * D, K * D]))
    if not np.isfinite(x).all() or np.abs(log_diagonal).max() > 300:
        return None
    diagonal = np.exp(log_diagonal.reshape(K, D))
    factors = np.zeros((K, D, D))
    factors[:, np.arange(D), np.arange(D)] = diagonal
    factors[:, i, j] = below.reshape(K, -1) * diagonal[:, i]
    covariances = with_floor(factors @ np.swapaxes(factors, 1, 2), constraints.floor)
    weights = np.exp(log_weights - log_weights.max())
    return constraints.kept(like, weights, means.reshape(K, D), covariances)
