r"""Normalizing flows: the density, named architectures of a few lines each, and stacks of flows."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from deconflow.checks import refuse_if
from deconflow.densities.base import (
    ConditionalMixture,
    Density,
    Ensemble,
    MixtureDensity,
    StandardNormal,
)
from deconflow.densities.layers import (
    Affine,
    AutoregressiveLayer,
    CouplingLayer,
    LULayer,
    MaskedLinear,
    MaskedNetwork,
    Spline,
    Univariate,
    compose,
)
from deconflow.randomness import own_generator

#: How much the linear layers of a flow with plain networks mix the dimensions at the start. After
#: some mixing every layer can change every dimension, whatever the order of the layers; where the
#: dimensions are only permuted, such networks may stay at a poor fit.
MIXING = 0.42


class Flow(Density):
    r"""The density of :math:`v = T^{-1}(u)` with :math:`u` from a base density.

    .. math:: \log p(v) = \log p_u(T(v)) + \log |\det \partial T(v) / \partial v|

    Parameters
    ----------
    layers
        The layers of ``T``, from ``v`` to ``u``.
    base
        The density of ``u``.
    """

    def __init__(self, layers: Sequence[nn.Module], base: Density) -> None:
        super().__init__()
        self.dim, self.base, self.layers = base.dim, base, nn.ModuleList(layers)

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(..., dim)``."""
        u, log_det = compose(self.layers).call_and_ladj(v)
        return self.base.log_prob(u) + log_det

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)``."""
        return compose(self.layers).inv(self.base.sample(n))


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
    refuse_if(
        size.base_components != 1,
        "Expected base_components=1 for the mixture flow, whose base is its own; "
        f"got {size.base_components}.",
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


#: All that is chosen by name: the flows, and the mixture that they are compared with.
DENSITIES: dict[str, Callable[..., Density]] = {
    **ARCHITECTURES,
    "gaussian_mixture": gaussian_mixture,
}


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


class StackedLinear(nn.Module):
    """Masked linear layers side by side, one for each member: ``(members, ..., in)`` to out."""

    mask: Tensor

    def __init__(self, layers: list[MaskedLinear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))
        self.register_buffer("mask", torch.stack([layer.mask for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each member's masked weights to its own points."""
        rows = x.reshape(len(x), -1, x.shape[-1])
        y = torch.baddbmm(self.bias.unsqueeze(1), rows, (self.weight * self.mask).mT)
        return y.view(*x.shape[:-1], -1)


class Stack(Density):
    """Flows of one architecture, each with its own weights and orders, on points of their own.

    A step of a small flow is mostly overhead; a stack pays it once for all members.

    Parameters
    ----------
    flows
        The members; flows whose only weights are those of masked linear layers.
    """

    def __init__(self, flows: list[Flow]) -> None:
        super().__init__()
        self.dim, self.members = flows[0].dim, len(flows)
        self.flow = copy.deepcopy(flows[0])
        self._templates = [copy.deepcopy(flow).requires_grad_(False) for flow in flows]
        for name, layers in self._layers():
            parent, _, last = name.rpartition(".")
            setattr(self.flow.get_submodule(parent), last, StackedLinear(layers))
        refuse_if(
            len(list(self.flow.parameters())) != 2 * len(list(self._layers())),
            "Expected flows of masked linear layers only; got other weights.",
            TypeError,
        )

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(members, ..., dim)``, each member's of its own points."""
        return self.flow.log_prob(v)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)`` from the members' average."""
        return Ensemble(list(self.flows())).sample(n)

    @torch.no_grad()
    def flows(self) -> list[Flow]:
        """Return the members, each on its own."""
        for name, layers in self._layers():
            stacked = cast(StackedLinear, self.flow.get_submodule(name))
            for layer, weight, bias in zip(layers, stacked.weight, stacked.bias, strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        return [copy.deepcopy(flow).eval() for flow in self._templates]

    def _layers(self) -> Iterator[tuple[str, list[MaskedLinear]]]:
        """Linear layers of all members, by name."""
        for name, part in self._templates[0].named_modules():
            if isinstance(part, MaskedLinear):
                yield (
                    name,
                    [cast(MaskedLinear, flow.get_submodule(name)) for flow in self._templates],
                )
