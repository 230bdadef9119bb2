"""Settings and record of a fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from deconflow.checks import check_integer, check_number

SCHEDULES = ("constant", "plateau", "cosine")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train.

    Attributes
    ----------
    epochs : int
        Passes through the rows, at most.
    batch_size : int
        Rows per step.
    learning_rate : float
        Adam's step size, at the start.
    schedule : str
        ``"constant"``; ``"plateau"``: times ``plateau_factor`` after ``plateau_patience`` epochs
        without a better validation objective; ``"cosine"``: down over all epochs.
    learning_rate_end : float
        Where the cosine ends, as a share of where it starts.
    weight_decay : float
        Decoupled weight decay (AdamW).
    clip_norm : float or None
        Largest gradient norm.
    averaging : float or None
        Decay of the running average of the weights that is kept in place of the last ones.
    patience : int or None
        Stop after so many epochs without a better validation objective; None to go on.
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    learning_rate_end: float = 0.0
    plateau_factor: float = 0.8
    plateau_patience: int = 20
    weight_decay: float = 0.0
    clip_norm: float | None = 5.0
    averaging: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"Expected schedule to be one of {SCHEDULES}; got {self.schedule!r}.")
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_integer("plateau_patience", self.plateau_patience, 0)
        check_number("learning_rate", self.learning_rate, 0, open_low=True)
        check_number("learning_rate_end", self.learning_rate_end, 0, 1)
        check_number("plateau_factor", self.plateau_factor, 0, 1, open_low=True)
        check_number("weight_decay", self.weight_decay, 0)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, 0, open_low=True)
        if self.averaging is not None:
            check_number("averaging", self.averaging, 0, 1)
        if self.patience is not None:
            check_integer("patience", self.patience, 1)


@dataclass
class History:
    """What happened, epoch by epoch; objectives are per-row means, larger is better."""

    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    skipped_steps: int = 0
    best_epoch: int | None = None
    stopped_early: bool = False

    def __len__(self) -> int:
        return len(self.train)

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, for JSON."""
        return asdict(self)
