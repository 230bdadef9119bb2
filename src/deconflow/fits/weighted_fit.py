"""Densities without closed forms: answers about rows by weighted draws."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import check_integer, like
from deconflow.densities import Density, Ensemble, Folded, MixtureDensity
from deconflow.evaluation import FEWEST_POINTS, Estimate, estimate_log_likelihood
from deconflow.fits.fitted import DRAWS_FOR_MIXTURE, FittedDensity, mixture_of_draws, seen_through
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations, refuse_unreached
from deconflow.posteriors import (
    PosteriorModel,
    RowsWithProposals,
    WeightedDraws,
    weigh,
)
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser, far_rows, log_volume, standardised
from deconflow.truth import Bounds

POINTS_AT_ONCE = 2**14
POINTS_OF_MARGINALS = 256


class WeightedFit(FittedDensity):
    """A density in standardised units, with answers about rows by weighted draws.

    Attributes
    ----------
    density : Density
        In standardised units.
    standardiser : Standardiser
        The change of units.
    proposing : PosteriorModel or GaussianMixture
        Where draws come from: a trained posterior; or the posterior of a mixture near the density,
        for rows of any kind.
    """

    def __init__(
        self,
        density: Density,
        standardiser: Standardiser,
        proposing: PosteriorModel | GaussianMixture,
        names: list[str],
        threads: int | None = None,
    ) -> None:
        self.density, self.standardiser, self.proposing = density, standardiser, proposing
        self.names, self.threads, self.own = names, threads, next(density.parameters())
        if isinstance(density, Folded):
            lower, upper = density.bounds.lower, density.bounds.upper
            self.ends = standardiser.from_standard(lower), standardiser.from_standard(upper)

    def _log_prob(self, v: Array) -> Array:
        own, standard = self.own, torch.tensor(self.standardiser.to_standard(v))
        with torch.no_grad():
            parts = [
                self.density.log_prob(points.to(own)).double().cpu()
                for points in standard.split(POINTS_AT_ONCE)
            ]
        log_p = (torch.cat(parts) - float(np.log(self.standardiser.scale).sum())).numpy()
        unreached = ~np.isfinite(log_p)
        if isinstance(self.density, Folded):
            inside = self.density.inside(standard).numpy()
            log_p, unreached = np.where(inside, log_p, -np.inf), unreached & inside
        refuse_unreached(unreached, 0, f" in {own.dtype}. Look at that row", "v")
        return log_p

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        sizes = [min(POINTS_AT_ONCE, n - first) for first in range(0, n, POINTS_AT_ONCE)]
        with torch.no_grad(), isolated_rng(random_state):
            parts = [self.standardiser.from_standard(self.density.sample(m)).cpu() for m in sizes]
        return torch.cat(parts).numpy()

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, estimated from so many draws or points."""
        n_draws = 100 if n_draws is None else n_draws
        parts: list[Estimate] = []
        with torch.no_grad(), isolated_rng(random_state):
            for first, part, ready in self._standardised_chunks(data, n_draws):
                estimate = self._estimate(ready, n_draws)
                self._refuse_out_of_reach(~np.isfinite(estimate.log_p), first)
                parts.append(estimate.shifted(-log_volume(self.standardiser, part)))
        return Estimate.joined(parts)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, by sampling-importance-resampling."""
        with torch.no_grad(), isolated_rng(random_state):
            return WeightedPosterior.of_pieces(
                len(data), n_samples, self.names, self._pieces(data, n_samples, n_proposals)
            )

    def _pieces(
        self, data: Observations, n_samples: int, n_proposals: int
    ) -> Iterator[tuple[slice, list[Array]]]:
        """Walk through rows and their answers."""
        for first, part, ready in self._standardised_chunks(data, n_proposals):
            draws = self._weigh(ready, n_proposals)
            self._refuse_out_of_reach((~draws.log_weights.amax(0).isfinite()).cpu().numpy(), first)
            scale = like(self.standardiser.scale, draws.v.double())
            found = (
                self.standardiser.from_standard(draws.resample(n_samples)).transpose(0, 1),
                self.standardiser.from_standard(draws.mean()),
                draws.covariance().double() * torch.outer(scale, scale),
                draws.effective_sample_size(),
            )
            yield slice(first, first + len(part)), [x.double().cpu().numpy() for x in found]

    def averaged(self) -> list[FittedDensity]:
        """Return the flows of an ensemble, without the mixtures that keep their tails in check."""
        members = self.density.densities() if isinstance(self.density, Ensemble) else []
        return [
            WeightedFit(member, self.standardiser, self.proposing, self.names, self.threads)
            for member in members
            if not isinstance(member, MixtureDensity)
        ]

    def _marginal(self, columns: IntArray) -> "MarginalFit":
        return MarginalFit(self, columns)

    def measuring(self, rows: Observations) -> "WeightedFit":
        """Return the same density, for rows that measure something else than those fitted."""
        return self._for_others(self.density, self.standardiser.measuring(rows))

    def folded_at(self, bounds: Bounds) -> "WeightedFit":
        """Return the density folded back at bounds; it was fitted to mirrored rows."""
        inside = bounds.in_units(self.standardiser.location, self.standardiser.scale)
        return self._for_others(Folded(self.density, inside).eval(), self.standardiser)

    @cached_property
    def _proposing_for_others(self) -> GaussianMixture:
        """A mixture near the density: a network knows rows of its own kind only."""
        if isinstance(self.proposing, GaussianMixture):
            return self.proposing
        with torch.no_grad(), isolated_rng(0):
            drawn = self.density.sample(DRAWS_FOR_MIXTURE).double().cpu().numpy()
        return mixture_of_draws(drawn)

    def _for_others(self, density: Density, units: Standardiser) -> "WeightedFit":
        return WeightedFit(density, units, self._proposing_for_others, self.names, self.threads)

    def _weigh(self, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows; draws are folded as the density is."""
        own, density = self.own, self.density
        if not isinstance(self.proposing, GaussianMixture):
            return weigh(
                density, self.proposing, data.to(dtype=own.dtype, device=own.device), n_draws
            )
        proposals = RowsWithProposals.of(data, self.proposing, own.dtype).to(device=own.device)
        v = proposals.sample(n_draws)
        if not isinstance(density, Folded):
            return proposals.weigh(density, v)
        v, seen = density.fold(v), proposals.observations
        each = [proposals.log_prob(u, seen.log_likelihood(u)) for u in density.images(v)]
        log_q = torch.logsumexp(torch.stack(each), 0)
        return WeightedDraws(v, density.log_prob(v) + seen.log_likelihood(v) - log_q)

    def _estimate(self, data: Observations, n_draws: int) -> Estimate:
        """Estimate ``log p(w)`` of standardised rows.

        By quasi-random points of a mixture, without bias; or by weighted draws, of which the bias
        is told, not taken off.
        """
        if isinstance(self.proposing, GaussianMixture) and not isinstance(self.density, Folded):
            check_integer("n_samples", n_draws, FEWEST_POINTS)
            rows = RowsWithProposals.of(data, self.proposing, self.own.dtype)
            return estimate_log_likelihood(self.density, rows, n_draws)
        draws = self._weigh(data, n_draws)
        relative = (draws.normalised.double() * n_draws).var(0, unbiased=False).div(n_draws).sqrt()
        parts = (draws.log_marginal(), relative, 0.5 * relative.square())
        return Estimate(*(part.double().cpu().numpy() for part in parts))

    def _standardised_chunks(
        self, data: Observations, n_draws: int
    ) -> Iterator[tuple[int, Observations, Observations]]:
        """Walk through chunks of bounded memory: first row, the rows, and these standardised."""
        first, dtype = 0, str(self.own.dtype).removeprefix("torch.")
        for part in data.chunks(max(1, POINTS_AT_ONCE // n_draws)):
            ready = standardised(self.standardiser, part)
            self._refuse_out_of_reach(far_rows(ready, dtype), first)
            yield first, part, ready
            first += len(part)

    def _refuse_out_of_reach(self, unreached: BoolArray, first_row: int) -> None:
        """Raise where no draw of a row has a density above zero."""
        refuse_unreached(unreached, first_row, f" in {self.own.dtype}. Look at that row")


class MarginalFit(FittedDensity):
    """Some dimensions of a density that has no closed form: the others count as not measured.

    Log densities are estimates from 256 points each.
    """

    def __init__(self, parent: WeightedFit, columns: IntArray) -> None:
        self.parent, self.columns, self.threads = parent, columns, parent.threads
        self.names = [parent.names[d] for d in columns]
        self.ends = parent.ends[0][columns], parent.ends[1][columns]

    def _log_prob(self, v: Array) -> Array:
        exact = Observations.from_arrays(v, gaussian(sd=np.zeros(self.dim)))
        return self.log_marginal(exact, POINTS_OF_MARGINALS).log_p

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        return self.parent.sample(n, random_state)[:, self.columns]

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row."""
        rows = seen_through(data, self.columns, self.parent.dim)
        return self.parent.measuring(rows).log_marginal(rows, n_draws, random_state)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value."""
        rows = seen_through(data, self.columns, self.parent.dim)
        whole = self.parent.measuring(rows).posterior(rows, n_samples, n_proposals, random_state)
        return whole.marginal(self.columns)

    def _marginal(self, columns: IntArray) -> "MarginalFit":
        return MarginalFit(self.parent, self.columns[columns])
