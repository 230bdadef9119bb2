"""What a fit to mirrored rows has learned, folded back at the bounds of the truth."""

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array, BoolArray, IntArray
from deconflow.evaluation import Estimate
from deconflow.fits.blend_fit import BlendFit
from deconflow.fits.fitted import Columns, FittedDensity, clear_errors
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.truncation import CutMixture
from deconflow.truth import Bounds
from deconflow.xd import posterior_pieces

#: Draws of a row that are in memory at once, about.
DRAWS = 1500


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
    return density.folded_at(bounds)


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
        reflections = self.bounds.reflections()
        images = _images(self.own.mixture, reflections, 1 / len(reflections))
        return MixtureFit([images], self.names, self.threads)

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
            return Estimate.exact(log_p)
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
        pieces = (
            (rows, _answers(cut, n_samples, n_proposals, rng)) for rows, cut in self._cut(data)
        )
        return WeightedPosterior.of_pieces(len(data), n_samples, self.names, pieces)

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
        noise = data.noise
        if isinstance(noise, GaussianNoise) or not noise.additive or self.own.other_laws is None:
            return None
        return _folded(self.own.other_laws, self.bounds)

    def _cut(self, data: Observations) -> Iterator[tuple[IntArray, CutMixture]]:
        """Walk through the rows' posteriors, cut to the bounds."""
        known = self._known(data)
        with clear_errors():
            for rows, piece in posterior_pieces(self.images.mixture, data, self.threads):
                step = rows_at_once(max(80 * piece.n_components, DRAWS) * self.dim**2)
                for lo in range(0, len(rows), step):
                    some = slice(lo, lo + step)
                    mixture = piece[some]
                    if not data.noise.additive:  # its Gaussians are folded: what they have beyond
                        mixture = _images(mixture, self.bounds.mirrors(), 1.0)  # the ends counts
                    cut = CutMixture(
                        mixture, self.bounds.lower, self.bounds.upper,
                        None if known is None else known[rows[some]],
                    )  # fmt: skip
                    yield rows[some], cut

    def _known(self, data: Observations) -> BoolArray | None:
        """Say which values ``(N, D)`` were measured exactly, within the bounds; None for none."""
        if data.projection is not None or not (exact := data.noise.variance() == 0).any():
            return None
        w = data.measured()
        inside = (w >= self.bounds.lower) & (w <= self.bounds.upper)
        return np.asarray(exact & inside)


def _images(
    mixture: GaussianMixture, reflections: list[tuple[Array, Array]], share: float
) -> GaussianMixture:
    """Put reflections of a mixture side by side, each with this share."""
    each = [mixture.in_units(-sign * shift, sign) for sign, shift in reflections]
    return mix(each, np.full(len(each), share))


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
