"""What a fit to mirrored rows has learned, folded back at the bounds of the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.densities import Density, Folded
from deconflow.evaluation import Estimate
from deconflow.fits.blend_fit import BlendFit
from deconflow.fits.fitted import Columns, FittedDensity, clear_errors
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.fits.weighted_fit import ProposedByMixture, WeightedFit, estimate_of
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.posteriors import RowsWithProposals, WeightedDraws
from deconflow.randomness import RandomState
from deconflow.truncation import CutMixture
from deconflow.truth import Bounds
from deconflow.xd import posterior_pieces

DRAWS = 1500
"""Draws of a row that are in memory at once, about."""


def folded(density: FittedDensity, bounds: Bounds) -> FittedDensity:
    """Fold a density that was fitted to mirrored rows; its replicates, too."""
    answer = _folded(density, bounds)
    if density.replicates is not None:
        answer.replicates = density.replicates.changed(partial(_folded, bounds=bounds))
    return answer


def _folded(density: FittedDensity, bounds: Bounds) -> FittedDensity:
    if isinstance(density, BlendFit):
        return BlendFit(density.shares, [_folded(part, bounds) for part in density.parts])
    if isinstance(density, MixtureFit):
        return BoundedFit(density, bounds)
    if isinstance(density, WeightedFit):
        return _folded_draws(density, bounds)
    raise TypeError(f"Expected a density that can be folded; got {density!r}.")


class BoundedFit(FittedDensity):
    """An average of Gaussian mixtures, folded at bounds.

    Log densities are closed forms; so are ``log p(w)`` and posterior moments where one column is
    bounded. Draws are exact then; where several are bounded they are weighed.

    Attributes
    ----------
    own : MixtureFit
        What was fitted to mirrored rows.
    bounds : Bounds
        Where it is folded.
    images : MixtureFit
        The mixture with all its reflections, in equal shares.
    """

    def __init__(self, own: MixtureFit, bounds: Bounds) -> None:
        self.own, self.bounds = own, bounds
        self.names, self.threads = own.names, own.threads

    @cached_property
    def images(self) -> MixtureFit:
        """All reflections of the mixture."""
        return MixtureFit([_reflections(self.own.mixture, self.bounds)], self.names, self.threads)

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        return self.bounds.lower, self.bounds.upper

    @property
    def _log_count(self) -> float:
        return float(np.log(len(self.bounds.reflections())))

    def _log_prob(self, v: Array) -> Array:
        log_p = np.full(len(v), -np.inf)
        inside = self.bounds.inside(v)
        if inside.any():
            log_p[inside] = self.images.log_prob(v[inside]) + self._log_count
        return log_p

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``."""
        return self.bounds.fold(self.own.sample(n, random_state))

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row."""
        drawn = self._by_draws(data)
        if drawn is not None:
            return drawn.log_marginal(data, n_draws, random_state)
        log_p = self.images.log_marginal(data).log_p + self._log_count
        if not data.noise.additive:  # what its Gaussians have beyond the ends counts
            return Estimate(log_p, np.zeros(len(data)), np.zeros(len(data)))
        error = np.zeros(len(data))
        for rows, cut in self._cut(data):
            log_p[rows] += cut.log_mass
            error[rows] = cut.error
        return Estimate(log_p, error, np.zeros(len(data)))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: draws within the bounds."""
        drawn = self._by_draws(data)
        if drawn is not None:
            return drawn.posterior(data, n_samples, n_proposals, random_state)
        rng = check_random_state(random_state)
        n, dim = len(data), self.dim
        shapes = ((n, n_samples, dim), (n, dim), (n, dim, dim), (n,))
        answers = [np.empty(shape) for shape in shapes]
        for rows, cut in self._cut(data):
            found = _answers(cut, n_samples, n_proposals, rng)
            for answer, part in zip(answers, found, strict=True):
                answer[rows] = part
        samples, mean, covariance, size = answers
        return WeightedPosterior(samples, mean, covariance, size, self.names)

    def averaged(self) -> list[FittedDensity]:
        """Return the mixtures that are averaged, each folded."""
        return [_folded(part, self.bounds) for part in self.own.averaged()]

    def _marginal(self, columns: Columns) -> FittedDensity:
        part, bounds = self.own._marginal(columns), self.bounds.marginal(columns)
        return BoundedFit(part, bounds) if len(bounds.columns) else part

    def _by_draws(self, data: Observations) -> FittedDensity | None:
        """Return what answers under laws of noise that the mixture leaves to draws.

        Not likelihoods: their Gaussians are closer to them than draws are.
        """
        others, noise = self.own.other_laws, data.noise
        if others is None or isinstance(noise, GaussianNoise) or not noise.additive:
            return None
        return _folded(others, self.bounds)

    def _cut(self, data: Observations) -> Iterator[tuple[NDArray[np.int64], CutMixture]]:
        """Walk through the rows' posteriors, cut to the bounds."""
        known = self._known(data)
        with clear_errors():
            for rows, piece in posterior_pieces(self.images.mixture, data, self.threads):
                step = rows_at_once(max(80 * piece.n_components, DRAWS) * self.dim**2)
                for lo in range(0, len(rows), step):
                    some = slice(lo, lo + step)
                    mixture = piece[some] if data.noise.additive else self._unfolded(piece[some])
                    cut = CutMixture(
                        mixture, self.bounds.lower, self.bounds.upper,
                        None if known is None else known[rows[some]],
                    )  # fmt: skip
                    yield rows[some], cut

    def _unfolded(self, mixture: GaussianMixture) -> GaussianMixture:
        """Put the mirror images of rows' mixtures side by side: cut, that is their folded form.

        Of noise whose Gaussians are folded at the ends: what they have beyond counts.
        """
        mirrors = self.bounds.mirrors()
        return GaussianMixture(
            np.concatenate([mixture.weights] * len(mirrors), axis=1),
            np.concatenate([sign * (mixture.means - shift) for sign, shift in mirrors], axis=1),
            np.concatenate(
                [mixture.covariances * np.outer(sign, sign) for sign, _ in mirrors], axis=1
            ),
        )

    def _known(self, data: Observations) -> NDArray[np.bool_] | None:
        """Say which values ``(N, D)`` were measured exactly, within the bounds; None for none."""
        if data.projection is not None or not (exact := data.noise.variance() == 0).any():
            return None
        w = data.measured()
        inside = (w >= self.bounds.lower) & (w <= self.bounds.upper)
        return np.asarray(exact.numpy() & inside)


def _reflections(mixture: GaussianMixture, bounds: Bounds) -> GaussianMixture:
    """Put all reflections of a mixture side by side, in equal shares."""
    images = bounds.reflections()
    return GaussianMixture(
        np.concatenate([mixture.weights / len(images)] * len(images)),
        np.concatenate([sign * (mixture.means - shift) for sign, shift in images]),
        np.concatenate([mixture.covariances * np.outer(sign, sign) for sign, _ in images]),
    )


def _answers(
    cut: CutMixture, n_samples: int, n_proposals: int, rng: np.random.RandomState
) -> tuple[Array, ...]:
    """Draws, means, covariances and effective sample sizes of some rows."""
    if cut.one_bounded:
        samples, _ = cut.sample(n_samples, rng)
        return (samples, *cut.moments(), np.full(len(samples), float(n_samples)))
    draws, log_weights = cut.sample(max(n_samples, n_proposals), rng)
    weights = np.exp(log_weights - log_weights.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    mean = np.einsum("ns,nsd->nd", weights, draws)
    apart = draws - mean[:, None]
    covariance = np.einsum("ns,nsi,nsj->nij", weights, apart, apart)
    u = rng.uniform(size=(len(draws), n_samples, 1))
    chosen = np.empty(u.shape[:2], np.int64)
    for row, edges in enumerate(np.cumsum(weights, axis=1)):
        chosen[row] = np.searchsorted(edges / edges[-1], u[row, :, 0])
    samples = np.take_along_axis(draws, chosen[..., None], axis=1)
    return samples, mean, covariance, 1 / np.square(weights).sum(1)


class BoundedDraws(WeightedFit):
    """A density in standardised units, folded at bounds, with answers by weighted draws."""

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        assert isinstance(self.density, Folded)
        units, bounds = self.standardiser, self.density.bounds
        low, high = (torch.from_numpy(end) for end in (bounds.lower, bounds.upper))
        return units.from_standard(low).numpy(), units.from_standard(high).numpy()

    def _log_prob(self, v: Array) -> Array:
        assert isinstance(self.density, Folded)
        log_p = np.full(len(v), -np.inf)
        standard = self.standardiser.to_standard(torch.from_numpy(v))
        inside = self.density.inside(standard).numpy()
        if inside.any():
            log_p[inside] = super()._log_prob(v[inside])
        return log_p


def _folded_draws(fit: WeightedFit, bounds: Bounds) -> WeightedFit:
    location, scale = fit.standardiser.location.numpy(), fit.standardiser.scale.numpy()
    standard = bounds.in_units(location, scale)
    proposing = FoldedProposing(fit.proposing.for_other_rows(fit.density).mixture, standard)
    density = Folded(fit.density, standard).eval()
    return BoundedDraws(density, fit.standardiser, proposing, fit.names, fit.threads)


@dataclass(frozen=True)
class FoldedProposing(ProposedByMixture):
    """Draws around the posterior of a mixture, folded to within the bounds."""

    bounds: Bounds

    def weigh(self, density: Density, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows."""
        like = next(density.parameters())
        rows = RowsWithProposals.of(data, self.mixture, like.dtype).to(device=like.device)
        fold = Folded(density, self.bounds)  # for its folding alone
        v = fold.fold(rows.sample(n_draws))
        seen = rows.observations
        each = [rows.log_prob(u, seen.log_likelihood(u)) for u in fold.images(v)]
        log_q = torch.logsumexp(torch.stack(each), 0)
        log_p = density.log_prob(v)
        return WeightedDraws(v, log_p + seen.log_likelihood(v) - log_q)

    def estimate(self, density: Density, data: Observations, n_draws: int) -> Estimate:
        """Estimate ``log p(w)``; its bias is told, not taken off."""
        return estimate_of(self.weigh(density, data, n_draws))
