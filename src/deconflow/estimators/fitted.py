"""What a fit has learned, and the four questions that every fit answers.

Where a new kind of density answers exactly, by weighted draws, or on a grid, it is one more class
here; estimators ask only what :class:`FittedDensity` promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.checks import check_integer, first_bad
from deconflow.classical import GridDensity, condition_on_grid, resample, weighted_points
from deconflow.densities import Density, Ensemble, MixtureDensity
from deconflow.estimators.posterior import ExactPosterior, Posterior, WeightedPosterior
from deconflow.evaluation import FEWEST_POINTS, Estimate, estimate_log_likelihood
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise, gaussian
from deconflow.observations import Observations
from deconflow.posteriors import (
    DefensiveProposal,
    PosteriorModel,
    RowsWithProposals,
    WeightedDraws,
    weigh,
)
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser
from deconflow.xd import expectation, lay_out, posterior_pieces

Columns = NDArray[np.int64]
"""Numbers of dimensions."""

POINTS_AT_ONCE = 2**14
SMALLEST_NOISE = 1e-3
"""Exact values are taken to be known to this share of the truth's standard deviation."""


class OutOfReachError(ValueError):
    """A measurement to which the model gives no density at all."""


class FittedDensity(ABC):
    """The density of the truth that a fit has learned, in the user's units.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    """

    names: list[str]

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.names)

    @abstractmethod
    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""

    @abstractmethod
    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""

    @abstractmethod
    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with its error; ``n_draws`` None for the usual."""

    @abstractmethod
    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value; exact answers need none of the numbers."""

    @abstractmethod
    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether answers about rows with such noise are closed forms."""

    @abstractmethod
    def averaged(self) -> list[FittedDensity]:
        """Return the densities that this is an average of; none for a single fit."""

    @abstractmethod
    def marginal(self, columns: Columns) -> FittedDensity:
        """Return the density of some dimensions, in the order given."""

    @abstractmethod
    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""

    def _others(self, given: Columns) -> Columns:
        return np.setdiff1d(np.arange(self.dim), given)


class MixtureFit(FittedDensity):
    """An average of Gaussian mixtures: every answer is a closed form.

    Attributes
    ----------
    members : list of GaussianMixture
        What is averaged.
    mixture : GaussianMixture
        All their components as one.
    """

    def __init__(
        self, members: list[GaussianMixture], names: list[str], threads: int | None = None
    ) -> None:
        self.members, self.names, self.threads = members, names, threads

    @cached_property
    def mixture(self) -> GaussianMixture:
        """The average, as one mixture of all components."""
        return self.members[0] if len(self.members) == 1 else mix(self.members)

    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        step = max(1, 2**22 // self.mixture.n_components)
        parts = [self.mixture.log_prob(v[lo : lo + step]) for lo in range(0, len(v), step)]
        return np.concatenate(parts)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        return self.mixture.sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row; there is no error."""
        return Estimate.exact(self.memberships(data, responsibilities=False)[0])

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: a mixture per row."""
        with clear_errors():
            return ExactPosterior(list(posterior_pieces(self.mixture, data)), self.names)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return True: noise that is not Gaussian enters as a mixture of Gaussians."""
        return True

    def averaged(self) -> list[FittedDensity]:
        """Return the mixtures that are averaged."""
        if len(self.members) == 1:
            return []
        return [MixtureFit([member], self.names, self.threads) for member in self.members]

    def marginal(self, columns: Columns) -> MixtureFit:
        """Return the density of some dimensions, in the order given."""
        members = [member.marginal(columns) for member in self.members]
        return MixtureFit(members, [self.names[d] for d in columns], self.threads)

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        return self.posterior(seen_through(data, given, self.dim)).marginal(self._others(given))

    def memberships(
        self, data: Observations, *, responsibilities: bool = True
    ) -> tuple[Array, Array | None]:
        """Log density ``(N,)`` of each row, and the probability ``(N, K)`` of each component."""
        rows = lay_out(data)
        with clear_errors():
            sums = expectation(
                rows.units.mixture_to_standard(self.mixture), rows, moments=False,
                responsibilities=responsibilities, threads=self.threads,
            )  # fmt: skip
        return sums.log_p, sums.responsibilities


class Proposing(Protocol):
    """Where the draws of a weighted answer come from."""

    @property
    def advice(self) -> str:
        """What else a user may do about a row that no draw reaches."""

    def weigh(self, density: Density, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows."""

    def estimate(self, density: Density, data: Observations, n_draws: int) -> Estimate:
        """Estimate ``log p(w)`` of standardised rows."""

    def embed(self, data: Observations, given: Columns, dim: int) -> Observations:
        """Turn rows that measure only some dimensions into rows that draws can be made for."""


@dataclass(frozen=True)
class ProposedByModel:
    """Draws from a trained posterior; the estimate is the importance-weighted bound."""

    model: PosteriorModel
    advice: str = ", or use dtype='float64'"

    def weigh(self, density: Density, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows."""
        like = next(density.parameters())
        return weigh(density, self.model, data.to(dtype=like.dtype, device=like.device), n_draws)

    def estimate(self, density: Density, data: Observations, n_draws: int) -> Estimate:
        """Estimate a lower bound of ``log p(w)``; its bias is told, not taken off."""
        draws = self.weigh(density, data, n_draws)
        relative = (draws.normalised.double() * n_draws).var(0, unbiased=False).div(n_draws).sqrt()
        parts = (draws.log_marginal(), relative, 0.5 * relative.square())
        return Estimate(*(part.double().cpu().numpy() for part in parts))

    def embed(self, data: Observations, given: Columns, dim: int) -> Observations:
        """Leave the other dimensions missing: networks know rows of one width only."""
        return missing_others(data, given, dim)


@dataclass(frozen=True)
class ProposedByMixture:
    """Draws around the posterior of a mixture, for any density near it."""

    mixture: GaussianMixture
    advice: str = ""

    def weigh(self, density: Density, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows."""
        dtype, proposal = next(density.parameters()).dtype, DefensiveProposal()
        rows = RowsWithProposals.of(data, self.mixture, dtype).to(dtype=dtype)
        return proposal.weigh(density, rows, proposal.sample(rows, n_draws))

    def estimate(self, density: Density, data: Observations, n_draws: int) -> Estimate:
        """Estimate ``log p(w)`` by quasi-random points, without bias."""
        check_integer("n_samples", n_draws, FEWEST_POINTS)
        dtype = next(density.parameters()).dtype
        rows = RowsWithProposals.of(data, self.mixture, dtype)
        return estimate_log_likelihood(density, rows, n_draws)

    def embed(self, data: Observations, given: Columns, dim: int) -> Observations:
        """Project the truth onto the dimensions given, which takes any law of the noise."""
        return seen_through(data, given, dim)


class WeightedFit(FittedDensity):
    """A density in standardised units, with answers about rows by weighted draws.

    Attributes
    ----------
    density : Density
        In standardised units.
    standardiser : Standardiser
        The change of units.
    proposing : Proposing
        Where draws come from.
    """

    def __init__(
        self,
        density: Density,
        standardiser: Standardiser,
        proposing: Proposing,
        names: list[str],
    ) -> None:
        self.density, self.standardiser, self.proposing = density, standardiser, proposing
        self.names = names

    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        like = next(self.density.parameters())
        with torch.no_grad():
            parts = [
                self.density.log_prob(self.standardiser.to_standard(part).to(like)).double().cpu()
                for part in torch.from_numpy(v).split(POINTS_AT_ONCE)
            ]
        return (torch.cat(parts) - self.standardiser.log_latent_volume()).numpy()

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        with torch.no_grad(), isolated_rng(random_state):
            counts = [min(POINTS_AT_ONCE, n - start) for start in range(0, n, POINTS_AT_ONCE)]
            parts = [
                self.standardiser.from_standard(self.density.sample(count)).cpu()
                for count in counts
            ]
        return torch.cat(parts).numpy()

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, estimated from so many draws or points."""
        n_draws = 100 if n_draws is None else n_draws
        parts: list[Estimate] = []
        for part, ready in self._standardised_chunks(data, n_draws, random_state):
            estimate = self.proposing.estimate(self.density, ready, n_draws)
            first = sum(len(done.log_p) for done in parts)
            self._refuse_out_of_reach(~np.isfinite(estimate.log_p), first)
            volume = self.standardiser.log_observed_volume(part).numpy()
            parts.append(estimate.shifted(-volume))
        return Estimate.joined(parts)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, by sampling-importance-resampling."""
        parts: list[tuple[torch.Tensor, ...]] = []
        for _, ready in self._standardised_chunks(data, n_proposals, random_state):
            draws = self.proposing.weigh(self.density, ready, n_proposals)
            unreached = ~draws.log_weights.amax(0).isfinite()
            self._refuse_out_of_reach(unreached.cpu().numpy(), sum(len(p[1]) for p in parts))
            scale = self.standardiser.scale.to(draws.v.device)
            parts.append((
                self.standardiser.from_standard(draws.resample(n_samples)).transpose(0, 1),
                self.standardiser.from_standard(draws.mean()),
                draws.covariance().double() * torch.outer(scale, scale),
                draws.effective_sample_size(),
            ))  # fmt: skip
        samples, mean, covariance, size = (
            torch.cat(column).double().cpu().numpy() for column in zip(*parts, strict=True)
        )
        return WeightedPosterior(samples, mean, covariance, size, self.names)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return False."""
        return False

    def averaged(self) -> list[FittedDensity]:
        """Return the flows of an ensemble, without the mixtures that keep their tails in check."""
        if not isinstance(self.density, Ensemble):
            return []
        return [
            WeightedFit(member, self.standardiser, self.proposing, self.names)
            for member in self.density.densities()
            if not isinstance(member, MixtureDensity)
        ]

    def marginal(self, columns: Columns) -> MarginalFit:
        """Return the density of some dimensions, in the order given."""
        return MarginalFit(self, columns)

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        rows = self.proposing.embed(data, given, self.dim)
        whole = self.measuring(rows).posterior(rows, n_samples, random_state=random_state)
        return whole.marginal(self._others(given))

    def measuring(self, rows: Observations) -> WeightedFit:
        """Return the same density, for rows that measure something else than those fitted."""
        units = self.standardiser.measuring(rows)
        return WeightedFit(self.density, units, self.proposing, self.names)

    def _standardised_chunks(
        self, data: Observations, n_draws: int, random_state: RandomState
    ) -> Iterator[tuple[Observations, Observations]]:
        """Walk through the rows in chunks of bounded memory, as they are and standardised."""
        with torch.no_grad(), isolated_rng(random_state):
            for part in data.chunks(max(1, POINTS_AT_ONCE // n_draws)):
                yield part, standardised(self.standardiser, part)

    def _refuse_out_of_reach(self, unreached: NDArray[np.bool_], first_row: int) -> None:
        """Raise where no draw of a row has a density above zero."""
        position = first_bad(unreached)
        if position is not None:
            dtype = next(self.density.parameters()).dtype
            raise OutOfReachError(
                "Expected measurements that the model can reach; "
                f"got row {first_row + position[0]} of w, whose density is zero in {dtype}. "
                f"Look at that row{self.proposing.advice}."
            )


class MarginalFit(FittedDensity):
    """Some dimensions of a density that has no closed form: the others count as not measured."""

    def __init__(self, parent: WeightedFit, columns: Columns) -> None:
        self.parent, self.columns = parent, columns
        self.names = [parent.names[d] for d in columns]

    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``, estimated from 1,000 points each."""
        exact = Observations.from_arrays(v, gaussian(sd=np.zeros(self.dim)))
        return self.log_marginal(exact, 1000).log_p

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        return self.parent.sample(n, random_state)[:, self.columns]

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row."""
        rows = self._embedded(data)
        return self.parent.measuring(rows).log_marginal(rows, n_draws, random_state)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value."""
        rows = self._embedded(data)
        whole = self.parent.measuring(rows).posterior(rows, n_samples, n_proposals, random_state)
        return whole.marginal(self.columns)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return False."""
        return False

    def averaged(self) -> list[FittedDensity]:
        """Return nothing: a single fit."""
        return []

    def marginal(self, columns: Columns) -> MarginalFit:
        """Return the density of some dimensions, in the order given."""
        return MarginalFit(self.parent, self.columns[columns])

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        rows = self.parent.proposing.embed(data, self.columns[given], self.parent.dim)
        whole = self.parent.measuring(rows).posterior(rows, n_samples, random_state=random_state)
        return whole.marginal(self.columns[self._others(given)])

    def _embedded(self, data: Observations) -> Observations:
        return self.parent.proposing.embed(data, self.columns, self.parent.dim)


class BlendFit(FittedDensity):
    """What ``Deconvolver`` fits: mixtures alone, with closed forms, or blended with flows."""

    def __init__(self, mixtures: MixtureFit, weighted: WeightedFit, *, has_flows: bool) -> None:
        self.mixtures, self.weighted, self.has_flows = mixtures, weighted, has_flows
        self.names = mixtures.names

    @property
    def density(self) -> Density:
        """The density in standardised units."""
        return self.weighted.density

    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        return (self.weighted if self.has_flows else self.mixtures).log_prob(v)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        return (self.weighted if self.has_flows else self.mixtures).sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row: exact for mixtures under Gaussian noise."""
        return self._answering(data).log_marginal(data, n_draws, random_state)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: exact for mixtures under Gaussian noise."""
        answering = self._answering(data)
        return answering.posterior(data, n_samples, n_proposals, random_state)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return whether mixtures were chosen and the noise is Gaussian."""
        return gaussian_noise and not self.has_flows

    def averaged(self) -> list[FittedDensity]:
        """Return the flows, or the mixtures where these were chosen."""
        return (self.weighted if self.has_flows else self.mixtures).averaged()

    def marginal(self, columns: Columns) -> FittedDensity:
        """Return the density of some dimensions, in the order given."""
        return (self.weighted if self.has_flows else self.mixtures).marginal(columns)

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        return self._answering(data).condition(data, given, n_samples, random_state)

    def _answering(self, data: Observations) -> FittedDensity:
        """Mixtures know other laws only as parts; weights have the laws themselves."""
        gaussian = isinstance(data.noise, GaussianNoise)
        return self.mixtures if self.exact(gaussian_noise=gaussian) else self.weighted


class GridFit(FittedDensity):
    """A density on a grid, for complete rows in few dimensions."""

    def __init__(self, grid: GridDensity, names: list[str]) -> None:
        self.grid, self.names = grid, names

    def log_prob(self, v: Array) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        return self.grid.log_prob(v)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        return self.grid.sample(n, random_state)

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row.

        Rows with noise wider than the grid's cells are summed over the grid, and over ``n_draws``
        draws of their noise for the law behind it; the others over draws alone.
        """
        log_p, error = np.empty(len(data)), np.empty(len(data))
        n_draws = 1000 if n_draws is None else n_draws
        for weighed in weighted_points(self.grid, data, n_draws, random_state):
            log_p[weighed.rows] = weighed.log_marginal()
            error[weighed.rows] = weighed.relative_error()
        return Estimate(log_p, error, 0.5 * np.square(error))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, at grid points and draws of its noise."""
        n, dim = len(data), self.dim
        arrays = (
            np.empty((n, n_samples, dim)),
            np.empty((n, dim)),
            np.empty((n, dim, dim)),
            np.empty(n),
        )
        rng = check_random_state(random_state)
        for weighed in weighted_points(self.grid, data, n_proposals, rng):
            parts = resample(self.grid, weighed, n_samples, rng)
            for array, part in zip(arrays, parts, strict=True):
                array[weighed.rows] = part
        return WeightedPosterior(*arrays, self.names)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Return False: draws of the noise are involved."""
        return False

    def averaged(self) -> list[FittedDensity]:
        """Return nothing: a single fit."""
        return []

    def marginal(self, columns: Columns) -> GridFit:
        """Return the density of some dimensions, in the order given."""
        return GridFit(self.grid.marginal(columns), [self.names[d] for d in columns])

    def condition(
        self, data: Observations, given: Columns, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, on their grid, given draws of the noise."""
        others = self._others(given)
        answer = condition_on_grid(self.grid, data, given, others, n_samples, random_state)
        return WeightedPosterior(*answer, [self.names[d] for d in others])


def standardised(standardiser: Standardiser, data: Observations) -> Observations:
    """Change the units of rows, and give exact values a little noise."""
    data = standardiser.observations(data)
    return replace(data, noise=data.noise.floor(SMALLEST_NOISE))


def seen_through(data: Observations, given: Columns, dim: int) -> Observations:
    """Say of rows that measure only some dimensions what they see of the whole truth."""
    onto = torch.eye(dim, dtype=data.w.dtype)[torch.from_numpy(given)]
    own = data.projections() @ onto
    return replace(data, projection=own.expand(len(data), -1, -1))


def missing_others(data: Observations, given: Columns, dim: int) -> Observations:
    """Widen rows that measure only some dimensions by missing values."""
    if data.projection is not None or not isinstance(data.noise, GaussianNoise):
        raise ValueError(
            "Expected Gaussian noise of some columns, because a network knows rows of one width "
            f"only; got {data.noise!r}. Use Deconvolver or XDGMM for other laws."
        )
    w = np.full((len(data), dim), np.nan)
    w[:, given] = data.measured()
    covariance = np.broadcast_to(np.eye(dim), (len(data.noise.covariance()), dim, dim)).copy()
    covariance[:, given[:, None], given] = data.noise.covariance().numpy()
    law = gaussian(covariance=covariance if len(covariance) > 1 else covariance[0])
    return Observations.from_arrays(w, law)


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
