"""Settings and record of a fit."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from deconflow.checks import check_choice, check_integer, check_number

SCHEDULES = ("constant", "plateau", "cosine")
WHOLE_NUMBERS = {"epochs": 1, "batch_size": 1, "plateau_patience": 0, "patience": 1}
#: Upper ends of settings, all of at least zero, and which may not be zero.
NUMBERS = {
    "learning_rate": (math.inf, True),
    "learning_rate_end": (1, False),
    "plateau_factor": (1, True),
    "weight_decay": (math.inf, False),
    "clip_norm": (math.inf, True),
    "averaging": (1, False),
}


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
        check_choice("schedule", self.schedule, SCHEDULES)
        for name, lowest in WHOLE_NUMBERS.items():
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), lowest)
        for name, (high, open_low) in NUMBERS.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0, high, open_low=open_low)


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
