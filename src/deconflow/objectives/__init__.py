"""Objectives: what a fit makes large, row by row."""

from deconflow.objectives.base import Objective, RowData
from deconflow.objectives.bounds import ELBO, ImportanceWeighted
from deconflow.objectives.forward_kl import SleepPosterior, WakePosterior, simulate
from deconflow.objectives.likelihood import MaximumLikelihood, Pairs, PosteriorLikelihood

__all__ = [
    "ELBO",
    "ImportanceWeighted",
    "MaximumLikelihood",
    "Objective",
    "Pairs",
    "PosteriorLikelihood",
    "RowData",
    "SleepPosterior",
    "WakePosterior",
    "simulate",
]
