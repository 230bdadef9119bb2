r"""From observations to a mixture: starts, EM, the best of several.

Where EM starts: k-means or random rows, of those that say something about the truth.

Rows that miss values count by a draw from what one Gaussian says of their truth.
Components start as wide as their noisy rows, noise included. Starts with the noise subtracted
converge as fast, but to densities of more spikes: on moons twice as far from the truth.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from deconflow._limits import cpus, openmp_threads
from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.em import EMResult, Stopping, em
from deconflow.xd.expectation import SMALLEST_JOB
from deconflow.xd.layout import lay_out
from deconflow.xd.maximisation import Constraints, with_floor
from deconflow.xd.posterior import posterior

#: Numbers of components, where nobody says which.
COMPONENTS_TO_TRY = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)

#: Covariances stay above this share of the data's squared spread, whatever the floor, where exact
#: rows in several dimensions make thin ones too much for double precision.
SMALLEST_VARIANCE = 1e-10

#: The same where noise, or a single dimension, keeps the numbers apart.
SMALLEST_OF_NOISY = 1e-13

#: Stage of the progress bar.
FITTING = "fitting mixtures"


@dataclass(frozen=True)
class FitSettings:
    """How to fit one mixture; see :class:`deconflow.XDGMM`."""

    n_components: int
    floor: float = 0.0
    #: Rows that a prior on each covariance counts as: see :meth:`PreparedData.typical`.
    shrinkage: float = 0.0
    init: str = "kmeans"
    stopping: Stopping = field(default_factory=Stopping)
    fixed: tuple[BoolArray, ...] | None = None
    #: Puts what the user gives of a start into one that was made, in the user's units.
    complete: Callable[[GaussianMixture], GaussianMixture] | None = None

    def constraints(self, prepared: "PreparedData") -> Constraints:
        """Turn floor, shrinkage and flags into the units of the rows."""
        K, floor = self.n_components, prepared.floor(self.floor)
        prior = prepared.typical(K, floor) if self.shrinkage > 0 else None
        fixed = np.array([np.broadcast_to(each, K) for each in self.fixed or (False, False, False)])
        return Constraints(floor, prior, fixed, prior_rows=self.shrinkage or 1.0)


class PreparedData:
    """One data set, laid out once and fitted many times."""

    def __init__(self, data: Observations) -> None:
        self.data, self.rows = data, lay_out(data)
        self._points: dict[float, Array] = {}
        scale = self.rows.units.measured_scale
        noise = data.noise.variance().min(0) / np.square(scale)
        noisy = (noise > SMALLEST_OF_NOISY * np.var(data.w / scale, axis=0)).all()
        smallest = SMALLEST_OF_NOISY if noisy or self.rows.dim == 1 else SMALLEST_VARIANCE
        #: Covariance that none falls below, in the units of the rows.
        self.least = smallest * np.eye(self.rows.dim)

    def floor(self, size: float) -> Array:
        """Return the least covariance, with a floor in units of the mean noise."""
        return self.least + size * self.noise if size > 0 else self.least

    @cached_property
    def noise(self) -> Array:
        """The unit of the floor: mean noise covariance ``(D, D)``, in the units of the rows.

        That of the law's core, where it has heavy tails; to find it, some laws are fitted. Values
        that say next to nothing are left out, be they most of the rows, and so are rows with a far
        larger noise than the others.
        """
        (some, telling), units = _telling(self.data), self.rows.units
        noise = np.broadcast_to(some.noise.core_covariance(), (len(some), some.dim, some.dim))
        noise = noise / np.outer(units.measured_scale, units.measured_scale)
        R = some.projections() * units.scale / units.measured_scale[:, None] * telling[:, :, None]
        vague = ~telling & ~np.isnan(some.measured())
        size = np.where(vague, 0.0, np.einsum("nii->ni", noise)).sum(1)
        usual = size <= 10 * np.median(size[telling.any(1)])
        back = np.linalg.pinv(R[usual])
        pulled = back @ noise[usual] @ np.swapaxes(back, 1, 2)
        touched = (np.square(back).sum(2) > 0).astype(float)
        mean = pulled.sum(0) / np.maximum(np.einsum("ni,nj->ij", touched, touched), 1)
        return with_floor(mean[None], 1e-12 * max(1e-300, np.trace(mean)) * np.eye(len(mean)))[0]

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the truth, by one Gaussian, in the units of the rows."""
        alone = FitSettings(1, stopping=Stopping(tol=1e-4, max_iter=50, accelerate=True, threads=1))
        one = self.fit(alone, np.random.RandomState(0)).mixture
        return self.rows.units.mixture_to_standard(one).covariances[0]

    def typical(self, n_components: int, floor: Array) -> Array:
        r"""Return the covariance that few rows are helped by, in the units of the rows.

        .. math:: W = \mathrm{diag}(C) / K^{2/D}

        with the truth's covariance ``C``: columns that are independent within a component, and
        ``K`` components that fill the volume of one.
        """
        size = np.diag(self.covariance) / n_components ** (2 / self.rows.dim)
        return with_floor(np.diag(size)[None], floor)[0]

    def start(self, settings: FitSettings, rng: np.random.RandomState) -> GaussianMixture:
        """Make a start by k-means or at random rows, in the user's units."""
        K, dim, floor = settings.n_components, self.rows.dim, self.floor(settings.floor)
        if settings.floor not in self._points:
            self._points[settings.floor] = self._points_to_start(floor)
        seen = self._points[settings.floor]
        low, high = np.quantile(seen, [0.01, 0.99], axis=0)  # outliers would get their own clusters
        points, labels = np.clip(seen, low - (high - low), high + (high - low)), np.zeros(0, int)
        if settings.init == "kmeans":
            clusters = min(K, len(np.unique(seen, axis=0)))
            found = KMeans(clusters, n_init=1, random_state=rng.randint(2**31 - 1))
            with openmp_threads(1):  # fast enough, and repeatable
                labels = found.fit(points).labels_
        means = points[rng.choice(len(points), K, replace=len(points) < K)]
        tiny = 1e-12 * np.eye(dim)
        whole = (np.cov(points.T, ddof=0) + tiny) / K ** (2 / dim)
        covariances = np.repeat(whole[None], K, axis=0)
        weights = np.maximum(np.bincount(labels, minlength=K), 1) / len(points)
        for k in np.unique(labels):
            mine = points[labels == k]
            means[k] = mine.mean(0)
            if len(mine) > dim:
                covariances[k] = np.cov(mine.T, ddof=0) + tiny
        made = GaussianMixture(weights / weights.sum(), means, with_floor(covariances, floor))
        made = self.rows.units.mixture_from_standard(made)
        return made if settings.complete is None else settings.complete(made)

    def _points_to_start(self, floor: Array) -> Array:
        """Values of some rows, those that are not seen from posteriors under one Gaussian."""
        (some, telling), units, dim = _telling(self.data), self.rows.units, self.rows.dim
        kept = np.flatnonzero(telling.any(-1))
        some, telling = some[kept], telling[kept]
        points = units.observations(some).w
        if some.observed is None and some.projection is None and telling.all():
            return points
        wide = with_floor(100.0 * np.eye(dim)[None], floor)
        start = GaussianMixture(np.ones(1), np.zeros((1, dim)), wide)
        stopping = Stopping(tol=1e-4, max_iter=50, accelerate=True, threads=1)
        one = em(start, lay_out(some, units), Constraints.free(1, floor), stopping).mixture
        guesses = posterior(one, units.observations(some))
        if some.observed is not None:
            # Means of rows that miss a value lie on a line, across clumps: EM got stuck there.
            return guesses.sample(1, 0)[:, 0]
        return np.where(telling, points, guesses.mean) if some.projection is None else guesses.mean

    def fit(
        self,
        settings: FitSettings,
        rng: np.random.RandomState,
        start: GaussianMixture | None = None,
    ) -> EMResult:
        """Fit once; the answer's mixture is in the user's units."""
        constraints, units = settings.constraints(self), self.rows.units
        start = self.start(settings, rng) if start is None else start
        begin = made_feasible(units.mixture_to_standard(start), constraints)
        result = em(begin, self.rows, constraints, settings.stopping)
        result.mixture = units.mixture_from_standard(result.mixture)
        return result

    def fit_from(
        self,
        starts: Sequence[GaussianMixture | None],
        settings: FitSettings,
        rng: np.random.RandomState,
    ) -> list[EMResult]:
        """Fit from several starts, None for one to be made; the most likely fit comes first.

        Fits run side by side, with one thread each, where one of them would leave threads idle.
        """
        threads = cpus(settings.stopping.threads)
        pairs = self.rows.n_rows * settings.n_components
        if min(threads, len(starts)) == 1 or pairs >= threads * SMALLEST_JOB:
            results = [self.fit(settings, rng, start) for start in starts]
        else:
            made = [self.start(settings, rng) if start is None else start for start in starts]
            alone = replace(settings, stopping=replace(settings.stopping, threads=1))
            with ThreadPoolExecutor(min(threads, len(starts))) as pool:
                results = list(pool.map(lambda start: self.fit(alone, rng, start), made))
        return sorted(results, key=lambda result: -result.log_likelihood)


def made_feasible(mixture: GaussianMixture, constraints: Constraints) -> GaussianMixture:
    """Raise the covariances that are free to the floor, the fixed ones to what is invertible."""
    covariances = with_floor(mixture.covariances, constraints.floor)
    fixed = with_floor(mixture.covariances, SMALLEST_OF_NOISY * np.eye(mixture.dim))
    covariances = np.where(constraints.fixed[2][:, None, None], fixed, covariances)
    return GaussianMixture(mixture.weights, mixture.means, covariances)


def fit_exact(values: Array, n_components: int, seed: int) -> GaussianMixture:
    """Fit a mixture to values without noise, with one thread."""
    exact = gaussian(sd=np.zeros(values.shape[1]))
    prepared = PreparedData(Observations.from_arrays(values, exact))
    settings = FitSettings(n_components, stopping=Stopping(tol=1e-5, accelerate=True, threads=1))
    return prepared.fit(settings, check_random_state(seed)).mixture


def without(mixture: GaussianMixture, gone: BoolArray) -> GaussianMixture:
    """Leave components out; the others have their weight."""
    weights = mixture.weights[~gone]
    return GaussianMixture(
        weights / weights.sum(), mixture.means[~gone], mixture.covariances[~gone]
    )


def n_parameters(n_components: int, dim: int) -> int:
    """Count the free parameters of a mixture with full covariances."""
    return n_components * (1 + dim + dim * (dim + 1) // 2) - 1


def price(mixture: GaussianMixture, n_rows: int) -> float:
    """Log-likelihood that a mixture's parameters must gain in all rows together, by BIC."""
    return 0.5 * n_parameters(mixture.n_components, mixture.dim) * float(np.log(n_rows))


ROWS_FOR_A_START = 10_000
STARTS = ("kmeans", "random")
#: Values that say less than this share of what the usual ones say are no places to start at.
LEAST_SHARE = 0.25


def shares_of_truth(data: Observations) -> Array:
    """The share ``(N, M)`` of the truth in the variance of each value; 0 where one is missing."""
    signal = np.square(data.projections() * Standardiser.fit(data).scale).sum(-1)
    return np.where(~np.isnan(data.measured()), signal / (signal + data.noise.variance()), 0.0)


def _telling(data: Observations) -> tuple[Observations, BoolArray]:
    """Rows evenly spread, and which of their values ``(N, M)`` tell about as much as usual ones.

    A value says as much as the share of the truth in its variance. Values of far larger noise
    than others say next to nothing, and their scatter makes starts that no component survives.
    """
    n = len(data)
    some = data[np.unique(np.linspace(0, n - 1, min(n, ROWS_FOR_A_START)).astype(int))]
    seen = ~np.isnan(some.measured())
    if len(some.noise.variance()) == 1 or not seen.any(0).all():
        return some, seen
    share = shares_of_truth(some)
    return some, seen & (share >= LEAST_SHARE * np.square(share).sum(0) / share.sum(0))
