"""The grid search on the wines: the whole grid on all folds, or successive halving over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.model_selection import ParameterGrid

from deconflow.reproduction.data import FILE_ORDER, WINES
from deconflow.reproduction.experiments import Row, Task
from deconflow.reproduction.paper import CHOSEN, GRID
from deconflow.reproduction.protocols import Protocol, Rung
from deconflow.reproduction.records import Key, Run

Settings = dict[str, Any]
TABLE, DRAWS = "grid", 50
KINDS = tuple(GRID)
SHORT = {
    "learning_rate": "lr",
    "n_layers": "prior",
    "posterior_layers": "posterior",
    "hidden": "hidden",
    "n_blocks": "blocks",
    "n_components": "components",
}
Make = Callable[[Sequence[tuple[Task, Settings]]], dict[Key, Run]]


def rungs_of(kind: str, protocol: Protocol) -> tuple[Rung, ...]:
    """Return the rounds of a search; XD is quick enough for its whole grid."""
    if kind == "flow" and protocol.rungs:
        return protocol.rungs
    return (Rung(len(ParameterGrid(GRID[kind])), protocol.folds, 0),)


@dataclass(frozen=True)
class Round:
    """A round of a search: its settings, the best first once it is whole."""

    rung: Rung
    points: list[Settings]
    whole: bool


def rounds(wine: str, kind: str, protocol: Protocol, runs: dict[Key, Run]) -> list[Round]:
    """Return the rounds of a search so far; the last is whole only if the search is done."""
    points, found = list(ParameterGrid(GRID[kind])), []
    for rung in rungs_of(kind, protocol):
        points = points[: rung.settings]
        whole = all(task.key in runs for task, _ in tasks_of(wine, kind, rung, points))
        if whole:
            points = sorted(points, key=lambda p: mean_score(wine, kind, rung, p, runs))
        found.append(Round(rung, points, whole))
        if not whole:
            break
    return found


def search(wine: str, kind: str, protocol: Protocol, make: Make) -> Settings:
    """Make all runs that a search asks for, round by round, and return the best settings."""
    runs = make([])
    while not (last := rounds(wine, kind, protocol, runs)[-1]).whole:
        runs = make(tasks_of(wine, kind, last.rung, last.points))
    return last.points[0]


def chosen(wine: str, kind: str, protocol: Protocol, runs: dict[Key, Run]) -> Settings | None:
    """Return what a search chose; None if it is not done."""
    last = rounds(wine, kind, protocol, runs)[-1]
    return last.points[0] if last.whole else None


def mean_score(wine: str, kind: str, rung: Rung, point: Settings, runs: dict[Key, Run]) -> float:
    """Return the mean of -log p(w) over the folds of a round."""
    scores = [runs[task.key]["minus_log_p_w"] for task, _ in tasks_of(wine, kind, rung, [point])]
    return sum(scores) / len(scores)


def tasks_of(
    wine: str, kind: str, rung: Rung, points: Iterable[Settings]
) -> list[tuple[Task, Settings]]:
    """Return the runs of a round, each with the settings that it tries."""
    return [
        (Task(TABLE, wine, _row(kind, rung, point), fold), point)
        for point in points
        for fold in range(rung.folds)
    ]


def settings_for(
    dataset: str, row: Row, protocol: Protocol, runs: dict[Key, Run]
) -> tuple[Settings, str]:
    """Return the settings of a wine's row, and where they are from.

    Those that the search chose; where it is not done or the row asks for it, those that the paper
    chose.
    """
    kind = kind_of(row)
    if kind is None:
        return {}, ""
    wine = dataset.removesuffix(FILE_ORDER)
    found = None if row.options.get("as_paper") else chosen(wine, kind, protocol, runs)
    return (found, "grid search") if found else (CHOSEN[wine, kind], "the paper's choice")


def kind_of(row: Row) -> str | None:
    """Return which of the searches a row has its settings from; None if from none."""
    return {"wine_flow": "flow", "wine_plain": "flow", "wine_xd": "xd"}.get(row.fit)


def whole_search() -> list[tuple[str, str]]:
    """Return every wine and kind of model that is searched."""
    return [(wine, kind) for wine in WINES for kind in KINDS]


def searches_named(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the searches of the wines and the kinds that are named, all if none is."""
    for word in words:
        if word not in (*WINES, *KINDS):
            known = ", ".join((*WINES, *KINDS))
            raise ValueError(f"Expected --rows of grid from {known}; got {word!r}.")
    wines, kinds = ([n for n in names if n in words] or names for names in (WINES, KINDS))
    return [(wine, kind) for wine, kind in whole_search() if wine in wines and kind in kinds]


def describe(point: Settings) -> str:
    """Return a short name for settings."""
    return " ".join(f"{SHORT[name]}={point[name]:g}" for name in SHORT if name in point)


def _row(kind: str, rung: Rung, point: Settings) -> Row:
    length = f" epochs={rung.epochs}" if rung.epochs else ""
    options = {"kind": kind, "n_draws": DRAWS, "epochs": rung.epochs}
    name = f"{kind} {describe(point)}{length}"
    return Row(name, name, "grid_point", options)
