"""Chains that are finished, kept in a file: an interrupted fit goes on with the others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from deconflow.fitting import Checkpoint
from deconflow.observations import Observations
from deconflow.saving import from_json, to_json
from deconflow.xd import Chain, lay_out


class FinishedChains:
    """The chains of a fit by the number of their fold; kept in a file, if there is a path."""

    def __init__(self, path: str | Path | None, data: Observations, settings: str) -> None:
        self._done: dict[int, list[Chain]] = {}
        self._lock, self._file = Lock(), None
        if path is not None:
            self._file = Checkpoint(path, _identity(data, settings))
            state = self._file.load()
            if state is not None:
                arrays = {name: array.numpy() for name, array in state["arrays"].items()}
                self._done = from_json(state["folds"], dict[int, list[Chain]], arrays, "folds")

    def get(self, fold: int) -> list[Chain] | None:
        """Return the chains of a fold, or None if they are not finished."""
        return self._done.get(fold)

    def add(self, fold: int, chains: list[Chain]) -> None:
        """Keep the chains of one more fold."""
        with self._lock:
            self._done[fold] = chains
            if self._file is not None:
                arrays: dict[str, Any] = {}
                folds = to_json(self._done, arrays, "folds")
                tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
                self._file.save({"folds": folds, "arrays": tensors})


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
