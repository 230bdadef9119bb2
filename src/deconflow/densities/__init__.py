"""Densities ``p(v)`` of the true values, and the networks and layers they are made of."""

from deconflow.densities.base import (
    Density,
    Ensemble,
    Folded,
    StandardNormal,
    simulate,
    without_dropout,
)
from deconflow.densities.flows import (
    ARCHITECTURES,
    DENSITIES,
    Architecture,
    Flow,
    Stack,
    autoregressive_layer,
    interleave_lu,
)
from deconflow.densities.mixtures import ConditionalMixture, FixedMixture, MixtureDensity
from deconflow.densities.networks import (
    Dropout,
    MaskedLinear,
    ResidualNetwork,
    as_arrays,
    load_arrays,
)
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
    "as_arrays",
    "autoregressive_layer",
    "compose",
    "interleave_lu",
    "load_arrays",
    "simulate",
    "without_dropout",
]
