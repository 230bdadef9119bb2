"""A run with all that it needs, and what comes out of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deconflow.reproduction import data
from deconflow.reproduction.data import Sample
from deconflow.reproduction.experiments import Row, Task
from deconflow.reproduction.protocols import Protocol

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """What one process works at.

    Attributes
    ----------
    task : Task
        What to run.
    protocol : Protocol
        How.
    data : Path
        Folder of the wines.
    work : Path
        Folder for what is only needed until the run is done.
    settings : dict
        What the grid search chose for this row; empty for rows without a grid.
    """

    task: Task
    protocol: Protocol
    data: Path
    work: Path
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of the fit, and of a wine's split."""
        return self.task.seed

    def checkpoint(self, part: str = "fit") -> Path:
        """Return where an interrupted part of the run goes on from."""
        return self.work / f"{self.task.stem}.{part}.checkpoint"

    def toy(self) -> Sample:
        """Draw the toy, the same for all seeds: training with validation rows, and test rows."""
        rows = self.protocol.train_rows + self.protocol.validation_rows
        return data.toy(rows, self.protocol.test_rows)

    def wine(self) -> Sample:
        """Split and blur the wine of this run."""
        sample = data.wine(self.task.dataset, self.seed, self.data)
        most = self.protocol.wine_rows
        return sample if most is None else Sample(sample.train[:most], sample.test, sample.noise)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "task": asdict(self.task),
            "protocol": self.protocol.as_dict(),
            "data": str(self.data),
            "work": str(self.work),
            "settings": self.settings,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what :meth:`as_dict` wrote."""
        task = Task(**{**values["task"], "row": Row(**values["task"]["row"])})
        protocol = Protocol.from_dict(values["protocol"])
        return cls(task, protocol, Path(values["data"]), Path(values["work"]), values["settings"])


@dataclass(frozen=True)
class Outcome:
    """A fitted model's scores, the settings it was fitted with, and what else is recorded.

    ``draws`` of prior and posterior are kept for the figures.
    """

    scores: dict[str, float | None]
    settings: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)
    draws: dict[str, Array] = field(default_factory=dict)
