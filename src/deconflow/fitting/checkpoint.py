"""Checkpoints: a fit that was interrupted goes on to the same result."""

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
from deconflow.checks import refuse_if
from deconflow.files import NoRoomError, replacing
from deconflow.fitting.settings import Training
from deconflow.objectives import RowData
from deconflow.randomness import Draws

UNREADABLE = (
    RuntimeError,
    EOFError,
    LookupError,
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
        How many share the fit, each with a state of its own: as many must go on.
    """

    def __init__(self, path: str | Path, identity: str, processes: int = 1) -> None:
        self.path, self.identity, self.processes = Path(path), identity, processes
        self.full = False

    def load(self) -> dict[str, Any] | None:
        """Return the saved state, or None if there is no file."""
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
        refuse_if(
            processes != self.processes,
            f"Expected as many processes to go on from {self.path} as wrote it, {processes}; "
            f"got {self.processes}. Start as many, or delete it to start anew.",
            UnusableCheckpointError,
        )
        refuse_if(
            identity != self.identity,
            f"Expected a checkpoint of the same model, settings and rows in {self.path}; "
            "got one of another fit. Delete it, or choose another path.",
            UnusableCheckpointError,
        )
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Write the state, all or nothing; a full disk is no reason to end a fit."""
        content = io.BytesIO()  # torch's own writer hides what the disk says
        torch.save({"identity": self.identity, "processes": self.processes, **state}, content)
        try:
            with replacing(self.path) as part:
                part.write_bytes(content.getbuffer())
        except NoRoomError:
            if not self.full:
                warnings.warn(
                    f"The disk has no room for the checkpoint {self.path}. The fit continues; an "
                    "interrupted one would go on from an older checkpoint, or begin anew. Make "
                    "room before the fit ends, so that its model can be written.",
                    FullDiskWarning,
                    stacklevel=2,
                )
            self.full = True

    def save_all(self, state: dict[str, Any]) -> None:
        """Write the states of all processes of a fit; the first process writes them."""
        states = ranks.gathered(state)
        if ranks.is_first():
            self.save({"states": states})

    def load_own(self) -> dict[str, Any] | None:
        """Return the saved state of this process, or None if there is no file."""
        saved = ranks.from_first(ranks.together(lambda: self.load() if ranks.is_first() else None))
        return None if saved is None else saved["states"][ranks.rank()]


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
