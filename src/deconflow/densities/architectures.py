r"""Named flow architectures: each is a few lines over layers and a base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from deconflow.densities.base import Density
from deconflow.densities.conditional_mixture import ConditionalMixture
from deconflow.densities.flow import Flow, StandardNormal
from deconflow.densities.mixture_density import MixtureDensity
from deconflow.densities.networks import MaskedNetwork
from deconflow.densities.transforms import (
    Affine,
    AutoregressiveLayer,
    CouplingLayer,
    LULayer,
    Spline,
    Univariate,
)
from deconflow.randomness import own_generator

MIXING = 0.42
"""How much the linear layers of a flow with plain networks mix the dimensions at the start. After
some mixing every layer can change every dimension, whatever the order of the layers; where the
dimensions are only permuted, such networks may stay at a poor fit."""


@dataclass(frozen=True)
class Architecture:
    """The sizes that all flows share.

    Attributes
    ----------
    layers : int
        Number of transforming layers.
    hidden : int
        Width of the hidden layers of their networks.
    blocks : int
        Number of hidden blocks in each network.
    dropout : float
        Probability of dropout inside the blocks.
    base_components : int
        1 for a standard normal base, more for a Gaussian mixture.
    conditional_components : int
        Gaussians in each conditional of the ``mixture`` flow.
    """

    layers: int = 5
    hidden: int = 128
    blocks: int = 2
    dropout: float = 0.0
    base_components: int = 1
    conditional_components: int = 8


def maf(dim: int, size: Architecture = Architecture()) -> Flow:
    """Make the paper's prior: affine masked autoregressive flow, ResMADE, LU layers.

    References
    ----------
    Papamakarios et al. (2017), https://arxiv.org/abs/1705.07057
    """
    return _with_lu(dim, size, lambda: autoregressive_layer(dim, size))


def made(dim: int, size: Architecture = Architecture()) -> Flow:
    """Make the paper's prior for the UCI data: as :func:`maf`, with plain MADE networks."""
    return _with_lu(dim, size, lambda: autoregressive_layer(dim, size, residual=False), MIXING)


def spline(dim: int, size: Architecture = Architecture()) -> Flow:
    """Make a neural spline flow: autoregressive rational-quadratic splines.

    References
    ----------
    Durkan et al. (2019), https://arxiv.org/abs/1906.04032
    """
    return _with_lu(dim, size, lambda: autoregressive_layer(dim, size, univariate=Spline()))


def coupling(dim: int, size: Architecture = Architecture()) -> Flow:
    """Make a coupling flow: splines of one half given the other, fast in both directions.

    References
    ----------
    Dinh et al. (2017), https://arxiv.org/abs/1605.08803
    """
    first = torch.arange(dim) < dim // 2
    shape = size.hidden, size.blocks, size.dropout
    return _with_lu(dim, size, lambda: CouplingLayer(first, Spline(), *shape))


def mixture(dim: int, size: Architecture = Architecture()) -> Flow:
    """Make affine autoregressive layers over a base whose conditionals are Gaussian mixtures."""
    if size.base_components != 1:
        raise ValueError(
            "Expected base_components=1 for the mixture flow, whose base is its own; "
            f"got {size.base_components}."
        )
    layers = [
        autoregressive_layer(dim, size, residual=False, random_order=True)
        for _ in range(size.layers)
    ]
    base = ConditionalMixture(
        dim,
        size.conditional_components,
        hidden=size.hidden,
        blocks=size.blocks,
        residual=False,
        dropout=size.dropout,
        order=torch.randperm(dim, generator=own_generator()),
    )
    return Flow(layers, base)


ARCHITECTURES: dict[str, Callable[..., Flow]] = {
    "maf": maf,
    "made": made,
    "spline": spline,
    "coupling": coupling,
    "mixture": mixture,
}


def gaussian_mixture(dim: int, size: Architecture = Architecture()) -> MixtureDensity:
    """Make a plain mixture of ``base_components`` Gaussians: no flow, but trained as one."""
    return MixtureDensity.spread(dim, size.base_components)


DENSITIES: dict[str, Callable[..., Density]] = {
    **ARCHITECTURES,
    "gaussian_mixture": gaussian_mixture,
}
"""All that is chosen by name: the flows, and the mixture that they are compared with."""


def autoregressive_layer(
    dim: int,
    size: Architecture,
    *,
    residual: bool = True,
    context_dim: int = 0,
    univariate: Univariate | None = None,
    random_order: bool = False,
) -> AutoregressiveLayer:
    """Make an autoregressive layer, affine unless another family is given."""
    univariate = univariate or Affine()
    network = MaskedNetwork(
        dim,
        univariate.size,
        hidden=size.hidden,
        blocks=size.blocks,
        residual=residual,
        context_dim=context_dim,
        dropout=size.dropout,
        order=torch.randperm(dim, generator=own_generator()) if random_order else None,
    )
    return AutoregressiveLayer(network, univariate)


def interleave_lu(
    dim: int, count: int, layer: Callable[[], nn.Module], mixing: float = 0.0
) -> list[nn.Module]:
    """Put an LU layer before each of ``count`` layers."""
    return [part for _ in range(count) for part in (LULayer(dim, mixing), layer())]


def _with_lu(
    dim: int, size: Architecture, layer: Callable[[], nn.Module], mixing: float = 0.0
) -> Flow:
    layers, plain = interleave_lu(dim, size.layers, layer, mixing), size.base_components == 1
    return Flow(layers, StandardNormal(dim) if plain else gaussian_mixture(dim, size))
