"""Densities of rows that were changed before the fit: given covariates, with atoms, or bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.evaluation import Estimate
from deconflow.fits.bands import ColumnWithAtoms, SmoothColumn, quantile_beside_atoms
from deconflow.fits.fitted import FittedDensity, as_seed
from deconflow.fits.mixture_fit import BlendFit, MixtureFit
from deconflow.fits.posterior import ARRAYS, Posterior, WeightedPosterior, mixed_moments
from deconflow.mixtures import CutMixture, GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.truth import Background, Bounds, Covariates, LocationScale
from deconflow.xd import memberships, posterior_pieces

#: What is taken as the error of exact values, so that they are at an atom for sure, or not.
EXACT = 1e-100
#: Draws of a row within bounds that are in memory at once, about.
DRAWS = 1500


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
        return replace(self, kept=self.covariates.encode_one(x))

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
        inner = self.inner.posterior(self.standardised(data), n_samples, n_proposals, random_state)
        location, scale = self.curves.at(self.covariates_of(data))
        return MovedPosterior(
            self.names, location + scale * inner.mean,
            inner.covariance * scale[:, :, None] * scale[:, None, :],
            inner.effective_sample_size, inner, location, scale,
            n_samples=inner.n_samples, seed=inner.seed, exact=inner.exact,
        )  # fmt: skip

    def p_values(
        self, data: Observations, n_draws: int = 199, random_state: RandomState = 0
    ) -> Array:
        """How unusual each row is given its covariates, ``(N,)``."""
        return self.inner.p_values(self.standardised(data), n_draws, random_state)

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the density of ``z`` has closed forms."""
        return self.inner.exact(gaussian_noise=gaussian_noise)

    def _marginal(self, columns: IntArray) -> "GivenFit":
        inner, curves = self.inner._marginal(columns), self.curves.marginal(columns)
        return replace(self, inner=inner, curves=curves)


@dataclass(frozen=True, eq=False, repr=False)
class MovedPosterior(Posterior):
    r"""The posterior of :math:`v = m_i + \tau_i z`, from that of ``z``.

    Attributes
    ----------
    inner : Posterior
        The posterior of ``z``.
    location, scale : array
        ``(N, D)``: ``m`` and ``tau`` of each row.
    """

    inner: Posterior
    location: Array
    scale: Array

    BY_ROW = (*Posterior.BY_ROW, "inner", "location", "scale")
    BY_COLUMN = (*Posterior.BY_COLUMN, "inner", "location", "scale")

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        return self.location[:, None] + self.scale[:, None] * self.inner.sample(n_samples, rng)

    def _quantiles(self, shares: Array) -> Array:
        return self.location + self.scale * self.inner._quantiles(shares)

    def _probability(self, lower: Array, upper: Array) -> Array:
        ends = ((end - self.location) / self.scale for end in (lower, upper))
        return self.inner._probability(*ends)


@dataclass(repr=False, eq=False)
class PartsFit(FittedDensity):
    r"""The truth :math:`\sum_a \alpha_a \delta_a + (1 - \sum \alpha) \, p(v)`, and a background.

    A share of the *rows* is background; all answers about the truth are about the others. Log
    densities are those of the continuous part with its share: atoms have no density.

    Attributes
    ----------
    inner : FittedDensity
        The continuous part.
    atoms : array
        ``(A, D)``.
    atom_weights : array
        ``(A,)``: the share of the truths at each atom.
    background : callable or None
        Gives the log density of rows as background.
    background_share : float
        The share of the rows that is background.
    """

    inner: FittedDensity
    atoms: Array
    atom_weights: Array
    background: Background | None = None
    background_share: float = 0.0

    def __post_init__(self) -> None:
        self.names, self.threads, self.ends = self.inner.names, self.inner.threads, self.inner.ends

    def _log_prob(self, v: Array) -> Array:
        return self.inner._log_prob(v) + np.log(max(1e-300, 1.0 - self.atom_weights.sum()))

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``; some exactly at an atom."""
        rng = check_random_state(random_state)
        drawn = self.inner._sample(n, rng).copy()
        which = np.cumsum(self.atom_weights).searchsorted(rng.uniform(size=n), side="right")
        at = which < len(self.atoms)
        drawn[at] = self.atoms[which[at]]
        return drawn

    def given(self, x: Any) -> "PartsFit":
        """Return the density for one value of the covariates."""
        return replace(self, inner=self.inner.given(x))

    def known(self, data: Observations) -> Array:
        """Log density ``(J, N)`` of rows under each atom, and as background."""
        return log_densities_of_parts(data, self.atoms, self.background)

    @property
    def shares(self) -> Array:
        """Shares ``(J,)`` of the rows, in the order of :meth:`known`."""
        own = (1.0 - self.background_share) * self.atom_weights
        return own if self.background is None else np.r_[own, self.background_share]

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row: atoms, background and all."""
        rest = self.inner.log_marginal(data, n_draws, random_state)
        q, log_p = memberships(self.shares, self.known(data), rest.log_p)
        return Estimate(log_p, q[-1] * rest.error, q[-1] * rest.bias)

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value, with the probabilities of the parts."""
        seed = as_seed(random_state)
        inner = self.inner.posterior(data, n_samples, n_proposals, seed)
        of_atoms, of_background = self.memberships(data, seed)
        mean, covariance = mixed_moments(
            [np.maximum(0.0, 1.0 - of_atoms.sum(1)), *of_atoms.T],
            [inner.mean, *(np.broadcast_to(atom, inner.mean.shape) for atom in self.atoms)],
            [inner.covariance, *[np.broadcast_to(0.0, inner.covariance.shape)] * len(self.atoms)],
        )
        return PartedPosterior(
            inner.names, mean, covariance, inner.effective_sample_size,
            inner, self.atoms, of_atoms, of_background,
            n_samples=inner.n_samples, seed=seed, exact=inner.exact,
        )  # fmt: skip

    def memberships(self, data: Observations, random_state: RandomState = 0) -> tuple[Array, Array]:
        """Probability that a row is background ``(N,)``, else that it is each atom ``(N, A)``."""
        rest = self.inner.log_marginal(data, None, random_state).log_p
        q, _ = memberships(self.shares, self.known(data), rest)
        count = len(self.atoms)
        of_background = q[count] if self.background is not None else np.zeros(len(data))
        return (q[:count] / np.maximum(q[:count].sum(0) + q[-1], 1e-300)).T, of_background

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether the continuous part is."""
        return self.inner.exact(gaussian_noise=gaussian_noise)

    def averaged(self) -> list[FittedDensity]:
        """Return the densities that the continuous part is an average of."""
        return self.inner.averaged()

    def _marginal(self, columns: IntArray) -> "PartsFit":
        return PartsFit(self.inner._marginal(columns), self.atoms[:, columns], self.atom_weights)

    def _one_column(self) -> SmoothColumn | ColumnWithAtoms:
        rest, weights = self.inner._column, self.atom_weights
        return ColumnWithAtoms(rest, self.atoms[:, 0], weights) if len(weights) else rest

    def measuring(self, rows: Observations) -> "PartsFit":
        """Return the density for such rows, of which none is background."""
        return PartsFit(self.inner.measuring(rows), self.atoms, self.atom_weights)


def log_densities_of_parts(
    data: Observations, atoms: Array, background: Background | None
) -> Array:
    """Log density ``(J, N)`` of each row at each atom, and as background if there is one.

    An exact value at an atom has an infinite one, which is a large number here.
    """
    found = np.empty((len(atoms) + (background is not None), len(data)))
    if background is not None:
        found[-1] = background(data)
    if len(atoms):
        if isinstance(data.noise, GaussianNoise) and (data.noise.variance() == 0).any():
            data = replace(data, noise=data.noise.floor(EXACT))  # at an atom, or not: by its sign
        each = np.broadcast_to(atoms[:, None], (len(atoms), len(data), atoms.shape[1]))
        found[: len(atoms)] = data.log_likelihood(each)
    return found


@dataclass(frozen=True, eq=False, repr=False)
class PartedPosterior(Posterior):
    """The posterior of a true value that may be exactly at an atom, or of a row of background.

    All answers about the true value hold for a row that is not background.

    Attributes
    ----------
    continuous : Posterior
        The posterior of a true value that is at no atom.
    atoms : array
        ``(A, D)``.
    probability_of_atoms : array
        ``(N, A)``: the probability of each atom, for a row that is not background.
    probability_of_background : array
        ``(N,)``: the probability that a row is background, and measures no true value.
    """

    continuous: Posterior
    atoms: Array
    probability_of_atoms: Array
    probability_of_background: Array

    BY_ROW = (
        *Posterior.BY_ROW, "continuous", "probability_of_atoms", "probability_of_background",
    )  # fmt: skip
    BY_COLUMN = (*Posterior.BY_COLUMN, "continuous", "atoms")

    def _draw(self, n_samples: int, rng: np.random.RandomState) -> Array:
        edges = np.cumsum(self.probability_of_atoms, axis=1)
        drawn = self.continuous.sample(n_samples, rng).copy()
        for some in row_slices(len(drawn), ARRAYS * n_samples * (1 + len(self.atoms))):
            uniform = rng.uniform(size=(some.stop - some.start, n_samples, 1))
            which = (edges[some, None] <= uniform).sum(2)
            for a, atom in enumerate(self.atoms):
                drawn[some][which == a] = atom
        return drawn

    def _probability(self, lower: Array, upper: Array) -> Array:
        rest = np.maximum(0.0, 1.0 - self.probability_of_atoms.sum(1))
        found = rest[:, None] * self.continuous._probability(lower, upper)
        for atom, chance in zip(self.atoms, self.probability_of_atoms.T, strict=True):
            found = found + chance[:, None] * ((lower <= atom) & (atom <= upper))
        return found.clip(0.0, 1.0)

    def _quantiles(self, shares: Array) -> Array:
        """Quantiles: the atom where its jump holds the share, else of the rest."""
        if not len(self.atoms):
            return self.continuous._quantiles(shares)
        places = [np.broadcast_to(atom, self.mean.shape) for atom in self.atoms]
        least = np.full(self.mean.shape, -np.inf)
        upto = np.stack([self._probability(least, place) for place in places])
        under = np.stack([self._probability(least, np.nextafter(at, -np.inf)) for at in places])
        chances = self.probability_of_atoms.T[:, :, None]
        of_rest = self.continuous._quantiles
        return np.stack([
            quantile_beside_atoms(
                one, self.atoms, chances, under, upto, lambda rest: of_rest(rest[None])[0]
            )
            for one in shares
        ])  # fmt: skip


def folded(density: FittedDensity, bounds: Bounds) -> FittedDensity:
    """Fold a density that was fitted to mirrored rows; its replicates, too."""
    answer: FittedDensity = _folded(density, bounds)
    if density.replicates is not None:
        answer.replicates = density.replicates.changed(partial(_folded, bounds=bounds))
    return answer


def _folded(density: Any, bounds: Bounds) -> Any:
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
        self.names, self.threads, self.ends = own.names, own.threads, (bounds.lower, bounds.upper)
        self._reflections = bounds.reflections()
        self._log_count = float(np.log(len(self._reflections)))

    @cached_property
    def images(self) -> MixtureFit:
        """All reflections of the mixture."""
        images = _images(self.own.mixture, self._reflections, 1 / len(self._reflections))
        return MixtureFit([images], self.names, self.threads)

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

    def _marginal(self, columns: IntArray) -> FittedDensity:
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
        lower, upper = self.ends
        exact = None  # values that are known, and within the bounds
        if data.projection is None:
            w = data.measured()
            exact = (data.noise.variance() == 0) & (w >= lower) & (w <= upper)
        for rows, piece in posterior_pieces(self.images.mixture, data, self.threads):
            numbers = max(80 * piece.n_components, DRAWS) * self.dim**2
            for some in row_slices(len(rows), numbers):
                mixture = piece[some]
                if not data.noise.additive:  # its Gaussians are folded: what they have beyond
                    mixture = _images(mixture, self.bounds.reflections(0), 1.0)  # the ends counts
                known = None if exact is None else exact[rows[some]]
                yield rows[some], CutMixture(mixture, lower, upper, known)


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
    pairs = zip(np.cumsum(weights, axis=1), u, strict=True)
    chosen = np.stack([np.searchsorted(edges / edges[-1], own) for edges, own in pairs])
    return (
        np.take_along_axis(draws, chosen, axis=1),
        mean,
        covariance,
        1 / np.square(weights).sum(1),
    )
