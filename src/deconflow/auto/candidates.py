"""What is averaged: kinds of fits, each made without every fold of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deconflow._types import Array
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
