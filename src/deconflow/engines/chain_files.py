"""Chains that are finished, kept in a file: an interrupted fit goes on with the others."""

import hashlib
import json
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from deconflow.files import replacing
from deconflow.observations import Observations
from deconflow.saving import from_json, to_json
from deconflow.xd import Chain, lay_out


class FinishedChains:
    """The chains of a fit by the number of their fold; kept in a file, if there is a path."""

    def __init__(self, path: str | Path | None, data: Observations, settings: str) -> None:
        self._done: dict[int, list[Chain]] = {}
        self._lock, self._path = Lock(), None if path is None else Path(path)
        if self._path is not None:
            self._identity = _identity(data, settings)
            self._done = self._read(self._path)

    def get(self, fold: int) -> list[Chain] | None:
        """Return the chains of a fold, or None if they are not finished."""
        return self._done.get(fold)

    def add(self, fold: int, chains: list[Chain]) -> None:
        """Keep the chains of one more fold."""
        with self._lock:
            self._done[fold] = chains
            if self._path is not None:
                arrays: dict[str, Any] = {}
                text = json.dumps([self._identity, to_json(self._done, arrays, "folds")])
                with replacing(self._path) as part, part.open("wb") as file:
                    np.savez(file, text=np.array(text), **arrays)

    def _read(self, path: Path) -> dict[int, list[Chain]]:
        """Read a file of the same fit; there are no chains without one."""
        if path.is_dir():
            raise ValueError(f"Expected a file as checkpoint; got the folder {path}.")
        if not path.exists():
            return {}
        try:
            with np.load(path, allow_pickle=False) as arrays:
                identity, packed = json.loads(str(arrays["text"]))
                found = from_json(packed, dict[int, list[Chain]], dict(arrays), "folds")
        except Exception as error:
            raise ValueError(
                f"Expected a checkpoint in {path}; got a file that cannot be read. "
                "Delete it to start anew."
            ) from error
        if identity != self._identity:
            raise ValueError(
                f"Expected a checkpoint of the same model, settings and rows in {path}; "
                "got one of another fit. Delete it, or choose another path."
            )
        return found


def _identity(data: Observations, settings: str) -> str:
    """Digest of the settings and of the rows as the kernel sees them."""
    digest = hashlib.sha256(settings.encode())
    if data.groups is not None:  # they make the folds
        digest.update(np.asarray(data.groups).tobytes())
    rows = lay_out(data)
    for block in rows.blocks:
        index = np.arange(rows.n_rows)[block.index]
        arrays = [index, block.w, block.s, block.log_share, block.omega, block.projection]
        for array in (*arrays, *(block.common or ()), rows.units.scale):
            said = np.ascontiguousarray([] if array is None else array)
            digest.update(repr((block.kind, said.shape)).encode() + said.tobytes())
    return digest.hexdigest()
