"""Chains of Gibbs sweeps side by side, and the few snapshots of each that answers need."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from sklearn.utils import check_random_state

from deconflow._limits import cpus
from deconflow._types import Array, BoolArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.xd.cross_fits import row_weights
from deconflow.xd.em import Stopping
from deconflow.xd.fit import COMPONENTS_TO_TRY, FitSettings, PreparedData, n_parameters, without
from deconflow.xd.gibbs import Prior, State, Sweeper, begin
from deconflow.xd.layout import KernelRows
from deconflow.xd.starts import shares_of_truth

#: Fewer columns than these are few.
FEW_COLUMNS = 3
#: Floors of chains, in turns: noisy rows cannot say which is best.
FLOORS = (0.05, 0.1, 0.2)
#: Densities that a chain may compute in all, where that leaves enough sweeps.
WORK, WORK_IF_QUICK = 3e8, 4.5e7
FEWEST_SWEEPS, SWEEPS_PER_COLUMN, MOST_SWEEPS = 60, 60, 600
#: Components with less weight than this many rows are left out of snapshots.
NEGLIGIBLE = 0.3

#: Share of what the rows say that makes no difference, and of a column's rows that must stay.
LEAST_SAID, FEWEST_LEFT = 0.01, 0.5

#: Is told how many sweeps have been made since it was last told.
Progress = Callable[[int], object]


@dataclass(frozen=True)
class ChainSettings:
    """How long a chain is, and what is kept of it.

    Attributes
    ----------
    n_components : int
        Most components that a chain can use.
    burn_in, sweeps : int
        Sweeps before the first snapshot can be, and in all.
    snapshots : int
        How many mixtures are kept, evenly spread over the sweeps after ``burn_in``.
    """

    n_components: int
    burn_in: int
    sweeps: int
    snapshots: int

    @classmethod
    def plan(
        cls, rows: KernelRows, n_components: int | None = None, *, quick: bool = False
    ) -> "ChainSettings":
        """Decide by the rows: more components for more rows, fewer sweeps where each is long.

        From starts that fit, chains in few columns need few sweeps: with 24 chains on a ring, 60
        sweeps came .096 nat near the truth and 200 .108; nine columns of wine gain up to 600.
        """
        most = max(2, int(min(1.5 * np.sqrt(rows.n_rows), 10 + 10 * rows.dim)))
        most = most if n_components is None else n_components
        settings = cls(most, 0, 0, 5 if quick else 10)
        affordable = (WORK_IF_QUICK if quick else WORK) / settings.pairs(rows)
        enough = np.clip(SWEEPS_PER_COLUMN * rows.dim, 2 * SWEEPS_PER_COLUMN, MOST_SWEEPS)
        sweeps = int(np.clip(affordable, FEWEST_SWEEPS, enough))
        return replace(settings, burn_in=sweeps // 3, sweeps=sweeps)

    def pairs(self, rows: KernelRows) -> float:
        """Densities that one sweep computes: rows times components times parts of the noise."""
        return float(self.n_components * rows.n_gaussians)

    def kept(self) -> set[int]:
        """Numbers of the sweeps after which the mixture is kept."""
        last = np.linspace(self.burn_in, self.sweeps, self.snapshots + 1)[1:]
        return {round(float(each)) for each in last}


@dataclass
class Chain:
    """What is kept of a chain.

    Attributes
    ----------
    snapshots : list of GaussianMixture
        Mixtures of the truth, in the user's units.
    floor : float
        The floor, in units of the mean noise covariance.
    log_p : array
        Mean log-likelihood of the rows before each sweep.
    used : array
        Number of components that had rows in each sweep.
    """

    floor: float
    snapshots: list[GaussianMixture] = field(default_factory=list)
    log_p: Array = field(default_factory=lambda: np.empty(0))
    used: Array = field(default_factory=lambda: np.empty(0))


def telling_rows(data: Observations) -> BoolArray:
    """Which rows ``(N,)`` a chain needs: all but those that say next to nothing of the truth.

    A row says as much as the shares of the truth in its values' variances. What says less than a
    hundredth of the mean is left out, as long as all of it together says less than a hundredth of
    the whole, and most rows stay that measure any one column: chains would carry draws for it that
    only make them slow.
    """
    if len(data.noise.variance()) == 1 and data.observed is None and data.projection is None:
        return np.ones(len(data), dtype=bool)
    said = shares_of_truth(data).sum(-1) * row_weights(data)
    little = said < LEAST_SAID * said.mean()
    seen = np.broadcast_to(np.asarray(data.projections()).any(1), (len(data), data.latent_dim))
    rare = (seen[~little].sum(0) < FEWEST_LEFT * seen.sum(0)).any()
    if rare or said[little].sum() >= LEAST_SAID * said.sum():
        return np.ones(len(data), bool)
    return ~little


def single_rows(data: Observations) -> Observations:
    """Return rows of weights up to one: those of more are there several times.

    A row of weight five that draws one component and one truth would be five rows that agree, and
    what they agree on would look far more certain than it is.
    """
    weights = row_weights(data)
    copies = np.ceil(weights).astype(np.int64)
    if (copies == 1).all():
        return data
    rows = np.repeat(np.arange(len(data)), copies)
    return replace(data[rows], weights=(weights / copies)[rows])


def starts_of_chains(
    prepared: PreparedData, floor: float, settings: ChainSettings, seeds: Sequence[int]
) -> list[GaussianMixture]:
    """Make a start for each of some chains, in the user's units.

    In few columns a mixture by EM, of as many components as BIC likes: a chain needs long to empty
    components that the rows do not ask for (two clumps came out .10 nat off after 600 sweeps from
    thirty components of k-means, .012 from three of EM). In more columns all components about
    clusters of the rows: from fewer, chains on wine were .03 and .05 nat behind on held-out rows.
    """
    if prepared.rows.dim >= FEW_COLUMNS:
        begin = FitSettings(settings.n_components, floor=floor)
        return [prepared.start(begin, check_random_state(seed)) for seed in seeds]
    return _by_em(prepared, floor, settings.n_components, seeds)


def _by_em(
    prepared: PreparedData, floor: float, most: int, seeds: Sequence[int]
) -> list[GaussianMixture]:
    """Fit mixtures by EM, each of as many components as gain more than they cost."""
    n, rows = len(prepared.data), prepared.rows
    stopping = Stopping(1e-4, 100, accelerate=True, threads=1)
    price = 0.5 * np.log(n) / n
    best, found = -np.inf, list[GaussianMixture]()
    for size in [size for size in COMPONENTS_TO_TRY if size <= min(most, n)]:
        settings = FitSettings(size, floor=floor, stopping=stopping)
        some = seeds[:1] if size == 1 else seeds
        fits = [prepared.fit(settings, check_random_state(seed)) for seed in some]
        score = max(fit.log_likelihood for fit in fits) - price * n_parameters(size, rows.dim)
        if score <= best:
            break
        best, found = score, [fit.mixture for fit in fits] * (len(seeds) if size == 1 else 1)
    return found


def sample_chains(
    prepared: PreparedData,
    starts: Sequence[GaussianMixture],
    floors: Sequence[float],
    settings: ChainSettings,
    seeds: Sequence[int],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Chain]:
    """Sample one chain for each start, floor and seed, side by side in threads.

    Parameters
    ----------
    prepared
        The rows.
    starts
        A mixture for each chain, in the user's units.
    floors
        A floor for each chain, in units of the mean noise covariance.
    settings
        How long to sample.
    seeds
        A seed for each chain; the same seed gives the same chain, however many threads there are.
    threads
        How many chains to run at a time; None for one per processor.
    progress
        Is called with 1 after every sweep of any chain.
    """
    alone = Stopping(tol=1e-5, max_iter=200, accelerate=True, threads=1)
    one = prepared.fit(FitSettings(1, floor=0.1, stopping=alone), check_random_state(0)).mixture
    whole = prepared.rows.units.mixture_to_standard(one)
    with ThreadPoolExecutor(max(1, min(cpus(threads), len(seeds)))) as pool:
        jobs = zip(starts, floors, seeds, strict=True)
        return list(
            pool.map(_sample, repeat(prepared), repeat(whole), jobs, repeat(settings),
                     repeat(progress))
        )  # fmt: skip


def _sample(
    prepared: PreparedData,
    whole: GaussianMixture,
    job: tuple[GaussianMixture, float, int],
    settings: ChainSettings,
    progress: Progress | None,
) -> Chain:
    start, floor, seed = job
    rows = prepared.rows
    constraints = FitSettings(1, floor=floor).constraints(prepared)
    assert constraints.floor is not None
    prior = Prior(whole.means[0], whole.covariances[0], constraints.floor)
    sweeper = Sweeper(rows, prior, np.random.Generator(np.random.SFC64(seed)))
    state = begin(
        rows.units.mixture_to_standard(start), settings.n_components, prior, rows.total_weight
    )
    chain, kept = Chain(floor), settings.kept()
    trace = []
    for sweep in range(1, settings.sweeps + 1):
        sweeper.sweep(state)
        trace.append((state.log_p, np.count_nonzero(state.count)))
        if sweep in kept:
            thin = _thinned(state, prior.floor, NEGLIGIBLE / rows.total_weight)
            chain.snapshots.append(rows.units.mixture_from_standard(thin))
        if progress is not None:
            progress(1)
    chain.log_p, chain.used = np.array(trace).T
    return chain


def _thinned(state: State, floor: Array, least: float) -> GaussianMixture:
    mixture = state.mixture(floor)
    return without(mixture, mixture.weights < min(least, mixture.weights.max()))
