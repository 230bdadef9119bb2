"""Objectives: what a fit makes large, row by row."""

from deconflow.objectives.base import Objective, RowData
from deconflow.objectives.bounds import ELBO, ImportanceWeighted
from deconflow.objectives.coupled import CoupledChains
from deconflow.objectives.forward_kl import SleepPosterior, WakePosterior, simulate
from deconflow.objectives.likelihood import MaximumLikelihood, Pairs, PosteriorLikelihood
from deconflow.objectives.roulette import Roulette
from deconflow.objectives.wake_sleep import WakeSleep

__all__ = [
    "ELBO",
    "CoupledChains",
    "ImportanceWeighted",
    "MaximumLikelihood",
    "Objective",
    "Pairs",
    "PosteriorLikelihood",
    "Roulette",
    "RowData",
    "SleepPosterior",
    "WakePosterior",
    "WakeSleep",
    "simulate",
]
