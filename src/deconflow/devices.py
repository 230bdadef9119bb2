"""Where to compute."""

from __future__ import annotations

import torch


def resolve_device(name: str) -> torch.device:
    """Turn ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"`` into a device that is there."""
    if not isinstance(name, str):
        raise ValueError(f"Expected device to be 'cpu', 'cuda' or 'auto'; got {name!r}.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"Expected device to be 'cpu', 'cuda' or 'auto'; got {name!r}.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"Expected a device that is there; got {name!r} and no CUDA. Use 'auto'.")
    return torch.device(name)
