r"""Gaussian mixtures in closed form: densities, draws, marginals, conditionals, convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow.randomness import RandomState

Array = NDArray[np.float64]
LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, repr=False)
class Mixture:
    r"""The density :math:`p(v) = \sum_k \pi_k \, N(v; m_k, V_k)`.

    Attributes
    ----------
    weights, means, covariances : array
        ``(K,)``, ``(K, D)`` and ``(K, D, D)``.

    Examples
    --------
    >>> mixture = Mixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    >>> mixture.log_prob(np.zeros((1, 2))).round(4)
    array([-1.8379])
    """

    weights: Array
    means: Array
    covariances: Array

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return f"Mixture({len(self)} components, {self.dim} dimensions)"

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    def log_joint(self, v: Array) -> Array:
        """Log of ``pi_k N(v; m_k, V_k)``, ``(N, K)``."""
        factors = np.linalg.cholesky(self.covariances)
        answer = np.empty((len(v), len(self)))
        for k, factor in enumerate(factors):
            white = solve_triangular(factor, (v - self.means[k]).T, lower=True)
            log_det = np.log(np.diagonal(factor)).sum()
            answer[:, k] = -0.5 * (np.square(white).sum(0) + self.dim * LOG_2PI) - log_det
        with np.errstate(divide="ignore"):
            return answer + np.log(self.weights)

    def log_prob(self, v: Array) -> Array:
        """Log density of ``(N, D)``, as ``(N,)``."""
        return logsumexp(self.log_joint(v), axis=1)

    def sample(self, n: int, random_state: RandomState = None) -> tuple[Array, NDArray[np.int64]]:
        """Draw ``(n, D)`` in random order, with the component of each."""
        rng = check_random_state(random_state)
        which = rng.choice(len(self), size=n, p=self.weights / self.weights.sum())
        factors = np.linalg.cholesky(self.covariances)
        white = rng.standard_normal((n, self.dim))
        drawn = np.empty((n, self.dim))
        for k in np.unique(which):
            mine = which == k
            drawn[mine] = self.means[k] + white[mine] @ factors[k].T
        return drawn, which

    def marginal(self, dimensions: ArrayLike) -> Mixture:
        """Return the density of some dimensions, in the order given."""
        keep = np.atleast_1d(np.asarray(dimensions, dtype=int))
        return Mixture(
            self.weights, self.means[:, keep], self.covariances[:, keep[:, None], keep[None, :]]
        )

    def convolve(self, covariance: ArrayLike) -> Mixture:
        """Return the density of ``v + n`` with ``n ~ N(0, covariance)``."""
        return Mixture(self.weights, self.means, self.covariances + np.asarray(covariance))

    def in_units(self, location: ArrayLike, scale: ArrayLike) -> Mixture:
        """Return the density of ``location + scale v``."""
        s = np.asarray(scale)
        covariances = self.covariances * s[:, None] * s
        return Mixture(self.weights, np.asarray(location) + s * self.means, covariances)

    def mean_and_covariance(self) -> tuple[Array, Array]:
        """Mean ``(D,)`` and covariance ``(D, D)`` of the whole mixture."""
        mean = self.weights @ self.means
        offset = self.means - mean
        spread = np.einsum("k,ki,kj->ij", self.weights, offset, offset)
        return mean, spread + np.einsum("k,kij->ij", self.weights, self.covariances)

    def entropy(self, n: int = 20_000, seed: int = 0) -> float:
        """Entropy in nats, from ``n`` draws."""
        return -float(self.log_prob(self.sample(n, seed)[0]).mean())


def average(mixtures: list[Mixture], shares: list[float] | None = None) -> Mixture:
    """Average densities, equally or by shares that sum to one: a mixture of all components."""
    shares = [1.0 / len(mixtures)] * len(mixtures) if shares is None else shares
    pairs = zip(mixtures, shares, strict=True)
    return Mixture(
        np.concatenate([share * mixture.weights for mixture, share in pairs]),
        np.concatenate([mixture.means for mixture in mixtures]),
        np.concatenate([mixture.covariances for mixture in mixtures]),
    )


def take_apart(mixture: Mixture, count: int) -> list[Mixture]:
    """Undo :func:`average` of ``count`` mixtures with equal shares.

    Examples
    --------
    >>> one = Mixture(np.array([0.3, 0.7]), np.zeros((2, 1)), np.ones((2, 1, 1)))
    >>> [part.weights.round(2).tolist() for part in take_apart(average([one, one]), 2)]
    [[0.3, 0.7], [0.3, 0.7]]
    """
    middles = np.cumsum(mixture.weights) - 0.5 * mixture.weights
    owner = np.minimum((middles * count).astype(int), count - 1)
    return [
        Mixture(
            count * mixture.weights[owner == part],
            mixture.means[owner == part],
            mixture.covariances[owner == part],
        )
        for part in range(count)
    ]
