"""The density of the true values given covariates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.evaluation import Estimate
from deconflow.fits.changed_posteriors import MovedPosterior
from deconflow.fits.fitted import Columns, FittedDensity
from deconflow.fits.posterior import Posterior
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.truth import Covariates, LocationScale


@dataclass(repr=False, eq=False)
class GivenFit(FittedDensity):
    r"""The density of :math:`v = m(x) + \tau(x) z`, where that of ``z`` is the same for all ``x``.

    Log densities and draws are those of the mix of covariates that is kept: one value of them for
    :meth:`given`, and otherwise those of the fitted rows. Rows need their own covariates.

    Attributes
    ----------
    inner : FittedDensity
        The density of ``z``.
    curves : LocationScale
        ``m`` and ``tau``.
    covariates : Covariates
        How covariates become numbers.
    kept : array
        ``(R, C)`` encoded covariates of some of the fitted rows.
    """

    inner: FittedDensity
    curves: LocationScale
    covariates: Covariates
    kept: Array

    def __post_init__(self) -> None:
        self.names, self.threads = self.inner.names, self.inner.threads

    def given(self, x: Any) -> "GivenFit":
        """Return the density for one value of the covariates."""
        return GivenFit(self.inner, self.curves, self.covariates, self.covariates.encode_one(x))

    def covariates_of(self, data: Observations) -> Array:
        """Covariates ``(N, C)`` of rows, which are the same for all if only one is kept."""
        if data.given is not None:
            return np.asarray(data.given)
        if len(self.kept) == 1:
            return np.broadcast_to(self.kept, (len(data), self.kept.shape[1]))
        raise ValueError(self.covariates.missing())

    def standardised(self, data: Observations) -> Observations:
        """Return the rows of ``z``."""
        return self.curves.standardised(data, self.covariates_of(data))

    def _log_prob(self, v: Array) -> Array:
        """Average over the covariates that are kept."""
        location, scale = self.curves.at(self.kept)
        log_p = np.empty(len(v))
        for some in row_slices(len(v), self.kept.shape[0] * self.dim):
            z = (v[some, None] - location) / scale
            each = self.inner._log_prob(z.reshape(-1, self.dim)).reshape(z.shape[:2])
            log_p[some] = logsumexp(each - np.log(scale).sum(1), axis=1)
        return log_p - np.log(len(self.kept))

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        rng = check_random_state(random_state)
        location, scale = self.curves.at(self.kept[rng.randint(len(self.kept), size=n)])
        return location + scale * self.inner._sample(n, rng)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density of each row given its covariates."""
        estimate = self.inner.log_marginal(self.standardised(data), n_draws, random_state)
        return estimate.shifted(-self.curves.log_volume(data, self.covariates_of(data)))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value."""
        rows = self.standardised(data)
        inner = self.inner.posterior(rows, n_samples, n_proposals, random_state)
        return MovedPosterior.of(inner, *self.curves.at(self.covariates_of(data)), self.names)

    def p_values(
        self, data: Observations, n_draws: int = 199, random_state: RandomState = 0
    ) -> Array:
        """How unusual each row is given its covariates, ``(N,)``."""
        return self.inner.p_values(self.standardised(data), n_draws, random_state)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the density of ``z`` has closed forms."""
        return self.inner.exact(gaussian_noise=gaussian_noise)

    def _marginal(self, columns: Columns) -> "GivenFit":
        curves = self.curves.marginal(columns)
        return GivenFit(self.inner._marginal(columns), curves, self.covariates, self.kept)
