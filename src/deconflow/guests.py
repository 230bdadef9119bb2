"""Torch as callers have set it up: the devices that are there, and modes that change no answer."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from deconflow._limits import threads_at_most
from deconflow.extras import need


@contextmanager
def as_guest() -> Iterator[None]:
    """Compute as if the caller had set nothing, in this thread, and leave all as it was.

    Gradients are on, inference mode and autocast off. A default dtype or device other than torch's
    is overruled where tensors are made, since the dtype belongs to the process and may not be
    changed for a while; that costs a little for every call of torch. Without torch nothing is set.
    """
    torch = sys.modules.get("torch")
    with ExitStack() as stack:
        if torch is not None:
            stack.enter_context(torch.inference_mode(False))  # and gradients on
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            usual = torch.get_default_dtype() == torch.float32
            if not usual or torch.get_default_device().type != "cpu":
                from deconflow.torch_modes import UsualDefaults

                stack.enter_context(UsualDefaults())
        yield


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """Compute as a guest, in so many threads; say what a singular matrix means to a user."""
    with as_guest(), threads_at_most(threads):
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "Expected rows whose values are not exact copies of each other; got exact rows "
                "that measure the same combination twice. Drop a column, or give it noise."
            ) from error


def check_device(name: str) -> str:
    """Return the full name of a device that is there; the processor needs no torch.

    ``"auto"`` is a GPU where there is one. Of several processes on a machine, which torchrun
    numbers, each takes a GPU of its own for ``"cuda"`` and ``"auto"``, as far as there are so many.
    """
    if name == "cpu":
        return name
    torch = need("torch", f"device={name!r} needs it")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if not isinstance(name, str) or device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"Expected device to be 'cpu', 'cuda', 'cuda:0' or 'auto'; got {name!r}.")
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(
            f"Expected a device that is there; got {name!r} and {count} GPUs, counted from 0. "
            "Use 'auto'."
        )
    local = os.environ.get("LOCAL_RANK", "")
    shared = device.type == "cuda" and device.index is None and local.isdecimal()
    return f"cuda:{int(local) % count}" if shared else str(device)


def device_here(name: str) -> str:
    """Return the name of a device if it is there, and that of the processor if it is not."""
    try:
        check_device(name)
    except ModuleNotFoundError:
        return "cpu"
    except ValueError:
        return "cpu" if str(name).startswith("cuda") else name
    return name
