r"""What is averaged: kinds of fits, each made without every fold of the rows, and their weights.

Those that are mixtures are fitted here: log-splines in one and two columns, Bayesian mixtures in
more.

Weights are learned on rows that no candidate has seen,

.. math:: \max_a \; \sum_i \omega_i \log \sum_c a_c \, p_c(w_i) + \sum_c \kappa_c \log a_c

over weights :math:`a` that sum to one, with the :math:`p_c` of fits that left row :math:`i` out.
The differences between good candidates are as small as their errors, and then the best weights
jump with the rows: so the rows are drawn anew many times (Bayesian bootstrap), and the answers
averaged. Where the rows can tell, all answers agree; where they cannot, their average is near
even, but for what the prior knows: :math:`\kappa_c` rows more than there are speak for each
candidate (:func:`weigh`). A density that is too rough costs far more in :math:`\log p(v)` than
one that is too smooth, and noisy rows hardly see it.

References
----------
Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
distributions", https://arxiv.org/abs/1704.02030
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from deconflow import ranks
from deconflow._types import Array, IntArray
from deconflow.extras import need_flows
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.randomness import isolated_rng
from deconflow.splines import MOST_COLUMNS, fit_log_spline, work_of_fit
from deconflow.xd import (
    FLOORS,
    AveragedFit,
    ChainSettings,
    Fold,
    PreparedData,
    lay_out,
    log_p,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)

if TYPE_CHECKING:
    from deconflow.densities import Density

#: The architecture of flows.
FLOW = "mixture"
#: Chains and flows enter from so many columns on: in fewer they add next to nothing to mixtures
#: and log-splines, which take seconds.
FEWEST_COLUMNS = 3
#: What counts as the log-likelihood of a row that a candidate thinks impossible.
IMPOSSIBLE = -1e5
#: Rows that weigh candidates: so many can tell what there is to tell.
MOST_WEIGHED = 200_000
BOOTSTRAPS = 40
#: Candidates of less weight are not carried: where they are good they hardly help.
SMALLEST_SHARE = 0.1
STEPS, HALVINGS, PRECISE = 60, 30, 1e-9


@dataclass(frozen=True)
class Member:
    """A trained flow.

    Attributes
    ----------
    size : dict
        Its :class:`~deconflow.densities.Architecture`.
    state : dict of array
        Weights, in main memory.
    history : dict
        What happened in training.
    refresh_rate : array or None
        How often each row's chain moved.
    """

    size: dict[str, Any]
    state: dict[str, Any]
    history: dict[str, Any]
    refresh_rate: Any = None


def ensemble_of(members: list[Member], dim: int) -> "Density":
    """Average flows."""
    need_flows()
    from deconflow.densities import ARCHITECTURES, Architecture, Ensemble, load_arrays

    flows: list[Density] = []
    for member in members:
        with isolated_rng(0):  # weights drawn here are replaced
            flow = ARCHITECTURES[FLOW](dim, Architecture(**member.size))
        load_arrays(flow, member.state)
        flows.append(flow.eval())
    return Ensemble(flows)


def fixed(mixtures: list[GaussianMixture]) -> "Density | None":
    """Average mixtures, as a density whose draws can be weighed; None if torch is missing."""
    try:
        need_flows()
    except ModuleNotFoundError:
        return None
    import torch

    from deconflow.densities import FixedMixture

    return FixedMixture(mix(mixtures).without_copies(), torch.float64)


#: The result of a candidate without one fold: a mixture, or some flows.
Part = GaussianMixture | list[Member]


@dataclass(frozen=True)
class Plan:
    """How much to do, and with what.

    Attributes
    ----------
    n_jobs : int
        Processors.
    quick : bool
        Whether a first answer, without flows, is enough.
    n_flows : int or None
        How many flows to train, over all folds; None for as many as the rows are worth.
    checkpoint : Path or None
        A folder for checkpoints.
    progress : Progress
        Counts the steps of each stage.
    device : str
        Where flows are trained.
    """

    n_jobs: int
    quick: bool = False
    n_flows: int | None = None
    checkpoint: Path | None = None
    progress: Progress = SILENT
    device: str = "cpu"

    @property
    def folds(self) -> int:
        """Number of folds: every candidate is fitted without each of them."""
        return 4 if self.quick else 5


@dataclass(frozen=True)
class Candidate:
    """One kind of fit.

    Attributes
    ----------
    name : str
        What users call it.
    held_out : array
        ``(N,)`` log-likelihood of each row by the fit that has not seen it; NaN where no fit was
        asked.
    parts : list
        What was learned without each fold; flows may have fewer than there are folds.
    """

    name: str
    held_out: Array
    parts: list[Part]


@dataclass
class Task:
    """What every kind of candidate is given.

    Attributes
    ----------
    data : Observations
        Rows in standardised units.
    averaged : AveragedFit
        The average of mixtures: folds, settings, and where others start.
    plan : Plan
        How much to do, and with what.
    seed : int
        Seed of the fit.
    so_far : list of Candidate
        The candidates before this one.
    notes : list of str
        What users should know of candidates that were left out.
    """

    data: Observations
    averaged: AveragedFit
    plan: Plan
    seed: int
    so_far: list[Candidate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def without(self, fold: int) -> Observations:
        """Return the rows but for a fold."""
        return self.data[self.averaged.folds[fold].kept]

    def single(self, fold: int) -> GaussianMixture:
        """Return one mixture without a fold, where others start and what proposes for flows."""
        if not self.averaged.all_chose:
            return self.averaged.singles[fold]
        rng = np.random.RandomState(self.seed + 1000 + fold)
        return PreparedData(self.without(fold)).fit(self.averaged.settings, rng).mixture

    def scored(
        self, name: str, mixtures: list[GaussianMixture], folds: Sequence[Fold] | None = None
    ) -> Candidate:
        """Return mixtures as a candidate: each scores the rows of the fold that it left out.

        If ``folds`` are given, only the rows of these are scored.
        """
        held_out = np.full(len(self.data), np.nan)
        for fold, mixture in zip(folds or self.averaged.folds, mixtures, strict=True):
            held_out[fold.held] = log_p(mixture, lay_out(self.data[fold.held]), self.plan.n_jobs)
        return Candidate(name, held_out, list(mixtures))


def compared(candidates: list[Candidate]) -> tuple[Array, IntArray]:
    """Return ``(C, n)`` log-likelihoods of the rows that all candidates were scored on, and these.

    The rows are given by their numbers.
    """
    log_p = np.stack([each.held_out for each in candidates])
    rows = np.flatnonzero(~np.isnan(log_p).any(axis=0))
    return np.maximum(log_p[:, rows], IMPOSSIBLE), rows


def weigh(
    candidates: list[Candidate], row_weights: Array, dim: int, rng: np.random.RandomState
) -> Array:
    """Return the shares of candidates, by the rows that all of them were scored on."""
    log_p, rows = compared(candidates)
    if len(rows) > MOST_WEIGHED:
        some = np.linspace(0, len(rows) - 1, MOST_WEIGHED).astype(int)
        log_p, rows = log_p[:, some], rows[some]
    # Rows that are added in favour of each kind. More in one column for log-splines: they are
    # smoother. For flows more the more rows there are, since rows undervalue them: each is scored
    # by the one or two flows that have not seen it, and the answer averages all, which is what
    # flows gain most by.
    spline, flows = 5.0 if dim == 1 else 1.0, 0.2 * float(np.sqrt(len(rows)))
    prior = {"mixtures": 0.5, "spline": spline, "bayes": 1.0, "flows": flows}
    return stack(log_p, row_weights[rows], np.array([prior[each.name] for each in candidates]), rng)


def stack(log_p: Array, weights: Array, prior: Array, rng: np.random.RandomState) -> Array:
    """Return the weights ``(C,)`` of candidates; those that get next to nothing get zero.

    Parameters
    ----------
    log_p
        ``(C, N)`` log-likelihoods of rows by fits that have not seen them.
    weights
        ``(N,)`` row weights.
    prior
        ``(C,)``: how many rows more speak for each; positive.
    rng
        Draws the rows anew.
    """
    p = np.exp(log_p - log_p.max(axis=0))
    average = np.zeros(len(p))
    start = best_weights(p, weights, prior, prior / prior.sum())
    for _ in range(BOOTSTRAPS):
        drawn = weights * rng.standard_exponential(len(weights))
        drawn *= weights.sum() / drawn.sum()
        average += best_weights(p, drawn, prior, start) / BOOTSTRAPS
    kept = np.where(average >= SMALLEST_SHARE, average, 0.0)
    return kept / kept.sum()


def best_weights(p: Array, weights: Array, prior: Array, start: Array) -> Array:
    """Maximise the penalised likelihood by Newton's steps that stay inside.

    It is concave, and the penalty keeps all weights positive: there is one maximum.
    """

    def value_of(a: Array) -> float:
        return float(weights @ np.log(a @ p) + prior @ np.log(a))

    size = len(start)
    system = np.ones((size + 1, size + 1))  # its last row keeps the sum of the weights
    system[size, size] = 0.0
    a, value = start, value_of(start)
    for _ in range(STEPS):
        ratio = p / (a @ p)
        system[:size, :size] = -(ratio * weights) @ ratio.T - np.diag(prior / np.square(a))
        step = np.linalg.solve(system, np.append(-(ratio @ weights + prior / a), 0.0))[:size]
        down = step < 0  # a step is shortened until all weights are positive and the value rises
        longest = min(1.0, float((0.95 * a[down] / -step[down]).min(initial=np.inf)))
        for length in longest * 0.5 ** np.arange(HALVINGS):
            tried = a + length * step
            found = value_of(tried)
            if found >= value:
                break
        else:
            return a
        if found - value <= PRECISE:
            return tried
        a, value = tried, found
    return a


#: Rows or bins, in two columns times the Gaussians of their noise, that a spline may sum over.
MOST_WORK, MOST_WORK_IF_QUICK = 40_000, 10_000
#: Rows that splines are fitted to and scored on: more hardly change so smooth an answer.
MOST_ROWS = 200_000
#: Gaussians of all rows that are worth writing out to see how many bins there would be.
MOST_WRITTEN = 400_000
#: Chains without each fold: one alone does not find its way about.
CHAINS = 2
#: Densities that all chains may compute; where that is too few for a chain, there are none.
MOST_DENSITIES, MOST_DENSITIES_IF_QUICK = 4e9, 1e9


def fit_splines(task: Task) -> Candidate | None:
    """Fit a log-spline without each fold, as a mixture of Gaussians, from one fit to all rows.

    Of a group of processes each fits some.
    """
    data, plan = task.data, task.plan
    if data.latent_dim > MOST_COLUMNS or data.projection is not None:
        return None
    try:
        folds = thinned(task.averaged.folds, MOST_ROWS)
        rows = np.sort(np.concatenate([fold.held for fold in folds]))
        some = data if len(rows) == len(data) else data[rows]
        _check_work(some, MOST_WORK_IF_QUICK if plan.quick else MOST_WORK)
        plan.progress.begin("fitting log-splines", steps=1 + len(folds))
        # One thread per fit: those of numpy's products would stand in the way of the folds'.
        with threadpool_limits(limits=1, user_api="blas"):
            whole = fit_log_spline(some)
            plan.progress.advance()
            if not whole.converged:
                raise ValueError("Its fit did not converge: some rows may be too far from others.")

            def without(fold: Fold) -> GaussianMixture:
                found = fit_log_spline(data[fold.kept], start=whole).mixture
                plan.progress.advance()
                return found

            with ThreadPoolExecutor(plan.n_jobs) as pool:
                mixtures = ranks.spread(lambda mine: list(pool.map(without, mine)), folds)
    except ValueError as reason:
        task.notes.append(f"There is no log-spline. {reason}")
        return None
    return task.scored("spline", mixtures, folds)


def _check_work(data: Observations, most: int) -> None:
    """Raise ValueError where no fit can be had."""
    if data.observed is not None:  # tried on rings and on the toy: nothing gained, .003 nat lost
        raise ValueError("Where values are missing it adds nothing to mixtures.")
    if data.noise.flags is not None:
        raise ValueError("Where values are limits, only mixtures and flows take these.")
    gaussians = len(data) * data.noise.as_mixture().n_parts
    not_gaussian = data.dim > 1 and not isinstance(data.noise, GaussianNoise)
    work = math.inf if not_gaussian and gaussians > MOST_WRITTEN else work_of_fit(data)
    if work > most:
        raise ValueError(
            "So many rows with noise that differs by row, or is not Gaussian, would take it too "
            "long. Use LogSplineDeconvolver for these."
        )


def thinned(folds: Sequence[Fold], most: int) -> list[Fold]:
    """Return folds of at most so many rows, evenly spread; the same if there are no more."""
    n_rows = sum(len(fold.held) for fold in folds)
    if n_rows <= most:
        return list(folds)
    some = np.zeros(n_rows, bool)
    some[np.linspace(0, n_rows - 1, most).astype(int)] = True
    return [Fold(fold.kept[some[fold.kept]], fold.held[some[fold.held]]) for fold in folds]


def fit_chains(task: Task) -> Candidate | None:
    """Sample chains without each fold; of a group of processes each samples some."""
    if task.data.latent_dim < FEWEST_COLUMNS:
        return None
    folds, rows = len(task.averaged.folds), _telling(task, 0).rows
    settings = ChainSettings.plan(rows, quick=task.plan.quick)
    sweeps = settings.sweeps * CHAINS * folds
    most = MOST_DENSITIES_IF_QUICK if task.plan.quick else MOST_DENSITIES
    if settings.pairs(rows) * sweeps > most:
        task.notes.append(
            "There are no Bayesian mixtures: so many rows would take them too long, and say "
            "enough without them. Use BayesianXDGMM for these."
        )
        return None
    try:
        task.plan.progress.begin("sampling Bayesian mixtures", "sweeps", sweeps)
        mixtures = ranks.spread(
            lambda mine: [_sampled(task, f, settings) for f in mine], list(range(folds))
        )
    except np.linalg.LinAlgError:
        task.notes.append(
            "There are no Bayesian mixtures: some rows lie too far from all others for them. "
            "Look for codes of missing values, as -999."
        )
        return None
    return task.scored("bayes", mixtures)


def _telling(task: Task, fold: int) -> PreparedData:
    """Return the rows without a fold that say something of the truth."""
    kept = task.without(fold)
    return PreparedData(single_rows(kept[telling_rows(kept)].with_weight()))


def _sampled(task: Task, fold: int, settings: ChainSettings) -> GaussianMixture:
    """Average the snapshots of the chains without a fold."""
    seeds = [task.seed + 2000 + CHAINS * fold + c for c in range(CHAINS)]
    floor, prepared = FLOORS[fold % len(FLOORS)], _telling(task, fold)
    starts = starts_of_chains(prepared, floor, settings, seeds)
    chains = sample_chains(
        prepared, starts, [floor] * CHAINS, settings, seeds,
        threads=task.plan.n_jobs, progress=task.plan.progress.advance,
    )  # fmt: skip
    return mix([snapshot for chain in chains for snapshot in chain.snapshots])
