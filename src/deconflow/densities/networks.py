r"""Masked networks: outputs for dimension ``d`` see only the dimensions before it."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deconflow.randomness import own_generator
from deconflow.torch_modes import lend_generator

#: Outputs start small, as a share of what a linear layer has by default, so that flows start near
#: the identity. Not at zero: layers that all start alike may stay alike, at a poor fit.
START = 0.3


class Dropout(nn.Module):
    """Dropout from random bytes: eight decisions for each number that is drawn.

    torch draws one float for every element, which on a CPU costs more than the matrix product
    beside it. A byte decides with a probability rounded to 1/256, and the kept values are
    divided by exactly that probability, so the mean is kept.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.level = min(255, round(256 * p))

    def forward(self, x: Tensor) -> Tensor:
        """Drop values while training."""
        if not self.training or self.level == 0:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(torch.iinfo(torch.int64).min, None, generator=own_generator(x.device))
        numbers = words.view(torch.uint8)[: x.numel()].view(x.shape)
        # Compared as floats, in place: comparing bytes and converting the answers takes far longer.
        return x * numbers.to(x.dtype).ge_(self.level).mul_(256 / (256 - self.level))


class MaskedLinear(nn.Linear):
    """A linear layer some of whose weights are fixed at zero."""

    mask: Tensor

    def __init__(self, from_degrees: Tensor, to_degrees: Tensor) -> None:
        super().__init__(len(from_degrees), len(to_degrees))
        mask = to_degrees.unsqueeze(-1) >= from_degrees
        self.dense = bool(mask.all())
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the weights, with exact zeros where the mask says so."""
        weight = self.weight if self.dense else self.weight * self.mask
        return F.linear(x, weight, self.bias)


class ResidualBlock(nn.Module):
    r"""Pre-activation residual block :math:`h + W_2 r(W_1 r(h) + b_1 + C c)` with ReLU :math:`r`.

    The last term lets a context ``c`` in. With equal degrees for all hidden layers the addition
    keeps the mask (ResMADE).

    References
    ----------
    He et al. (2016), https://arxiv.org/abs/1603.05027;
    Nash and Durkan (2019), https://arxiv.org/abs/1904.05626
    """

    def __init__(self, degrees: Tensor, context_dim: int, dropout: float) -> None:
        super().__init__()
        self.first = MaskedLinear(degrees, degrees)
        self.second = MaskedLinear(degrees, degrees)
        self.context = nn.Linear(context_dim, len(degrees), bias=False) if context_dim else None
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, context: Tensor | None) -> Tensor:
        """Add the block's answer to ``h``."""
        inner = self.first(F.relu(h))
        if self.context is not None:
            inner = inner + self.context(context)
        return h + self.second(self.dropout(F.relu(inner)))


class DenseBlock(nn.Module):
    """A plain hidden layer, as in MADE (Germain et al. 2015, https://arxiv.org/abs/1502.03509)."""

    def __init__(self, degrees: Tensor, context_dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = MaskedLinear(degrees, degrees)
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, context: Tensor | None) -> Tensor:
        """Activate, then mix."""
        return self.linear(self.dropout(F.relu(h)))


class MaskedNetwork(nn.Module):
    """An autoregressive network with ``outputs`` numbers for each of ``dim`` dimensions.

    Parameters
    ----------
    dim
        Number of dimensions.
    outputs
        How many numbers each dimension gets.
    hidden
        Width of the hidden layers.
    blocks
        Number of hidden blocks.
    residual
        Residual blocks (ResMADE), or plain layers (MADE).
    context_dim
        Size of a context that every output sees; 0 for none.
    dropout
        Probability of dropout inside the blocks.
    order
        ``(dim,)``: the place of each dimension in the order; natural if None.
    """

    places: Tensor

    @lend_generator()
    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        hidden: int,
        blocks: int,
        residual: bool,
        context_dim: int = 0,
        dropout: float = 0.0,
        order: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.outputs = dim, outputs
        places = torch.arange(dim) if order is None else order
        self.register_buffer("places", places)
        degrees = _hidden_degrees(dim, hidden, with_context=context_dim > 0)
        make = ResidualBlock if residual else DenseBlock
        self.input = MaskedLinear(places + 1, degrees)
        self.context = nn.Linear(context_dim, hidden, bias=False) if context_dim else None
        self.blocks = nn.ModuleList(make(degrees, context_dim, dropout) for _ in range(blocks))
        self.output = MaskedLinear(degrees, places.repeat_interleave(outputs))
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.output.weight.mul_(START)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Map ``(..., dim)`` and a context ``(..., context_dim)`` to ``(..., dim, outputs)``."""
        h = self.input(x)
        if self.context is not None:
            h = h + self.context(context)
        for block in self.blocks:
            h = block(h, context)
        return self.output(F.relu(h)).unflatten(-1, (self.dim, self.outputs))


class ResidualNetwork(nn.Module):
    """A residual network without masks, from features to an embedding."""

    @lend_generator()
    def __init__(
        self, inputs: int, outputs: int, *, hidden: int, blocks: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        degrees = torch.zeros(hidden)
        self.input = nn.Linear(inputs, hidden)
        self.blocks = nn.ModuleList(ResidualBlock(degrees, 0, dropout) for _ in range(blocks))
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., inputs)`` to ``(..., outputs)``."""
        h = self.input(x)
        for block in self.blocks:
            h = block(h, None)
        return self.output(F.relu(h))


def _hidden_degrees(dim: int, hidden: int, *, with_context: bool) -> Tensor:
    """Spread degrees over hidden units: a unit of degree ``d`` sees the first ``d`` dimensions.

    Degree 0 sees the context only. Without one it would be a constant, so it is left out.
    """
    lowest = 0 if with_context or dim == 1 else 1
    return torch.arange(hidden) % max(dim - lowest, 1) + lowest


def as_arrays(module: nn.Module) -> dict[str, Any]:
    """Return the weights of a module as arrays of numpy."""
    return {name: each.detach().cpu().numpy() for name, each in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Put in the weights that :func:`as_arrays` gave."""
    module.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
