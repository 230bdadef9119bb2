"""One section of the records: which runs it has, and how one is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.runs import Run

#: What tells one run from another; a section uses some of these.
KEYS = ("section", "estimator", "seed", "shape", "rows", "table", "noise")

Task = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes
    ----------
    name : str
        Its name for the command.
    estimators : tuple of str
        Which are run by default.
    seeds : tuple of int
        Default seeds.
    cells : mapping
        Values of every further key; all combinations are run.
    run : callable
        Makes one run, from its task and the folder of the data.
    """

    name: str
    estimators: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: Mapping[str, tuple[Any, ...]]
    run: Callable[[Task, Path], Run]

    def tasks(
        self, estimators: Sequence[str] | None = None, seeds: Sequence[int] | None = None
    ) -> list[Task]:
        """Return the runs of this section, or those of some estimators and seeds."""
        return [
            {"section": self.name, "estimator": estimator, "seed": seed}
            | dict(zip(self.cells, cell, strict=True))
            for cell in product(*self.cells.values())
            for estimator in (self.estimators if estimators is None else estimators)
            for seed in (self.seeds if seeds is None else seeds)
        ]
