"""Modes and functions of torch: its usual defaults, generators of our own, slopes of arrays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from deconflow._types import Array
from deconflow.checks import as_array, like
from deconflow.randomness import own_generator

TAKE_A_GENERATOR: frozenset[Callable[..., Any]] = frozenset({
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli,
    torch.multinomial, torch.poisson, torch.binomial, torch._standard_gamma,
    torch._sample_dirichlet, Tensor.normal_, Tensor.uniform_, Tensor.random_, Tensor.bernoulli_,
    Tensor.exponential_, Tensor.cauchy_, Tensor.geometric_, Tensor.log_normal_, Tensor.bernoulli,
    Tensor.multinomial, nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_,
})  # fmt: skip
#: These take no generator before torch 2.10, but what fills an empty tensor does.
FILL_LIKE: dict[Any, Callable[..., Any]] = {
    torch.rand_like: Tensor.uniform_,
    torch.randn_like: Tensor.normal_,
    torch.randint_like: Tensor.random_,
}
MAKE_FLOATS: frozenset[Callable[..., Any]] = frozenset({
    torch.empty, torch.zeros, torch.ones, torch.eye, torch.linspace, torch.rand, torch.randn,
})  # fmt: skip
MAKE_TENSORS = MAKE_FLOATS | {
    torch.tensor, torch.as_tensor, torch.full, torch.arange, torch.randint, torch.randperm,
    torch.tril_indices, torch.triu_indices,
}  # fmt: skip


class UsualDefaults(TorchFunctionMode):
    """New tensors are single precision in main memory, where nothing else is said."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in MAKE_TENSORS and kwargs.get("device") is None:
            kwargs["device"] = args[0].device if isinstance(args[0], Tensor) else "cpu"
        if func in MAKE_FLOATS and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.float32
        return func(*args, **kwargs)


class _LendGenerator(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in FILL_LIKE:
            made = torch.empty_like(args[0], **kwargs)
            return FILL_LIKE[func](made, *args[1:], generator=own_generator(made.device))
        if func in TAKE_A_GENERATOR and kwargs.get("generator") is None:
            like = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            kwargs["generator"] = own_generator(
                kwargs.get("device") or ("cpu" if like is None else like.device)
            )
        return func(*args, **kwargs)


@contextmanager
def lend_generator() -> Iterator[None]:
    """Let code that names no generator draw with our own: layers of torch, distributions of users.

    It costs a little for every call of torch in the block, and nothing outside.
    """
    # Outside every call torch's own generator is used, which needs no help.
    with nullcontext() if own_generator() is None else _LendGenerator():
        yield


class ByDifferences(torch.autograd.Function):
    """A function of numpy, value by value, with its slope by differences of a step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Array], Array], step: Array) -> Tensor:
        """Values of the function."""
        ctx.function, ctx.step = function, step
        ctx.save_for_backward(x)
        return like(function(as_array(x)), x)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None]:
        """Slopes by central differences, one-sided where one of the points has no number."""
        (x,) = ctx.saved_tensors
        middle, step = as_array(x), ctx.step
        here, below, above = (ctx.function(middle + s) for s in (0 * step, -step, step))
        with np.errstate(invalid="ignore"):
            both, left, right = (above - below) / (2 * step), here - below, above - here
        one_side = np.where(np.isfinite(left), left, right) / step
        slope = np.where(np.isfinite(both), both, one_side)
        return grad[0] * like(np.where(np.isfinite(slope), slope, 0.0), x), None, None
