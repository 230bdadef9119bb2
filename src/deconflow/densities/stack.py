r"""Several flows of one architecture as one: their products are done together.

A small flow's step is mostly overhead; a stack of them pays it once.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from deconflow.densities.base import Density
from deconflow.densities.ensemble import Ensemble
from deconflow.densities.flow import Flow
from deconflow.densities.networks import MaskedLinear


class StackedLinear(nn.Module):
    """Masked linear layers side by side, one for each member: ``(members, ..., in)`` to out."""

    mask: Tensor

    def __init__(self, layers: list[MaskedLinear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))
        self.register_buffer("mask", torch.stack([layer.mask for layer in layers]))
        self.dense = all(layer.dense for layer in layers)

    def masked_weight(self) -> Tensor:
        """Return the weights, with exact zeros where the masks say so."""
        return self.weight if self.dense else self.weight * self.mask

    def forward(self, x: Tensor) -> Tensor:
        """Apply each member's masked weights to its own points."""
        rows = x.reshape(len(x), -1, x.shape[-1])
        y = torch.baddbmm(self.bias.unsqueeze(1), rows, self.masked_weight().mT)
        return y.view(*x.shape[:-1], -1)


class Stack(Density):
    """Flows of one architecture, each with its own weights and orders, on points of their own.

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
        for name in _linear_names(flows[0]):
            layers = [_linear(flow, name) for flow in flows]
            parent, _, last = name.rpartition(".")
            setattr(self.flow.get_submodule(parent), last, StackedLinear(layers))

    def log_prob(self, v: Tensor) -> Tensor:
        """Log density of ``(members, ..., dim)``, each member's of its own points."""
        return self.flow.log_prob(v)

    def sample(self, n: int) -> Tensor:
        """Draw ``(n, dim)`` from the members' average."""
        return Ensemble(list(self.flows())).sample(n)

    @torch.no_grad()
    def flows(self) -> list[Flow]:
        """Return the members, each on its own."""
        for name in _linear_names(self._templates[0]):
            stacked = self.flow.get_submodule(name)
            assert isinstance(stacked, StackedLinear)
            for member, flow in enumerate(self._templates):
                layer = _linear(flow, name)
                layer.weight.copy_(stacked.weight[member])
                layer.bias.copy_(stacked.bias[member])
        return [copy.deepcopy(flow).eval() for flow in self._templates]


def _linear_names(flow: Flow) -> list[str]:
    names = [name for name, part in flow.named_modules() if isinstance(part, MaskedLinear)]
    inside = {f"{name}.{own}" for name in names for own in ("weight", "bias")}
    others = [name for name, _ in flow.named_parameters() if name not in inside]
    if others:
        raise TypeError(f"Expected flows of masked linear layers only; got the weights {others}.")
    return names


def _linear(flow: Flow, name: str) -> MaskedLinear:
    part = flow.get_submodule(name)
    assert isinstance(part, MaskedLinear)
    return part
