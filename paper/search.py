"""The grid search on the wines: the whole grid on all folds, or successive halving over it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.model_selection import ParameterGrid

from paper.protocols import (
    CHOSEN,
    FILE_ORDER,
    GRID,
    WINES,
    Protocol,
    Row,
    Rung,
    Task,
    W,
)
from paper.runs import Runs

Settings = dict[str, Any]
NAME, DRAWS = "grid", 50
SEARCHES = [(wine, kind) for wine in WINES for kind in GRID]
SHORT = {
    "learning_rate": "lr",
    "n_layers": "prior",
    "posterior_layers": "posterior",
    "hidden": "hidden",
    "n_blocks": "blocks",
    "n_components": "components",
}


@dataclass(frozen=True)
class Round:
    """A round of a search: its settings, the best first once all of its runs are there."""

    rung: Rung
    points: list[Settings]
    done: bool


def rounds(wine: str, kind: str, protocol: Protocol, runs: Runs) -> list[Round]:
    """Return the rounds of a search so far; the last is done only if the search is."""
    points, found = list(ParameterGrid(GRID[kind])), []
    whole = Rung(len(points), protocol.folds, 0)  # for which XD is quick enough
    for rung in (protocol.rungs if kind == "flow" else ()) or (whole,):
        points = points[: rung.settings]
        done = all(task.key in runs for task, _ in tasks_of(wine, kind, rung, points))
        if done:
            points = sorted(points, key=lambda p: mean_score(wine, kind, rung, p, runs))
        found.append(Round(rung, points, done))
        if not done:
            break
    return found


def search(
    wine: str,
    kind: str,
    protocol: Protocol,
    make: Callable[[Sequence[tuple[Task, Settings]]], Runs],
) -> None:
    """Make all runs that a search asks for, round by round."""
    runs = make([])
    while not (last := rounds(wine, kind, protocol, runs)[-1]).done:
        runs = make(tasks_of(wine, kind, last.rung, last.points))


def mean_score(wine: str, kind: str, rung: Rung, point: Settings, runs: Runs) -> float:
    """Return the mean of -log p(w) over the folds of a round."""
    scores = [runs[task.key][W] for task, _ in tasks_of(wine, kind, rung, [point])]
    return sum(scores) / len(scores)


def tasks_of(
    wine: str, kind: str, rung: Rung, points: Iterable[Settings]
) -> list[tuple[Task, Settings]]:
    """Return the runs of a round, each with the settings that it tries."""
    return [
        (Task(NAME, wine, _row(kind, rung, point), fold), point)
        for point in points
        for fold in range(rung.folds)
    ]


def _row(kind: str, rung: Rung, point: Settings) -> Row:
    length = f" epochs={rung.epochs}" if rung.epochs else ""
    options = {"kind": kind, "n_draws": DRAWS, "epochs": rung.epochs}
    name = f"{kind} {describe(point)}{length}"
    return Row(name, name, "grid_point", options)


def settings_for(dataset: str, row: Row, protocol: Protocol, runs: Runs) -> tuple[Settings, str]:
    """Return the settings of a wine's row, and where they are from.

    Those that the search chose; where it is not done or the row asks for it, those that the paper
    chose.
    """
    kind = {"wine_flow": "flow", "wine_plain": "flow", "wine_xd": "xd"}.get(row.fit)
    if kind is None:
        return {}, ""
    wine = dataset.removesuffix(FILE_ORDER)
    last = rounds(wine, kind, protocol, runs)[-1]
    if last.done and not row.options.get("as_paper"):
        return last.points[0], "grid search"
    return CHOSEN[wine, kind], "the paper's choice"


def searches_named(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the searches of the wines and the kinds that are named, all if none is."""
    for word in words:
        if word not in (*WINES, *GRID):
            known = ", ".join((*WINES, *GRID))
            raise ValueError(f"Expected --rows of grid from {known}; got {word!r}.")
    wines, kinds = ([n for n in names if n in words] or names for names in (WINES, GRID))
    return [(wine, kind) for wine, kind in SEARCHES if wine in wines and kind in kinds]


def describe(point: Settings) -> str:
    """Return a short name for settings."""
    return " ".join(f"{SHORT[name]}={point[name]:g}" for name in SHORT if name in point)
