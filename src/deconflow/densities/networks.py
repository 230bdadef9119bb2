r"""Masked networks: outputs for dimension ``d`` see only the dimensions before it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from deconflow.randomness import lend_generator, own_generator

START = 0.3
"""Outputs start small, as a share of what a linear layer has by default, so that flows start near
the identity. Not at zero: layers that all start alike may stay alike, at a poor fit."""


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
        factors = self.factors(x)
        return x if factors is None else x * factors

    def factors(self, like: Tensor) -> Tensor | None:
        """Draw what to multiply with, or None when nothing is dropped."""
        if not self.training or self.level == 0:
            return None
        words = torch.empty((like.numel() + 7) // 8, dtype=torch.int64, device=like.device)
        words.random_(torch.iinfo(torch.int64).min, None, generator=own_generator(like.device))
        numbers = words.view(torch.uint8)[: like.numel()].view(like.shape)
        # Compared as floats, in place: comparing bytes and converting the answers takes far longer.
        return numbers.to(like.dtype).ge_(self.level).mul_(256 / (256 - self.level))


class MaskedLinear(nn.Linear):
    """A linear layer some of whose weights are fixed at zero."""

    mask: Tensor

    def __init__(self, from_degrees: Tensor, to_degrees: Tensor) -> None:
        super().__init__(len(from_degrees), len(to_degrees))
        mask = to_degrees.unsqueeze(-1) >= from_degrees
        self.dense = bool(mask.all())
        self.register_buffer("mask", mask)

    def masked_weight(self) -> Tensor:
        """Return the weights, with exact zeros where the mask says so."""
        return self.weight if self.dense else self.weight * self.mask

    def forward(self, x: Tensor) -> Tensor:
        """Apply the masked weights."""
        return F.linear(x, self.masked_weight(), self.bias)


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
        bias = self.first.bias
        if self.context is not None:
            bias = bias + self.context(context)
        weights = self.first.masked_weight(), self.second.masked_weight()
        keep = self.dropout.factors(h)
        return _ResidualBlock.apply(h, weights[0], bias, weights[1], self.second.bias, keep)


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


class _ResidualBlock(Function):
    r"""The map :math:`h + W_2 (k \odot r(W_1 r(h) + b_1)) + b_2` with ReLU :math:`r`.

    ``h`` is ``(..., H)``; ``W1`` and ``W2`` are ``(H, H)``; ``b1`` is ``(H,)``, or ``(N, H)`` for
    ``h`` of shape ``(..., N, H)``; ``b2`` is ``(H,)``; ``keep`` are the factors of dropout,
    ``(..., H)``, or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        W1: Tensor,
        b1: Tensor,
        W2: Tensor,
        b2: Tensor,
        keep: Tensor | None,
    ) -> Tensor:
        active = F.relu(h)
        inner = torch.matmul(active, W1.mT).add_(b1).relu_()
        if keep is not None:
            inner.mul_(keep)
        ctx.save_for_backward(active, inner, W1, W2, keep)
        ctx.bias_shape = b1.shape
        flat = torch.addmm(_rows(h), _rows(inner), W2.mT)
        return flat.add_(b2).view(h.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        active, inner, W1, W2, keep = ctx.saved_tensors
        grad_W2, grad_b2 = _outer(grad, inner), grad.sum_to_size(W2.shape[:1])
        grad_inner = _mask_(torch.matmul(grad, W2), inner)
        if keep is not None:
            grad_inner.mul_(keep)
        grad_W1, grad_b1 = _outer(grad_inner, active), grad_inner.sum_to_size(ctx.bias_shape)
        grad_h = _mask_(torch.matmul(grad_inner, W1), active).add_(grad)
        return grad_h, grad_W1, grad_b1, grad_W2, grad_b2, None


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """Sum of the outer products of all rows."""
    return _rows(left).mT @ _rows(right)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _mask_(grad: Tensor, activated: Tensor) -> Tensor:
    """Set the gradient to zero where a ReLU was off, in place."""
    return torch.ops.aten.threshold_backward.grad_input(grad, activated, 0, grad_input=grad)
