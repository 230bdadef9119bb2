"""The density of the truth given covariates."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.estimators.changed_posteriors import MovedPosterior
from deconflow.estimators.fitted import Columns, FittedDensity
from deconflow.estimators.posterior import Posterior
from deconflow.evaluation import Estimate, row_p_values_given
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.truth import LocationScale

MOST_KEPT = 200
"""Rows of covariates that a model keeps: the mix of them that answers without any are about."""
PAIRS_AT_ONCE = 100_000


class JointFit(FittedDensity):
    r"""The density :math:`p(z \mid x) = p(z, x) / p(x)` of a mixture of both.

    Attributes
    ----------
    joint : FittedDensity
        The density of ``(z, x)``, covariates last.
    """

    def __init__(self, joint: FittedDensity, covariates: int) -> None:
        self.joint, self.covariates = joint, covariates
        self.names, self.threads = joint.names[: joint.dim - covariates], joint.threads

    @property
    def depends_on_covariates(self) -> bool:
        """Return True."""
        return True

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        lower, upper = self.joint.ends
        return lower[: self.dim], upper[: self.dim]

    @cached_property
    def _of_covariates(self) -> FittedDensity:
        return self.joint._marginal(np.arange(self.dim, self.joint.dim))

    def log_prob_given(self, v: Array, given: Array) -> Array:
        """Log density ``(N,)`` of true values given encoded covariates ``(N, C)``."""
        both = self.joint._log_prob(np.column_stack([v, given]))
        return both - self._of_covariates._log_prob(given)

    def sample_given(self, given: Array, random_state: RandomState = None) -> Array:
        """Draw a truth for each row of encoded covariates ``(N, C)``."""
        exact = Observations.from_arrays(given, gaussian(sd=np.zeros(self.covariates)))
        columns = np.arange(self.dim, self.joint.dim)
        return self.joint.condition(exact, columns, 1, random_state).sample(1, random_state)[:, 0]

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density of each row given its covariates."""
        both = self.joint.log_marginal(with_covariates(data), n_draws, random_state)
        return both.shifted(-self._of_covariates._log_prob(_given(data)))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value."""
        rows = with_covariates(data)
        both = self.joint.posterior(rows, n_samples, n_proposals, random_state)
        return both.marginal(np.arange(self.dim))

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the joint density is."""
        return self.joint.exact(gaussian_noise=gaussian_noise)

    def averaged(self) -> list[FittedDensity]:
        """Return nothing: a single fit."""
        return []

    def _marginal(self, columns: Columns) -> JointFit:
        kept = np.r_[columns, np.arange(self.dim, self.joint.dim)]
        return JointFit(self.joint._marginal(kept), self.covariates)

    def _log_prob(self, v: Array) -> Array:
        raise ValueError(EXPECTED_GIVEN)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        raise ValueError(EXPECTED_GIVEN)

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Refuse: see :class:`GivenFit`."""
        raise ValueError(EXPECTED_GIVEN)


EXPECTED_GIVEN = "Expected given, because the model was fitted with covariates; got none."


class GivenFit(FittedDensity):
    r"""The density of :math:`v = m(x) + \tau(x) z`, with that of ``z`` given ``x``.

    Without covariates, questions about the truth are answered for the mix of these that the fitted
    rows have; questions about rows need them.

    Attributes
    ----------
    inner : FittedDensity
        The density of ``z``, which may depend on ``x``.
    curves : LocationScale or None
        ``m`` and ``tau``; None for none.
    kept : array
        ``(R, C)`` encoded covariates of some of the fitted rows.
    """

    def __init__(self, inner: FittedDensity, curves: LocationScale | None, kept: Array) -> None:
        self.inner, self.curves, self.kept = inner, curves, kept
        self.names, self.threads = inner.names, inner.threads

    @property
    def depends_on_covariates(self) -> bool:
        """Return True."""
        return True

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        return self.inner.ends if self.curves is None else super().ends

    def _at(self, given: Array) -> tuple[Array, Array]:
        if self.curves is None:
            return np.zeros((len(given), self.dim)), np.ones((len(given), self.dim))
        return self.curves.at(given)

    def standardised(self, data: Observations) -> Observations:
        """Return the rows of ``z``."""
        _given(data)
        return data if self.curves is None else self.curves.standardised(data)

    def log_prob_given(self, v: Array, given: Array) -> Array:
        """Log density ``(N,)`` of true values given encoded covariates ``(N, C)``."""
        location, scale = self._at(given)
        found = self.inner.log_prob_given((v - location) / scale, given)
        return found - np.log(scale).sum(1)

    def sample_given(self, given: Array, random_state: RandomState = None) -> Array:
        """Draw a truth for each row of encoded covariates ``(N, C)``."""
        location, scale = self._at(given)
        return location + scale * self.inner.sample_given(given, random_state)

    def _log_prob(self, v: Array) -> Array:
        """Average over the covariates that are kept."""
        count, step = len(self.kept), max(1, PAIRS_AT_ONCE // len(self.kept))
        parts = []
        for lo in range(0, len(v), step):
            some = v[lo : lo + step]
            pairs = np.repeat(some, count, axis=0), np.tile(self.kept, (len(some), 1))
            parts.append(logsumexp(self.log_prob_given(*pairs).reshape(-1, count), axis=1))
        return np.concatenate(parts) - np.log(count)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        rng = check_random_state(random_state)
        return self.sample_given(self.kept[rng.randint(len(self.kept), size=n)], rng)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density of each row given its covariates."""
        found = self.inner.log_marginal(self.standardised(data), n_draws, random_state)
        return found if self.curves is None else found.shifted(-self.curves.log_volume(data))

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
        return MovedPosterior(inner, *self._at(_given(data)), self.names)

    def p_values(
        self, data: Observations, n_draws: int = 199, random_state: RandomState = 0
    ) -> Array:
        """How unusual each row is given its covariates, ``(N,)``; none below 1 / (n_draws + 1).

        Where the density of ``z`` is the same for all covariates it is as for other densities.
        """
        rows = self.standardised(data)
        if not self.inner.depends_on_covariates:
            return self.inner.p_values(rows, n_draws, random_state)
        return row_p_values_given(
            self.inner.sample_given, self._statistic, rows,
            n_draws=n_draws, random_state=random_state, threads=self.threads,
        )  # fmt: skip

    @cached_property
    def _statistic(self) -> GaussianMixture:
        return GivenFit(self.inner, None, self.kept).statistic

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the density of ``z`` is, and the only one."""
        return self.inner.exact(gaussian_noise=gaussian_noise)

    def averaged(self) -> list[FittedDensity]:
        """Return nothing: a single fit."""
        return []

    def _marginal(self, columns: Columns) -> GivenFit:
        curves = None if self.curves is None else self.curves.marginal(columns)
        return GivenFit(self.inner._marginal(columns), curves, self.kept)

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Refuse: covariates and columns of the truth would both be given."""
        raise ValueError(
            "Expected a model without covariates to condition on columns of the truth; got one "
            "with some. Put the covariates in w, with errors of zero, and condition on those."
        )


def _given(data: Observations) -> Array:
    if data.given is None:
        raise ValueError(EXPECTED_GIVEN)
    return data.given.double().numpy()


def with_covariates(data: Observations) -> Observations:
    """Return rows with their covariates as further, exact columns of the truth."""
    assert data.given is not None
    n, count = data.given.shape
    noise = data.noise
    if not isinstance(noise, GaussianNoise):
        raise TypeError("Expected Gaussian noise beside exact columns; got another law.")
    zeros = torch.zeros(len(noise.factor), count, dtype=noise.factor.dtype)
    factor = (
        torch.cat([noise.factor, zeros], 1) if noise.diagonal
        else torch.nn.functional.pad(noise.factor, (0, count, 0, count))
    )  # fmt: skip
    ones = torch.ones(n, count, dtype=torch.bool)
    observed = None if data.observed is None else torch.cat([data.observed, ones], 1)
    own = None if noise.observed is None else torch.cat([noise.observed, ones], 1)
    projection = data.projection
    if projection is not None:
        projection = torch.nn.functional.pad(projection, (0, count, 0, count))
        projection[:, -count:, -count:] = torch.eye(count, dtype=projection.dtype)
    joint = replace(noise, factor=factor, observed=own)
    w = torch.cat([data.w, data.given.to(data.w)], 1)
    return replace(data, w=w, noise=joint, observed=observed, projection=projection, given=None)
