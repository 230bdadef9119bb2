"""Objectives: what a fit maximises, row by row."""

from deconflow.objectives.base import Objective, RowData
from deconflow.objectives.chains import Chains, NumberedRows, proposing_network
from deconflow.objectives.coupled import CoupledChains
from deconflow.objectives.likelihood import (
    ELBO,
    ImportanceWeighted,
    MaximumLikelihood,
    PosteriorLikelihood,
)
from deconflow.objectives.roulette import Roulette

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
    "proposing_network",
]
