"""Densities ``p(v)`` of the true values, and the networks and layers they are made of."""

from deconflow.densities.base import (
    ConditionalMixture,
    Density,
    Ensemble,
    FixedMixture,
    Folded,
    MixtureDensity,
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
from deconflow.densities.layers import (
    AutoregressiveLayer,
    ComposedTransform,
    MaskedLinear,
    ResidualNetwork,
    as_arrays,
    compose,
    load_arrays,
)

__all__ = [
    "ARCHITECTURES",
    "DENSITIES",
    "Architecture",
    "AutoregressiveLayer",
    "ComposedTransform",
    "ConditionalMixture",
    "Density",
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
