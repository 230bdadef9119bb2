"""Chains of Gibbs sweeps side by side, and the few snapshots of each that answers need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from deconflow._limits import cpus
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.cross_fits import row_weights
from deconflow.xd.em import Stopping
from deconflow.xd.fit import FitSettings, PreparedData
from deconflow.xd.gibbs import Prior, State, Sweeper, begin
from deconflow.xd.layout import KernelRows

WORK, WORK_IF_QUICK = 3e8, 6e7
"""Densities that a chain may compute in all, where that leaves enough sweeps."""
FEWEST_SWEEPS, SWEEPS_PER_COLUMN, MOST_SWEEPS = 60, 60, 600
NEGLIGIBLE = 0.3
"""Components with less weight than this many rows are left out of snapshots."""

LEAST_SAID = 0.01
"""Share of what the rows say that makes no difference."""

Progress = Callable[[int], object]
"""Is told how many sweeps have been made since it was last told."""


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
    def plan(cls, rows: KernelRows, *, quick: bool = False) -> ChainSettings:
        """Decide by the rows: more components for more rows, fewer sweeps where each is long.

        From starts that fit, chains in few columns need few sweeps: with 24 chains on a ring, 60
        sweeps came .096 nat near the truth and 200 .108; nine columns of wine gain up to 600.
        """
        most = int(min(1.5 * np.sqrt(rows.n_rows), 10 + 10 * rows.dim))
        settings = cls(max(2, most), 0, 0, 5 if quick else 10)
        affordable = (WORK_IF_QUICK if quick else WORK) / settings.pairs(rows)
        enough = np.clip(SWEEPS_PER_COLUMN * rows.dim, 2 * SWEEPS_PER_COLUMN, MOST_SWEEPS)
        sweeps = int(np.clip(affordable, FEWEST_SWEEPS, enough))
        return replace(settings, burn_in=sweeps // 3, sweeps=sweeps)

    def pairs(self, rows: KernelRows) -> float:
        """Densities that one sweep computes: rows times components times parts of the noise."""
        parts = (
            len(block) * (len(block.s) if block.common is None else block.common.n_parts)
            for block in rows.blocks
        )
        return float(self.n_components * sum(parts))

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


def telling_rows(data: Observations) -> NDArray[np.bool_]:
    """Which rows ``(N,)`` a chain needs: all but those that say next to nothing of the truth.

    A row says as much as the shares of the truth in its values' variances. What says less than a
    hundredth of the mean is left out, as long as all of it together says less than a hundredth of
    the whole: else chains would carry draws for it that only make them slow.
    """
    if len(data.noise.variance()) == 1 and data.observed is None and data.projection is None:
        return np.ones(len(data), dtype=bool)
    signal = (data.projections() * Standardiser.fit(data).scale).square().sum(-1)
    share = (signal / (signal + data.noise.variance())).expand(len(data), -1)
    if data.observed is not None:
        share = share.where(data.observed, 0.0)
    said = share.sum(-1).numpy() * row_weights(data)
    little = said < LEAST_SAID * said.mean()
    return ~little if said[little].sum() < LEAST_SAID * said.sum() else np.ones(len(data), bool)


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
            thin = _thinned(state, prior.floor, NEGLIGIBLE / rows.n_rows)
            chain.snapshots.append(rows.units.mixture_from_standard(thin))
        if progress is not None:
            progress(1)
    chain.log_p, chain.used = np.array(trace).T
    return chain


def _thinned(state: State, floor: Array, least: float) -> GaussianMixture:
    mixture = state.mixture(floor)
    kept = np.flatnonzero(mixture.weights >= min(least, mixture.weights.max()))
    weights = mixture.weights[kept]
    return GaussianMixture(weights / weights.sum(), mixture.means[kept], mixture.covariances[kept])
