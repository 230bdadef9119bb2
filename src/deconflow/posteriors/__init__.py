"""Posteriors ``q(v | w, noise)`` of the true value of a row, and draws weighed by the exact one."""

from deconflow.posteriors.coupled import SignedDraws, couple
from deconflow.posteriors.mixtures import (
    MixtureExact,
    PosteriorModel,
    RowMixtures,
    WeightedDraws,
    weigh,
)
from deconflow.posteriors.networks import MixtureNetwork, RecognitionFlow, Whitening
from deconflow.posteriors.proposals import STRETCH, RowsWithProposals, propose

__all__ = [
    "STRETCH",
    "MixtureExact",
    "MixtureNetwork",
    "PosteriorModel",
    "RecognitionFlow",
    "RowMixtures",
    "RowsWithProposals",
    "SignedDraws",
    "WeightedDraws",
    "Whitening",
    "couple",
    "propose",
    "weigh",
]
