r"""From observations to a mixture: starts, EM, the best of several."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from sklearn.utils import check_random_state

from deconflow._limits import cpus
from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.xd.em import EMResult, Stopping, em
from deconflow.xd.expectation import SMALLEST_JOB
from deconflow.xd.layout import KernelRows, lay_out
from deconflow.xd.maximisation import Constraints, with_floor
from deconflow.xd.starts import Starter, mean_noise

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
        rows = prepared.rows
        floor = _smallest_variance(prepared.data, rows) * np.eye(rows.dim)
        if self.floor > 0:
            floor = floor + self.floor * prepared.noise
        prior, prior_rows = None, 1.0
        if self.shrinkage > 0:
            prior, prior_rows = prepared.typical(self.n_components, floor), self.shrinkage
        if self.fixed is None:
            return Constraints.free(self.n_components, floor, prior, prior_rows)
        flags = (np.broadcast_to(each, (self.n_components,)).copy() for each in self.fixed)
        return Constraints(floor, prior, *flags, prior_rows=prior_rows)

    def with_threads(self, threads: int) -> "FitSettings":
        """Return the same settings for fits that use at most so many threads."""
        return replace(self, stopping=replace(self.stopping, threads=threads))


class PreparedData:
    """One data set, laid out once and fitted many times."""

    def __init__(self, data: Observations) -> None:
        self.data, self.rows = data, lay_out(data)
        self._starters: dict[float, Starter] = {}

    @cached_property
    def noise(self) -> Array:
        """The unit of the floor: to find it, some laws are fitted."""
        return mean_noise(self.data, self.rows.units)

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
        """Make a start, in the user's units."""
        if settings.floor not in self._starters:
            floor = settings.constraints(self).floor
            self._starters[settings.floor] = Starter(self.data, self.rows, floor)
        made = self._starters[settings.floor].make(settings.n_components, settings.init, rng)
        made = self.rows.units.mixture_from_standard(made)
        return made if settings.complete is None else settings.complete(made)

    def begin(self, start: GaussianMixture, constraints: Constraints) -> GaussianMixture:
        """Return a start as EM takes it: in the units of the rows, within the constraints."""
        return made_feasible(self.rows.units.mixture_to_standard(start), constraints)

    def fit(
        self,
        settings: FitSettings,
        rng: np.random.RandomState,
        start: GaussianMixture | None = None,
    ) -> EMResult:
        """Fit once; the answer's mixture is in the user's units."""
        constraints = settings.constraints(self)
        start = self.start(settings, rng) if start is None else start
        result = em(self.begin(start, constraints), self.rows, constraints, settings.stopping)
        result.mixture = self.rows.units.mixture_from_standard(result.mixture)
        return result

    def fit_from(
        self,
        starts: Sequence[GaussianMixture | None],
        settings: FitSettings,
        rng: np.random.RandomState,
    ) -> list[EMResult]:
        """Fit from several starts; None stands for one to be made.

        Fits run side by side, with one thread each, where one of them would leave threads idle.
        """
        threads = cpus(settings.stopping.threads)
        workers = min(threads, len(starts))
        pairs = self.rows.n_rows * settings.n_components
        if workers == 1 or pairs >= threads * SMALLEST_JOB:
            return [self.fit(settings, rng, start) for start in starts]
        made = [self.start(settings, rng) if start is None else start for start in starts]
        alone = settings.with_threads(1)
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda start: self.fit(alone, rng, start), made))

    def fit_best(self, settings: FitSettings, n_init: int, rng: np.random.RandomState) -> EMResult:
        """Fit from several starts, and keep the one of the largest likelihood."""
        results = self.fit_from([None] * n_init, settings, rng)
        return max(results, key=lambda result: result.log_likelihood)


def _smallest_variance(data: Observations, rows: KernelRows) -> float:
    scale = np.asarray(rows.units.measured_scale)
    noise = np.asarray(data.noise.variance()).min(0) / np.square(scale)
    noisy = (noise > SMALLEST_OF_NOISY * np.var(np.asarray(data.w) / scale, axis=0)).all()
    return SMALLEST_OF_NOISY if noisy or rows.dim == 1 else SMALLEST_VARIANCE


def made_feasible(mixture: GaussianMixture, constraints: Constraints) -> GaussianMixture:
    """Raise the covariances that are free to the floor, the fixed ones to what is invertible."""
    covariances = with_floor(mixture.covariances, constraints.floor)
    fixed = with_floor(mixture.covariances, SMALLEST_OF_NOISY * np.eye(mixture.dim))
    covariances = np.where(constraints.fixed_covariances[:, None, None], fixed, covariances)
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
