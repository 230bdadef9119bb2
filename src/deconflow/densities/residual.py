r"""A residual block with a backward pass of its own.

Autograd's version of the block allocates a new array for every activation, mask and sum; at the
sizes of flows those cost as much as the matrix products. This one reuses its arrays.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def residual_block(
    h: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor, keep: Tensor | None = None
) -> Tensor:
    r"""Return :math:`h + W_2 (k \odot r(W_1 r(h) + b_1)) + b_2` with ReLU :math:`r`.

    Parameters
    ----------
    h
        ``(..., H)``.
    W1, W2
        ``(H, H)``.
    b1
        ``(H,)``, or ``(N, H)`` for ``h`` of shape ``(..., N, H)``.
    b2
        ``(H,)``.
    keep
        Factors of dropout, ``(..., H)``, or None.
    """
    return _ResidualBlock.apply(h, W1, b1, W2, b2, keep)


class _ResidualBlock(Function):
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
