"""Guests in others' programs: what they have set for torch does not change our answers."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def as_guest() -> Iterator[None]:
    """Compute as if the caller had set nothing, in this thread, and leave all as it was.

    Gradients are on, inference mode and autocast off. A default dtype or device other than torch's
    is overruled where tensors are made, since the dtype belongs to the process and may not be
    changed for a while; that costs a little for every call of torch. Without torch nothing is set.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # and gradients on
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        usual = torch.get_default_dtype() == torch.float32
        if not usual or torch.get_default_device().type != "cpu":
            from deconflow.torch_modes import UsualDefaults

            stack.enter_context(UsualDefaults())
        yield
