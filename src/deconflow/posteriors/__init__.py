"""Models ``q(v | w, noise)`` of the truth given a measurement, and draws weighed by the truth."""

from deconflow.posteriors.base import PosteriorModel
from deconflow.posteriors.coordinates import Whitening
from deconflow.posteriors.coupled import SignedDraws, couple
from deconflow.posteriors.mixture_exact import MixtureExact
from deconflow.posteriors.mixture_network import MixtureNetwork
from deconflow.posteriors.proposals import (
    STRETCH,
    DefensiveProposal,
    RowsWithProposals,
    propose,
)
from deconflow.posteriors.recognition import RecognitionFlow
from deconflow.posteriors.resampling import WeightedDraws, weigh
from deconflow.posteriors.row_mixtures import RowMixtures

__all__ = [
    "STRETCH",
    "DefensiveProposal",
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
