"""Chains that are finished, kept in a file: an interrupted fit goes on with the others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from deconflow.estimators.saved_values import joined, parted
from deconflow.fitting import Checkpoint
from deconflow.observations import Observations
from deconflow.xd import Chain, lay_out


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


def _packed(chain: Chain) -> dict[str, Any]:
    sizes, parts = [each.n_components for each in chain.snapshots], joined(chain.snapshots)
    traces = {"log_p": torch.from_numpy(chain.log_p), "used": torch.from_numpy(chain.used)}
    return {"floor": chain.floor, "sizes": sizes, **parts, **traces}


def _unpacked(state: dict[str, Any]) -> Chain:
    snapshots = parted(state, state["sizes"], state["means"].shape[1])
    return Chain(state["floor"], snapshots, state["log_p"].numpy(), state["used"].numpy())


def _identity(data: Observations, settings: str) -> str:
    """Digest of the settings and of the rows as the kernel sees them."""
    digest = hashlib.sha256(settings.encode())
    if data.groups is not None:  # they make the folds
        digest.update(data.groups.numpy().tobytes())
    rows = lay_out(data)
    for block in rows.blocks:
        law = block.common
        arrays = [block.index, block.w, block.s, block.log_share, block.omega, block.projection]
        arrays += [] if law is None else [law.weights, law.means, law.covariances]
        for array in (*arrays, rows.units.scale.numpy()):
            said = np.ascontiguousarray([] if array is None else array)
            digest.update(repr((block.kind, said.shape)).encode() + said.tobytes())
    return digest.hexdigest()
