"""Checkpoints: a fit that was interrupted goes on to the same result."""

from __future__ import annotations

import hashlib
import io
import pickle
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deconflow import ranks
from deconflow.files import NoRoomError, replacing
from deconflow.fitting.settings import Training
from deconflow.objectives import RowData
from deconflow.randomness import Draws

UNREADABLE = (
    RuntimeError,
    EOFError,
    KeyError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
)


class UnusableCheckpointError(ValueError):
    """A checkpoint that cannot be read, or that another fit has left."""


class FullDiskWarning(UserWarning):
    """A checkpoint could not be written, because the disk is full."""


class Checkpoint:
    """A file that holds the state of a fit after its last whole epoch.

    Parameters
    ----------
    path
        Where to write; replaced in one move, so that a crash leaves the one before.
    identity
        A digest of what is fitted; a file of another fit is refused.
    processes
        How many share the fit, if each goes on from a file of its own: as many must go on.
    """

    def __init__(self, path: str | Path, identity: str, processes: int = 1) -> None:
        self.path, self.identity, self.processes = Path(path), identity, processes
        self.full = False

    def load(self) -> dict[str, Any] | None:
        """Return the saved state, or None if there is no file."""
        if self.path.is_dir():
            raise ValueError(f"Expected a file as checkpoint; got the folder {self.path}.")
        if not self.path.exists():
            return None
        try:
            with warnings.catch_warnings(action="ignore"):
                state = torch.load(self.path, map_location="cpu", weights_only=True)
            identity, processes = state.pop("identity"), state.pop("processes", 1)
        except UNREADABLE as error:
            raise UnusableCheckpointError(
                f"Expected a checkpoint in {self.path}; got a file that cannot be read. "
                "Delete it to start anew."
            ) from error
        if processes != self.processes:
            raise UnusableCheckpointError(
                f"Expected {_processes(processes)} to go on from {self.path}, as those that wrote "
                f"it; got {self.processes}. Start as many, or delete it to start anew."
            )
        if identity != self.identity:
            raise UnusableCheckpointError(
                f"Expected a checkpoint of the same model, settings and rows in {self.path}; "
                "got one of another fit. Delete it, or choose another path."
            )
        return state

    def save(self, state: dict[str, Any]) -> bool:
        """Write the state, all or nothing; a full disk is no reason to end a fit.

        The answer is whether it was written.
        """
        content = io.BytesIO()  # torch's own writer hides what the disk says
        torch.save({"identity": self.identity, "processes": self.processes, **state}, content)
        try:
            with replacing(self.path) as part:
                part.write_bytes(content.getbuffer())
            return True
        except NoRoomError:
            if not self.full:
                warnings.warn(
                    f"The disk has no room for the checkpoint {self.path}. The fit goes on; an "
                    "interrupted one would go on from an older checkpoint, or begin anew. Make "
                    "room before the fit ends, so that its model can be written.",
                    FullDiskWarning,
                    stacklevel=2,
                )
            self.full = True
            return False


class SharedCheckpoint:
    """The checkpoint of a fit by any number of processes, each of which keeps its own chains.

    The first process writes the file that users name, the others write files beside it, each the
    last two epochs in turn. The first one's comes last, once all others are written: it says which
    of theirs belong to it, and a crash at any time leaves the files of a whole epoch.
    """

    def __init__(self, path: str | Path, identity: str) -> None:
        self.path, self.identity = Path(path), identity
        self._files = [self._file(turn) for turn in ("a", "b")]

    def _file(self, turn: str) -> Checkpoint:
        beside = f"{self.path.name}.{ranks.rank()}-of-{ranks.world()}{turn}"
        path = self.path if ranks.is_first() else self.path.with_name(beside)
        return Checkpoint(path, self.identity, ranks.world())

    def save(self, epoch: int, state: dict[str, Any]) -> None:
        """Write the state after an epoch."""
        file, state = self._files[epoch % 2], {"epoch": epoch, **state}
        written = ranks.is_first() or file.save(state)
        if all(ranks.gathered(written)) and ranks.is_first():
            file.save(state)

    def load(self) -> dict[str, Any] | None:
        """Return this process's saved state, or None if there is no file."""
        first = ranks.together(lambda: self._files[0].load() if ranks.is_first() else None)
        epoch = ranks.from_first(None if first is None else first.get("epoch", 0))
        if epoch is None:
            return None
        return ranks.together(lambda: first if ranks.is_first() else self._beside(epoch))

    def _beside(self, epoch: int) -> dict[str, Any]:
        """Return what a process other than the first has saved after an epoch."""
        file = self._files[epoch % 2]
        state = file.load()
        if state is None or state["epoch"] != epoch:
            raise UnusableCheckpointError(
                f"Expected {file.path} beside {self.path}, of the same epoch; got "
                f"{'no such file' if state is None else 'one of another'}. Bring it back, or "
                f"delete {self.path} to start anew."
            )
        return state


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def identity_of(objective: nn.Module, data: RowData, training: Training) -> str:
    """Digest the initial weights, the settings and the rows' initial objective.

    The objective of a few rows, drawn with fixed random numbers, stands for the data: it changes
    with their values, their noise and everything else that matters to the fit.
    """
    digest = hashlib.sha256(repr((asdict(training), len(data), str(objective))).encode())
    for tensor in (*objective.parameters(), *objective.buffers()):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    like = next(objective.parameters())
    some = data[:: max(1, len(data) // 64)].to(dtype=like.dtype, device=like.device)
    was_training = objective.training
    with torch.no_grad(), Draws(0).in_use():
        digest.update(objective.eval()(some).cpu().numpy().tobytes())
    objective.train(was_training)
    return digest.hexdigest()
