r"""What is averaged: kinds of fits, each made without every fold of the rows, and their weights.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.extras import need_flows
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.randomness import isolated_rng
from deconflow.xd import AveragedFit, Fold, PreparedData, lay_out, log_p

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
        a_next, value_next = _inside(value_of, a, value, step)
        if value_next - value <= PRECISE:
            return a_next
        a, value = a_next, value_next
    return a


def _inside(
    value_of: Callable[[Array], float], a: Array, value: float, step: Array
) -> tuple[Array, float]:
    """Shorten a step until all weights are positive and the value does not fall."""
    down = step < 0
    length = min(1.0, float((0.95 * a[down] / -step[down]).min(initial=np.inf)))
    for _ in range(HALVINGS):
        tried = a + length * step
        found = value_of(tried)
        if found >= value:
            return tried, found
        length /= 2
    return a, value
