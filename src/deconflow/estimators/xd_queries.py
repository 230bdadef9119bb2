"""What a fitted mixture answers: densities, memberships, draws, posteriors, conditionals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import as_floats
from deconflow.estimators.door import observe, refuse_noise_as_y, true_values
from deconflow.estimators.xd_settings import threads
from deconflow.noise import as_noise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import (
    Mixture,
    MixturePosterior,
    Sums,
    expectation,
    lay_out,
    n_parameters,
    posterior,
    seen_through,
)
from deconflow.xd.noise_parts import noise_parts

Array = NDArray[np.float64]


class MixtureQueries:
    """The closed forms of a fitted mixture; the estimator that learns it is :class:`XDGMM`."""

    weights_: Array
    means_: Array
    covariances_: Array
    n_features_in_: int
    n_latent_: int
    n_jobs: int | None

    @property
    def mixture_(self) -> Mixture:
        """The fitted density, in closed form."""
        return Mixture(self.weights_, self.means_, self.covariances_)

    def score_samples(self, v: ArrayLike) -> Array:
        """Log density ``log p(v)`` of true values ``(N, D)``, as ``(N,)``."""
        values = true_values(self, v).numpy()
        return self.mixture_.log_prob(values)

    def score_observations(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> Array:
        """Log density ``log p(w)`` of each measurement, ``(N,)``; exact.

        Parameters are those of :meth:`XDGMM.fit`.
        """
        return self._pass(self._observe(w, noise, projection)).log_p

    def score(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
    ) -> float:
        """Mean of ``log p(w)`` over the rows."""
        refuse_noise_as_y(y, noise)
        return float(self._pass(self._observe(w, noise, projection)).log_p.mean())

    def predict_proba(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> Array:
        """Probability of each component given each measurement, ``(N, K)``."""
        sums = self._pass(self._observe(w, noise, projection), responsibilities=True)
        assert sums.responsibilities is not None
        return sums.responsibilities

    def predict(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """Most probable component of each measurement, ``(N,)``."""
        sums = self._pass(self._observe(w, noise, projection), responsibilities=True)
        assert sums.responsibilities is not None
        return sums.responsibilities.argmax(1)

    def bic(self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None) -> float:
        """Bayesian information criterion on these rows; the lower the better."""
        log_p = self._pass(self._observe(w, noise, projection)).log_p
        return float(self._n_parameters() * np.log(len(log_p)) - 2 * log_p.sum())

    def aic(self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None) -> float:
        """Akaike information criterion on these rows; the lower the better."""
        log_p = self._pass(self._observe(w, noise, projection)).log_p
        return float(2 * self._n_parameters() - 2 * log_p.sum())

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw true values ``(n_samples, D)`` from the density."""
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"Expected n_samples of at least 1; got {n_samples}.")
        return self.mixture_.sample(n_samples, random_state)[0]

    def posterior(
        self, w: ArrayLike, noise: Any = None, *, projection: ArrayLike | None = None
    ) -> MixturePosterior:
        """Exact posterior of each row's true value: a mixture for every row."""
        data = self._observe(w, noise, projection)
        with clear_errors():
            return posterior(self.mixture_, data)

    def condition(
        self, values: ArrayLike, dimensions: ArrayLike, *, noise: Any = 0.0
    ) -> MixturePosterior:
        """Density of the other dimensions given some, for many rows at once.

        Parameters
        ----------
        values
            ``(N, d)`` known values; NaN for one that a row does not know.
        dimensions
            Which ``d`` dimensions these are.
        noise
            Their noise, as in :meth:`XDGMM.fit`; 0.0 if they are exact.

        Returns
        -------
        MixturePosterior
            Over the other dimensions, in their order.
        """
        check_is_fitted(self)
        given = self._dimensions(dimensions)
        others = np.setdiff1d(np.arange(self.n_latent_), given)
        seen = np.eye(self.n_latent_)[given]
        data = Observations.from_arrays(as_floats(values, "values"), noise, projection=seen)
        whole = posterior(self.mixture_, data)
        square = whole.covariances[:, :, others[:, None], others[None, :]]
        return MixturePosterior(whole.weights, whole.means[:, :, others], square)

    def marginal(self, dimensions: ArrayLike) -> Mixture:
        """Return the density of some dimensions, in the order given."""
        check_is_fitted(self)
        return self.mixture_.marginal(self._dimensions(dimensions))

    def convolve(self, noise: Any) -> Mixture:
        """Return the density of ``v + n``, for one noise law: what a measurement would follow."""
        check_is_fitted(self)
        dim = self.n_latent_
        if np.ndim(noise) == 2:
            noise = np.asarray(noise)[None]
        law = as_noise(noise, 1, dim)
        parts = noise_parts(law).take(None, None)
        covariances = parts.covariances[0]
        if parts.diagonal:
            covariances = covariances[:, :, None] * np.eye(dim)
        shifts = np.zeros((1, dim)) if parts.means is None else parts.means[0]
        K, J = len(self.weights_), len(covariances)
        return Mixture(
            np.outer(self.weights_, parts.weights[0]).ravel(),
            np.broadcast_to(self.means_[:, None] + shifts, (K, J, dim)).reshape(-1, dim),
            (self.covariances_[:, None] + covariances).reshape(-1, dim, dim),
        )

    def _n_parameters(self) -> int:
        return n_parameters(len(self.weights_), self.n_latent_)

    def _dimensions(self, dimensions: ArrayLike) -> NDArray[np.int64]:
        given = np.atleast_1d(np.asarray(dimensions))
        whole = given.dtype.kind in "iu" and given.ndim == 1 and len(given) > 0
        if not whole or not np.isin(given, np.arange(self.n_latent_)).all():
            raise ValueError(
                f"Expected dimensions between 0 and {self.n_latent_ - 1}; got {dimensions!r}."
            )
        if len(np.unique(given)) < len(given):
            raise ValueError(f"Expected each dimension once; got {dimensions!r}.")
        return given.astype(np.int64)

    def _pass(self, data: Observations, *, responsibilities: bool = False) -> Sums:
        rows = lay_out(data)
        with clear_errors():
            return expectation(
                rows.units.mixture(self.mixture_), rows, moments=False,
                responsibilities=responsibilities, threads=threads(self),
            )  # fmt: skip

    def _observe(
        self,
        w: ArrayLike,
        noise: Any,
        projection: ArrayLike | None,
        weights: ArrayLike | None = None,
        *,
        reset: bool = False,
    ) -> Observations:
        data = observe(self, w, noise, projection, weights, reset=reset)
        if reset:
            _refuse_unseen(data)
        return data


@contextmanager
def clear_errors() -> Iterator[None]:
    """Say what a singular matrix means to a user."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "Expected rows whose values are not exact copies of each other; got exact rows that "
            "measure the same combination twice. Drop a column, or give it noise."
        ) from error


def _refuse_unseen(data: Observations) -> None:
    seen = np.abs(seen_through(data)).sum((0, 1))
    if (seen == 0).any():
        raise ValueError(
            "Expected every dimension to be measured in at least one row; "
            f"got none for column {int(np.argmin(seen))}. Drop it."
        )
