"""Objectives: the number per row that a fit maximises."""

from deconflow.objectives.base import (
    ELBO,
    ImportanceWeighted,
    MaximumLikelihood,
    Objective,
    PosteriorLikelihood,
    RowData,
)
from deconflow.objectives.chains import Chains, proposing_network
from deconflow.objectives.unbiased import CoupledChains, Roulette

__all__ = [
    "ELBO",
    "Chains",
    "CoupledChains",
    "ImportanceWeighted",
    "MaximumLikelihood",
    "Objective",
    "PosteriorLikelihood",
    "Roulette",
    "RowData",
    "proposing_network",
]
