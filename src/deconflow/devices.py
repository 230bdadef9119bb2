"""Where to compute."""

import os
from typing import TYPE_CHECKING

from deconflow.extras import need

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> "torch.device":
    """Turn ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"`` into a device that is there.

    Of several processes on a machine, which torchrun numbers, each takes a GPU of its own for
    ``"cuda"`` and ``"auto"``, as far as there are so many.
    """
    torch = need("torch", f"device={name!r} needs it")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if not isinstance(name, str) or device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"Expected device to be 'cpu', 'cuda', 'cuda:0' or 'auto'; got {name!r}.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(
            f"Expected a device that is there; got {name!r} and {count} GPUs, counted from 0. "
            "Use 'auto'."
        )
    local = os.environ.get("LOCAL_RANK", "")
    if device.type == "cuda" and device.index is None and local.isdecimal():
        return torch.device("cuda", int(local) % count)
    return device


def check_device(name: str) -> str:
    """Return the full name of a device that is there; the processor needs no torch."""
    return name if name == "cpu" else str(resolve_device(name))


def device_here(name: str) -> str:
    """Return the name of a device if it is there, and that of the processor if it is not."""
    try:
        check_device(name)
    except ModuleNotFoundError:
        return "cpu"
    except ValueError:
        return "cpu" if str(name).startswith("cuda") else name
    return name
