"""Objectives: what a fit maximises, row by row."""

from deconflow.objectives.base import Objective, RowData
from deconflow.objectives.bounds import ELBO, ImportanceWeighted
from deconflow.objectives.chains import Chains, NumberedRows, proposing_network
from deconflow.objectives.coupled import CoupledChains
from deconflow.objectives.likelihood import MaximumLikelihood, PosteriorLikelihood
from deconflow.objectives.posterior_steps import SleepPosterior
from deconflow.objectives.roulette import Roulette
from deconflow.objectives.wake_sleep import WakeSleep

__all__ = [
    "ELBO",
    "Chains",
    "CoupledChains",
    "ImportanceWeighted",
    "MaximumLikelihood",
    "NumberedRows",
    "Objective",
    "PosteriorLikelihood",
    "Roulette",
    "RowData",
    "SleepPosterior",
    "WakeSleep",
    "proposing_network",
]
