r"""Gaussian mixtures in closed form, averages of any densities, and densities on a grid.

For an average of any densities, by closed forms or weighted draws, the parts are as they are and
only the shares :math:`r` of each row are put together here:

.. math:: p(v \mid w) = \sum_c r_c \, p_c(v \mid w), \qquad
          r_c = \frac{a_c \, p_c(w)}{\sum_d a_d \, p_d(w)}
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.classical import (
    GridDensity,
    WeightedPoints,
    grid_mixture,
    resample,
    weighted_points,
)
from deconflow.evaluation import Estimate
from deconflow.fits.bands import MixtureColumn
from deconflow.fits.fitted import FittedDensity, as_seed
from deconflow.fits.posterior import Posterior, WeightedPosterior, mixed_moments
from deconflow.mixtures import GaussianMixture, mix, stack
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations, refuse_unreached, rows_counted_from
from deconflow.randomness import RandomState
from deconflow.standardising import Standardiser
from deconflow.xd import expectation, lay_out, posterior_pieces

#: Mixtures of more components are worth the compiled kernel.
FEW = 32
#: Mixtures of more components are too slow for hundreds of draws of every row.
FEW_FOR_DRAWS = 64
#: Rows that tell of how many Gaussians the noise of the others is made.
ROWS_FOR_PARTS = 1000
#: Of a blend: arrays of the size of the draws that it takes to put them together, and points per
#: row for the shares of a posterior.
ARRAYS, POINTS = 4, 128

Question = Callable[[GaussianMixture, IntArray], Sequence[Array]]


@dataclass(frozen=True, eq=False, repr=False)
class ExactPosterior(Posterior):
    """A Gaussian mixture per row, made again in pieces by every method: memory stays small.

    Attributes
    ----------
    prior : GaussianMixture
        The density of the true values.
    data : Observations
        The rows.
    columns : array
        Numbers of the dimensions among those of the prior.
    threads : int or None
        How many to use at most.
    """

    prior: GaussianMixture
    data: Observations
    columns: IntArray
    threads: int | None = None
    exact: bool = field(default=True, kw_only=True)

    BY_ROW = (*Posterior.BY_ROW, "data")
    BY_COLUMN = (*Posterior.BY_COLUMN, "columns")

    @classmethod
    def of(
        cls, prior: GaussianMixture, data: Observations, names: list[str],
        threads: int | None = None, n_samples: int = 100, seed: int = 0,
    ) -> "ExactPosterior":  # fmt: skip
        """Find the moments of all rows."""
        none = np.empty((len(data), 0))
        raw = cls(
            names, none, none, np.broadcast_to(np.inf, len(data)),
            prior, data, np.arange(prior.dim), threads, n_samples=n_samples, seed=seed,
        )  # fmt: skip
        mean, covariance = raw._ask(lambda each, _: (each.mean, each.covariance))
        return replace(raw, mean=mean, covariance=covariance)

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The mixtures of all rows, as one batch; who needs fewer components has empty ones."""
        rows, pieces = zip(*self._pieces(), strict=True)
        return stack(pieces)[np.argsort(np.concatenate(rows), kind="stable")]

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        numbers = n_samples * (len(self.columns) + 2) ** 2  # a root of each draw's covariance
        return self._ask(lambda mixture, _: (mixture.sample(n_samples, rng),), numbers)[0]

    def _quantiles(self, shares: Array) -> Array:
        return np.stack(
            self._ask(lambda mixture, rows: [mixture.quantiles_at(q[rows]) for q in shares])
        )

    def _probability(self, lower: Array, upper: Array) -> Array:
        found = self._ask(
            lambda mixture, rows: (mixture.probability(lower[rows, None], upper[rows, None]),)
        )[0]
        data = self.data
        if data.projection is not None:
            return found
        w = data.measured()[:, self.columns]  # to the last bit, where that is exact
        exact = (data.noise.variance() == 0)[:, self.columns] & ~np.isnan(w)
        return np.where(exact, (lower <= w) & (w <= upper), found)

    def _ask(self, question: Question, numbers: int = 0) -> list[Array]:
        """Put answers for the rows of each piece, with their numbers, where these rows are."""
        whole: list[Array] = []
        for rows, mixture in self._pieces(numbers):
            parts = question(mixture, rows)
            whole = whole or [np.empty((len(self.data), *part.shape[1:])) for part in parts]
            for answer, part in zip(whole, parts, strict=True):
                answer[rows] = part
        return whole

    def _pieces(self, numbers: int = 0) -> Iterator[tuple[IntArray, GaussianMixture]]:
        """Walk through rows and their mixtures, of which so many numbers are made for each row."""
        prior, columns = self.prior, self.columns
        if not len(self.data):
            none = (x[None][:0] for x in (prior.weights, prior.means, prior.covariances))
            yield np.arange(0), GaussianMixture(*none).marginal(columns)
        whole = np.array_equal(columns, np.arange(prior.dim))
        for rows, mixture in posterior_pieces(prior, self.data, self.threads, numbers):
            yield rows, mixture if whole else mixture.marginal(columns)


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
        return self.mixture if self.mixture.n_components <= FEW_FOR_DRAWS else super().statistic

    def _log_prob(self, v: Array) -> Array:
        if self.mixture.n_components > FEW:
            exact = Observations.from_arrays(v, gaussian(sd=np.zeros(self.dim)))
            return self.memberships(exact, responsibilities=False)[0]
        pieces = row_slices(len(v), 5 * (self.mixture.n_components + self.dim))
        return np.concatenate([np.empty(0), *(self.mixture.log_prob(v[some]) for some in pieces)])

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
        return ExactPosterior.of(
            self.mixture, data, self.names, self.threads, n_samples, as_seed(random_state)
        )

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return whether the noise is Gaussian, or enters as a mixture of Gaussians."""
        return gaussian_noise or self.other_laws is None

    def averaged(self) -> list[FittedDensity]:
        """Return the mixtures that are averaged."""
        several = self.members if len(self.members) > 1 else []
        return [MixtureFit([member], self.names, self.threads) for member in several]

    def as_mixture(self) -> GaussianMixture:
        """Return the average, as one mixture of all components."""
        return self.mixture

    def _marginal(self, columns: IntArray) -> "MixtureFit":
        members = [member.marginal(columns) for member in self.members]
        others = self._make_other_laws and partial(self._marginal_of_others, columns)
        return MixtureFit(members, [self.names[d] for d in columns], self.threads, others)

    def _marginal_of_others(self, columns: IntArray) -> FittedDensity | None:
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
        # How many numbers a row becomes on its way to the compiled kernel.
        few = data.noise.shared or len(data) <= ROWS_FOR_PARTS
        law = data.noise if few else data.noise[:ROWS_FOR_PARTS]
        values = data.dim if data.noise.independent else data.dim**2
        values += 0 if data.projection is None else data.dim * data.latent_dim
        numbers = 4 * law.as_mixture().n_parts * (values + data.dim) + 2 * count * responsibilities
        for some in row_slices(len(data), numbers):
            # All rows as they are, which know what has been made of their law.
            rows = data if some == slice(0, len(data)) else data[some]
            with rows_counted_from(some.start):
                sums = expectation(
                    standard, lay_out(rows, units), moments=False,
                    responsibilities=responsibilities, threads=self.threads,
                )  # fmt: skip
                refuse_unreached(~np.isfinite(sums.log_p))
            log_p[some] = sums.log_p
            if q is not None:
                q[some] = sums.responsibilities
        return log_p, q


class BlendFit(FittedDensity):
    r"""The density :math:`p(v) = \sum_c a_c \, p_c(v)`.

    Attributes
    ----------
    shares : array
        ``(C,)``: ``a``, with sum one.
    parts : list of FittedDensity
        What is averaged, of any kinds.
    """

    def __init__(self, shares: Sequence[float] | Array, parts: Sequence[FittedDensity]) -> None:
        self.shares, self.parts = np.asarray(shares, dtype=np.float64), list(parts)
        self.names, self.threads = self.parts[0].names, self.parts[0].threads

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Where the truth of any part ends."""
        lower, upper = zip(*(part.ends for part in self.parts), strict=True)
        return np.min(lower, axis=0), np.max(upper, axis=0)

    def _log_prob(self, v: Array) -> Array:
        each = np.stack([part._log_prob(v) for part in self.parts])
        return np.asarray(logsumexp(each, axis=0, b=self.shares[:, None]), dtype=np.float64)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``, each row from a part drawn by its share."""
        rng = check_random_state(random_state)
        owner = rng.choice(len(self.parts), size=n, p=self.shares / self.shares.sum())
        drawn = np.empty((n, self.dim))
        for c, part in enumerate(self.parts):
            mine = owner == c
            if mine.any():
                drawn[mine] = part._sample(mine.sum(), rng.randint(2**31 - 1))
        return drawn

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with the errors of the parts that have one."""
        found = [part.log_marginal(data, n_draws, random_state) for part in self.parts]
        log_p, r = self._shared_out(found)
        error = np.sqrt(sum(np.square(r[c] * each.error) for c, each in enumerate(found)))
        bias = sum(r[c] * each.bias for c, each in enumerate(found))
        return Estimate(log_p, np.asarray(error), np.asarray(bias))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: the parts' own, by the shares of each row."""
        mixture = self.as_mixture()
        if mixture is not None and self.exact(gaussian_noise=isinstance(data.noise, GaussianNoise)):
            return MixtureFit([mixture], self.names, self.threads).posterior(
                data, n_samples, n_proposals, random_state
            )
        pieces = self._pieces(data, n_samples, n_proposals, check_random_state(random_state))
        return WeightedPosterior.of_pieces(len(data), n_samples, self.names, pieces)

    def _pieces(
        self, data: Observations, n_samples: int, n_proposals: int, rng: np.random.RandomState
    ) -> Iterator[tuple[slice, tuple[Array, ...]]]:
        """Walk through rows and their answers, so that no part keeps its draws of all rows."""
        for some in row_slices(len(data), ARRAYS * len(self.parts) * n_samples * self.dim):
            rows, seeds = data[some], rng.randint(2**31 - 1, size=2).tolist()
            with rows_counted_from(some.start):
                evidence = [part.log_marginal(rows, POINTS, seeds[0]) for part in self.parts]
                found = [
                    part.posterior(rows, n_samples, n_proposals, seeds[1]) for part in self.parts
                ]
            yield some, self._blended(self._shared_out(evidence)[1], found, n_samples, rng)

    def _blended(
        self, r: Array, found: list[Posterior], n_samples: int, rng: np.random.RandomState
    ) -> tuple[Array, Array, Array, Array]:
        """Draws, mean, covariance and effective size of each row, from those of the parts."""
        n_rows = r.shape[1]
        edges = np.cumsum(r, axis=0).T[:, None]
        owner = (edges[..., :-1] < rng.uniform(size=(n_rows, n_samples, 1))).sum(2)
        samples = np.empty((n_rows, n_samples, self.dim))
        for c, each in enumerate(found):
            mine = owner == c
            samples[mine] = each.sample(n_samples, rng)[mine]
        mean, covariance = mixed_moments(
            list(r), [each.mean for each in found], [each.covariance for each in found]
        )
        lost = sum(np.square(r[c]) / each.effective_sample_size for c, each in enumerate(found))
        with np.errstate(divide="ignore"):  # infinite where all parts are exact
            size = 1 / np.asarray(lost)
        return samples, mean, covariance, size

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether all parts are."""
        return all(part.exact(gaussian_noise=gaussian_noise) for part in self.parts)

    def as_mixture(self) -> GaussianMixture | None:
        """Return the average as one mixture, if all parts are mixtures."""
        mixtures = [part.as_mixture() for part in self.parts]
        known = [each for each in mixtures if each is not None]
        return mix(known, self.shares) if len(known) == len(mixtures) else None

    def averaged(self) -> list[FittedDensity]:
        """Return the parts."""
        return self.parts

    def _marginal(self, columns: IntArray) -> "BlendFit":
        return BlendFit(self.shares, [part._marginal(columns) for part in self.parts])

    def measuring(self, rows: Observations) -> "BlendFit":
        """Return the average of the parts for such rows."""
        return BlendFit(self.shares, [part.measuring(rows) for part in self.parts])

    def _shared_out(self, estimates: list[Estimate]) -> tuple[Array, Array]:
        """Log densities ``(N,)`` of the average, and each part's share ``(C, N)`` in a row."""
        each = np.stack([estimate.log_p for estimate in estimates])
        with np.errstate(divide="ignore"):
            each = each + np.log(self.shares)[:, None]
        total = np.asarray(logsumexp(each, axis=0), dtype=np.float64)
        return total, np.exp(each - total)


class GridFit(FittedDensity):
    """A density on a grid; a mixture of Gaussians stands for it where rows measure less."""

    def __init__(self, grid: GridDensity, names: list[str]) -> None:
        self.grid, self.names = grid, names
        lower, upper = np.broadcast_to(grid.bounds, (2, len(names)))
        self.ends = lower, upper

    @cached_property
    def _mixture(self) -> MixtureFit:
        """The same density in closed form; see :func:`deconflow.classical.grid_mixture`."""
        return MixtureFit([grid_mixture(self.grid)], self.names, self.threads)

    def _log_prob(self, v: Array) -> Array:
        return self.grid.log_prob(v)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        return self.grid.sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row.

        Rows with noise wider than the grid's cells are summed over the grid, and over ``n_draws``
        draws of their noise for the density behind it; the others over draws alone.
        """
        log_p, error = np.empty(len(data)), np.zeros(len(data))
        complete, others = _complete_and_others(data)
        if len(others):
            log_p[others] = self._mixture.log_marginal(data[others]).log_p
        n_draws = 1000 if n_draws is None else n_draws
        for rows, weighed in self._weighed(data, complete, n_draws, random_state):
            log_p[rows], error[rows] = weighed.log_marginal(), weighed.relative_error()
        return Estimate(log_p, error, 0.5 * np.square(error))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, at grid points and draws of its noise."""
        pieces = self._pieces(data, n_samples, n_proposals, check_random_state(random_state))
        return WeightedPosterior.of_pieces(len(data), n_samples, self.names, pieces)

    def _pieces(
        self, data: Observations, n_samples: int, n_proposals: int, rng: np.random.RandomState
    ) -> Iterator[tuple[IntArray, tuple[Any, ...]]]:
        """Walk through rows and their answers."""
        complete, incomplete = _complete_and_others(data)
        for rows, weighed in self._weighed(data, complete, n_proposals, rng):
            yield rows, resample(self.grid, weighed, n_samples, rng)
        if len(incomplete):
            exact = self._mixture.posterior(data[incomplete])
            drawn = exact.sample(n_samples, rng)
            yield incomplete, (drawn, exact.mean, exact.covariance, n_samples)

    def _weighed(
        self, data: Observations, rows: IntArray, n_draws: int, random_state: RandomState
    ) -> Iterator[tuple[IntArray, WeightedPoints]]:
        """Weigh points for complete rows, in pieces; with their numbers."""
        if len(rows):
            complete = replace(data[rows], observed=None)
            for weighed in weighted_points(self.grid, complete, n_draws, random_state):
                yield rows[weighed.rows], weighed

    def _marginal(self, columns: IntArray) -> "GridFit":
        return GridFit(self.grid.marginal(columns), [self.names[d] for d in columns])


def _complete_and_others(data: Observations) -> tuple[IntArray, IntArray]:
    """Numbers of the rows that measure all columns, and of the others."""
    complete = np.full(len(data), data.projection is None)
    if data.observed is not None:
        complete &= np.asarray(data.observed).all(1)
    return np.flatnonzero(complete), np.flatnonzero(~complete)
