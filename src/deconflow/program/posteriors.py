"""Posteriors of rows, whichever estimator answers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from deconflow.estimators import XDGMM, Deconvolver
from deconflow.noise import Noise
from deconflow.xd import average

Array = NDArray[np.float64]
HALVINGS = 40


@dataclass(frozen=True)
class Answer:
    """What an estimator's posterior says of ``N`` rows; draws are made if they are asked for.

    Attributes
    ----------
    posterior : object
        The estimator's own answer: a mixture for every row, or draws.
    seed : int
        Seed of the draws of a mixture.
    """

    posterior: Any
    seed: int

    @property
    def mean(self) -> Array:
        """Means ``(N, D)``."""
        return np.asarray(self.posterior.mean)

    @property
    def covariance(self) -> Array:
        """Covariances ``(N, D, D)``."""
        return np.asarray(self.posterior.covariance)

    @property
    def sd(self) -> Array:
        """Standard deviations ``(N, D)``."""
        return np.asarray(self.posterior.sd)

    @property
    def correlation(self) -> Array:
        """Correlations ``(N, D, D)``, zero where a value is exact."""
        size = self.sd[:, :, None] * self.sd[:, None, :]
        return np.divide(self.covariance, size, out=np.zeros_like(size), where=size > 0)

    @property
    def effective_sample_size(self) -> Array | None:
        """How many exact draws a row's draws are worth; None for exact answers."""
        size = getattr(self.posterior, "effective_sample_size", None)
        return None if size is None else np.asarray(size)

    def draws(self, count: int) -> Array:
        """Draw ``(N, count, D)``."""
        if self._mixture:
            return self.posterior.sample(count, random_state=self.seed)
        return np.asarray(self.posterior.samples)[:, :count]

    def quantile(self, share: float) -> Array:
        """Quantile of each value, ``(N, D)``: exact for mixtures, else of the draws."""
        if self._mixture:
            return _mixture_quantile(self.posterior, share)
        return np.quantile(self.posterior.samples, share, axis=1)

    @property
    def _mixture(self) -> bool:
        return hasattr(self.posterior, "weights") and hasattr(self.posterior, "means")


def closed_form(model: Deconvolver) -> XDGMM:
    """Return the same density as an estimator whose answers are exact, and quick."""
    mixture = average(model.mixtures_)
    exact = XDGMM(len(mixture))
    exact.weights_, exact.means_ = mixture.weights, mixture.means
    exact.covariances_ = mixture.covariances
    exact.n_features_in_ = exact.n_latent_ = mixture.dim
    exact.noise_given_ = True
    return exact


def answer_posterior(
    model: Any, w: Array, noise: Noise, *, n_draws: int = 400, seed: int = 0
) -> Answer:
    """Ask an estimator for the posterior of rows, with the options it knows."""
    options = {"n_samples": n_draws, "n_proposals": max(1000, n_draws), "random_state": seed}
    known = inspect.signature(model.posterior).parameters
    asked = {name: value for name, value in options.items() if name in known}
    return Answer(model.posterior(w, noise=noise, **asked), seed)


def _mixture_quantile(posterior: Any, share: float) -> Array:
    """Halve an interval that holds the quantile of each row's mixture."""
    sd = np.sqrt(np.maximum(np.diagonal(posterior.covariances, axis1=2, axis2=3), 1e-300))
    each = posterior.means + sd * ndtri(share)  # the quantile lies among those of the components
    low, high = each.min(1), each.max(1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = np.einsum(
            "nc,ncd->nd", posterior.weights, ndtr((middle[:, None] - posterior.means) / sd)
        )
        low, high = np.where(below < share, middle, low), np.where(below < share, high, middle)
    return 0.5 * (low + high)
