"""Chains that are finished, kept in a file: an interrupted fit goes on with the others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from deconflow._types import Array
from deconflow.fitting import Checkpoint
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.xd import Chain, lay_out

PARTS = ("weights", "means", "covariances")


class FinishedChains:
    """The chains of a fit by the number of their fold; kept in a file, if there is a path."""

    def __init__(self, path: str | Path | None, data: Observations, settings: str) -> None:
        self._done: dict[int, list[Chain]] = {}
        self._lock, self._file = Lock(), None
        if path is not None:
            self._file = Checkpoint(path, _identity(data, settings))
            state = self._file.load() or {}
            self._done = {
                fold: [_unpacked(each) for each in chains]
                for fold, chains in state.get("folds", {}).items()
            }

    def get(self, fold: int) -> list[Chain] | None:
        """Return the chains of a fold, or None if they are not finished."""
        return self._done.get(fold)

    def add(self, fold: int, chains: list[Chain]) -> None:
        """Keep the chains of one more fold."""
        with self._lock:
            self._done[fold] = chains
            if self._file is not None:
                packed = {f: [_packed(chain) for chain in these] for f, these in self._done.items()}
                self._file.save({"folds": packed})


def joined(mixtures: Sequence[GaussianMixture]) -> tuple[list[int], dict[str, torch.Tensor]]:
    """Sizes of mixtures, and their parts one after another."""
    parts = {
        name: torch.from_numpy(np.concatenate([getattr(each, name) for each in mixtures]))
        for name in PARTS
    }
    return [each.n_components for each in mixtures], parts


def parted(sizes: Sequence[int], parts: dict[str, Array]) -> list[GaussianMixture]:
    """Take apart what :func:`joined` put together."""
    edges = np.cumsum(sizes)[:-1]
    pieces = (np.split(parts[name], edges) for name in PARTS)
    return [GaussianMixture(*each) for each in zip(*pieces, strict=True)]


def _packed(chain: Chain) -> dict[str, Any]:
    sizes, parts = joined(chain.snapshots)
    traces = {"log_p": torch.from_numpy(chain.log_p), "used": torch.from_numpy(chain.used)}
    return {"floor": chain.floor, "sizes": sizes, **parts, **traces}


def _unpacked(state: dict[str, Any]) -> Chain:
    snapshots = parted(state["sizes"], {name: state[name].numpy() for name in PARTS})
    return Chain(state["floor"], snapshots, state["log_p"].numpy(), state["used"].numpy())


def _identity(data: Observations, settings: str) -> str:
    """Digest of the settings and of the rows as the kernel sees them."""
    digest = hashlib.sha256(settings.encode())
    rows = lay_out(data)
    for block in rows.blocks:
        law = block.common
        arrays = [block.w, block.s, block.log_share, block.omega, block.projection]
        arrays += [] if law is None else [law.weights, law.means, law.covariances]
        for array in (*arrays, rows.units.scale.numpy()):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
