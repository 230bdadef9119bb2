"""Averages of Gaussian mixtures: answers in closed form."""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from deconflow._limits import row_slices, rows_at_once
from deconflow._types import Array
from deconflow.evaluation import Estimate
from deconflow.fits.exact_posterior import ExactPosterior
from deconflow.fits.fitted import Columns, FittedDensity, clear_errors
from deconflow.fits.one_column import MixtureColumn
from deconflow.fits.posterior import Posterior, as_seed
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations, refuse_unreached, rows_counted_from
from deconflow.randomness import RandomState
from deconflow.standardising import Standardiser
from deconflow.xd import expectation, lay_out

#: Mixtures of more components are worth the compiled kernel.
FEW = 32
#: Mixtures of more components are too slow for hundreds of draws of every row.
FEW_FOR_DRAWS = 64
#: Rows that tell of how many Gaussians the noise of the others is made.
ROWS_FOR_PARTS = 1000


class MixtureFit(FittedDensity):
    """An average of Gaussian mixtures: every answer is a closed form.

    Attributes
    ----------
    members : list of GaussianMixture
        What is averaged.
    mixture : GaussianMixture
        All their components as one.
    other_laws : FittedDensity or None
        What answers under noise that is not Gaussian, made when it is first needed; None to take
        it as a mixture of Gaussians.
    """

    def __init__(
        self,
        members: list[GaussianMixture],
        names: list[str],
        threads: int | None = None,
        other_laws: Callable[[], FittedDensity | None] | None = None,
    ) -> None:
        self.members, self.names, self.threads = members, names, threads
        self._make_other_laws = other_laws

    @cached_property
    def other_laws(self) -> FittedDensity | None:
        """What answers under noise that is not Gaussian."""
        return None if self._make_other_laws is None else self._make_other_laws()

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The average, as one mixture of all components."""
        return self.members[0] if len(self.members) == 1 else mix(self.members).without_copies()

    @cached_property
    def statistic(self) -> GaussianMixture:
        """Itself, so that a p-value ranks as ``log p(w)`` does, if its components are few."""
        few = self.mixture.n_components <= FEW_FOR_DRAWS
        return self.mixture if few else super().statistic

    def _log_prob(self, v: Array) -> Array:
        if self.mixture.n_components > FEW:
            exact = Observations.from_arrays(v, gaussian(sd=np.zeros(self.dim)))
            return self.memberships(exact, responsibilities=False)[0]
        step = rows_at_once(5 * (self.mixture.n_components + self.dim))  # arrays on the way
        parts = [self.mixture.log_prob(v[lo : lo + step]) for lo in range(0, len(v), step)]
        return np.concatenate(parts)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        return self.mixture.sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row; there is no error."""
        if not isinstance(data.noise, GaussianNoise) and self.other_laws is not None:
            return self.other_laws.log_marginal(data, n_draws, random_state)
        return Estimate.exact(self.memberships(data, responsibilities=False)[0])

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: a mixture per row."""
        if not isinstance(data.noise, GaussianNoise) and self.other_laws is not None:
            return self.other_laws.posterior(data, n_samples, n_proposals, random_state)
        with clear_errors():
            seed = as_seed(random_state)
            return ExactPosterior.of(self.mixture, data, self.names, self.threads, n_samples, seed)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return whether the noise is Gaussian, or enters as a mixture of Gaussians."""
        return gaussian_noise or self.other_laws is None

    def averaged(self) -> list[FittedDensity]:
        """Return the mixtures that are averaged."""
        if len(self.members) == 1:
            return []
        return [MixtureFit([member], self.names, self.threads) for member in self.members]

    def as_mixture(self) -> GaussianMixture:
        """Return the average, as one mixture of all components."""
        return self.mixture

    def _marginal(self, columns: Columns) -> "MixtureFit":
        members = [member.marginal(columns) for member in self.members]
        others = self._make_other_laws and partial(self._marginal_of_others, columns)
        return MixtureFit(members, [self.names[d] for d in columns], self.threads, others)

    def _marginal_of_others(self, columns: Columns) -> FittedDensity | None:
        return None if self.other_laws is None else self.other_laws.marginal(columns)

    def _one_column(self) -> MixtureColumn:
        return MixtureColumn(self.mixture)

    def memberships(
        self, data: Observations, *, responsibilities: bool = True
    ) -> tuple[Array, Array | None]:
        """Log density ``(N,)`` of each row, and the probability ``(N, K)`` of each component."""
        units = Standardiser.of_mixture(self.mixture, data)
        standard, count = units.mixture_to_standard(self.mixture), self.mixture.n_components
        log_p = np.empty(len(data))
        q = np.empty((len(data), count)) if responsibilities else None
        numbers = _numbers_laid_out(data) + (2 * count if responsibilities else 0)
        for some in row_slices(len(data), numbers):
            # All rows as they are, which know what has been made of their law.
            rows = data if some == slice(0, len(data)) else data[some]
            with clear_errors(), rows_counted_from(some.start):
                sums = expectation(
                    standard, lay_out(rows, units), moments=False,
                    responsibilities=responsibilities, threads=self.threads,
                )  # fmt: skip
                refuse_unreached(~np.isfinite(sums.log_p))
            log_p[some] = sums.log_p
            if q is not None:
                q[some] = sums.responsibilities
        return log_p, q


def _numbers_laid_out(data: Observations) -> int:
    """How many numbers a row becomes on its way to the compiled kernel."""
    few = data.noise.shared or len(data) <= ROWS_FOR_PARTS
    noise = data.noise if few else data.noise[:ROWS_FOR_PARTS]
    values = data.dim if data.noise.independent else data.dim**2
    if data.projection is not None:
        values += data.dim * data.latent_dim
    return 4 * noise.as_mixture().n_parts * (values + data.dim)
