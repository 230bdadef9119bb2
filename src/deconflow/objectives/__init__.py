"""Objectives: the number per row that a fit maximises."""

from deconflow.objectives.chains import Chains, proposing_network
from deconflow.objectives.likelihoods import (
    ELBO,
    CoupledChains,
    ImportanceWeighted,
    MaximumLikelihood,
    Objective,
    PosteriorLikelihood,
    Roulette,
    RowData,
)

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
