"""Densities ``p(v)`` of the truth, and the networks and layers they are made of."""

from deconflow.densities.architectures import (
    ARCHITECTURES,
    DENSITIES,
    Architecture,
    autoregressive_layer,
    interleave_lu,
)
from deconflow.densities.base import Density, simulate
from deconflow.densities.conditional_mixture import ConditionalMixture
from deconflow.densities.dropout import Dropout, without_dropout
from deconflow.densities.ensemble import Ensemble
from deconflow.densities.fixed_mixture import FixedMixture
from deconflow.densities.flow import Flow, StandardNormal
from deconflow.densities.folded import Folded
from deconflow.densities.mixture_density import MixtureDensity
from deconflow.densities.networks import MaskedLinear, ResidualNetwork, load_weights
from deconflow.densities.stack import Stack
from deconflow.densities.transforms import AutoregressiveLayer, compose

__all__ = [
    "ARCHITECTURES",
    "DENSITIES",
    "Architecture",
    "AutoregressiveLayer",
    "ConditionalMixture",
    "Density",
    "Dropout",
    "Ensemble",
    "FixedMixture",
    "Flow",
    "Folded",
    "MaskedLinear",
    "MixtureDensity",
    "ResidualNetwork",
    "Stack",
    "StandardNormal",
    "autoregressive_layer",
    "compose",
    "interleave_lu",
    "load_weights",
    "simulate",
    "without_dropout",
]
