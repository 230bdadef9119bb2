"""Densities ``p(v)`` of the truth."""

from deconflow.densities.architectures import ARCHITECTURES, DENSITIES, Architecture
from deconflow.densities.base import Density
from deconflow.densities.conditional_mixture import ConditionalMixture
from deconflow.densities.ensemble import Ensemble, Restored
from deconflow.densities.flow import Flow, StandardNormal
from deconflow.densities.mixture import GaussianMixture

__all__ = [
    "ARCHITECTURES",
    "DENSITIES",
    "Architecture",
    "ConditionalMixture",
    "Density",
    "Ensemble",
    "Flow",
    "GaussianMixture",
    "Restored",
    "StandardNormal",
]
