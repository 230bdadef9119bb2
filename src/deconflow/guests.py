"""A guest in others' programs: what they have set for torch does not change our answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

MAKE_FLOATS: frozenset[Callable[..., Any]] = frozenset({
    torch.empty, torch.zeros, torch.ones, torch.eye, torch.linspace, torch.rand, torch.randn,
})  # fmt: skip
MAKE_TENSORS = MAKE_FLOATS | {
    torch.tensor, torch.as_tensor, torch.full, torch.arange, torch.randint, torch.randperm,
    torch.tril_indices, torch.triu_indices,
}  # fmt: skip


class _UsualDefaults(TorchFunctionMode):
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


@contextmanager
def as_guest() -> Iterator[None]:
    """Compute as if the caller had set nothing, in this thread, and leave all as it was.

    Gradients are on, inference mode and autocast off. A default dtype or device other than torch's
    is overruled where tensors are made, since the dtype belongs to the process and may not be
    changed for a while; that costs a little for every call of torch.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # and gradients on
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        usual = torch.get_default_dtype() == torch.float32
        if not usual or torch.get_default_device().type != "cpu":
            stack.enter_context(_UsualDefaults())
        yield
