"""Where to compute."""

from __future__ import annotations

import os

import torch


def resolve_device(name: str) -> torch.device:
    """Turn ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"`` into a device that is there.

    Of several processes on a machine, which torchrun numbers, each takes a GPU of its own for
    ``"cuda"`` and ``"auto"``, as far as there are so many.
    """
    if not isinstance(name, str):
        raise ValueError(f"Expected device to be 'cpu', 'cuda' or 'auto'; got {name!r}.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"Expected device to be 'cpu', 'cuda' or 'auto'; got {name!r}.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"Expected a device that is there; got {name!r} and no CUDA. Use 'auto'.")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"Expected a device such as 'cpu' or 'cuda:0'; got {name!r}.") from error
    return device if device.type == "cpu" else _gpu(device)


def _gpu(device: torch.device) -> torch.device:
    """Check that there is such a GPU; choose one where none was named."""
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise ValueError(
            f"Expected a device that is there; got '{device}' and {count} GPUs, counted from 0."
        )
    local = os.environ.get("LOCAL_RANK", "")
    if device.index is None and local.isdecimal():
        return torch.device("cuda", int(local) % count)
    return device


def device_here(name: str) -> str:
    """Return the name of a device if it is there, and that of the processor if it is not."""
    try:
        resolve_device(name)
    except ValueError:
        return "cpu" if str(name).startswith("cuda") else name
    return name
