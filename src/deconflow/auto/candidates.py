"""What is averaged: kinds of fits, each made without every fold of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.auto.plan import Plan
from deconflow.auto.stacking import stack
from deconflow.extras import need_flows
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
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
    from deconflow.randomness import isolated_rng

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
class Resources:
    """Processors, a folder for checkpoints, progress, and the device that flows are trained on."""

    n_jobs: int
    checkpoint: Path | None = None
    progress: Progress = SILENT
    device: str = "cpu"

    def file(self, name: str) -> Path | None:
        """Name the checkpoint of a part of the fit."""
        return None if self.checkpoint is None else self.checkpoint / f"{name}.ckpt"


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
        How much to do.
    resources : Resources
        What it may use.
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
    resources: Resources
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

    def single_of_all(self, rng: np.random.RandomState) -> GaussianMixture:
        """Return one mixture of all rows: where draws come from."""
        start = None if self.averaged.all_chose else self.averaged.singles[0]
        return PreparedData(self.data).fit(self.averaged.settings, rng, start).mixture

    def unscored(self) -> Array:
        """Return log-likelihoods of which none is known yet."""
        return np.full(len(self.data), np.nan)


def weigh(
    candidates: list[Candidate], row_weights: Array, dim: int, rng: np.random.RandomState
) -> Array:
    """Return the shares of candidates, by the rows that all of them were scored on."""
    log_p, rows = compared(candidates)
    if len(rows) > MOST_WEIGHED:
        some = np.linspace(0, len(rows) - 1, MOST_WEIGHED).astype(int)
        log_p, rows = log_p[:, some], rows[some]
    known = prior_rows(len(rows), dim)
    prior = np.array([known[each.name] for each in candidates])
    return stack(log_p, row_weights[rows], prior, rng)


def prior_rows(n_rows: int, dim: int) -> dict[str, float]:
    """Return how many rows are added in favour of each kind; see :mod:`deconflow.auto.stacking`.

    More in one column for log-splines: they are smoother. For flows more the more rows there are,
    since rows undervalue them: each is scored by the one or two flows that have not seen it, and
    the answer averages all, which is what flows gain most by.
    """
    spline, flows = 5.0 if dim == 1 else 1.0, 0.2 * float(np.sqrt(n_rows))
    return {"mixtures": 0.5, "spline": spline, "bayes": 1.0, "flows": flows}


def score_folds(
    task: Task, mixtures: list[GaussianMixture], folds: Sequence[Fold] | None = None
) -> Array:
    """Return the log-likelihood ``(N,)`` of each row under the mixture that left its fold out.

    If ``folds`` are given, only the rows of these are scored.
    """
    held_out = task.unscored()
    for fold, mixture in zip(folds or task.averaged.folds, mixtures, strict=True):
        rows = lay_out(task.data[fold.held])
        held_out[fold.held] = log_p(mixture, rows, task.resources.n_jobs)
    return held_out


def thinned(folds: Sequence[Fold], most: int) -> list[Fold]:
    """Return folds of at most so many rows, evenly spread; the same if there are no more."""
    n_rows = sum(len(fold.held) for fold in folds)
    if n_rows <= most:
        return list(folds)
    some = np.zeros(n_rows, bool)
    some[np.linspace(0, n_rows - 1, most).astype(int)] = True
    return [Fold(fold.kept[some[fold.kept]], fold.held[some[fold.held]]) for fold in folds]


def compared(candidates: list[Candidate]) -> tuple[Array, IntArray]:
    """Return ``(C, n)`` log-likelihoods of the rows that all candidates were scored on, and these.

    The rows are given by their numbers.
    """
    log_p = np.stack([each.held_out for each in candidates])
    rows = np.flatnonzero(~np.isnan(log_p).any(axis=0))
    return np.maximum(log_p[:, rows], IMPOSSIBLE), rows
