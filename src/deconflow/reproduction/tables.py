"""Our numbers beside the paper's, as aligned Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import fmean, stdev

from deconflow.reproduction.data import FILE_ORDER
from deconflow.reproduction.experiments import Row, Table
from deconflow.reproduction.paper import Figure, printed
from deconflow.reproduction.records import Key, Run

NOT_RUN = "not run"
V, W = "minus_log_p_v", "minus_log_p_w"
NAMES = {
    "toy": "The toy",
    "white": "White wine, shuffled splits",
    "red": "Red wine, shuffled splits",
    "white-file": "White wine, split in file order",
    "red-file": "Red wine, split in file order",
}


@dataclass(frozen=True)
class Summary:
    """The runs of one row on the same data."""

    runs: tuple[Run, ...]

    @classmethod
    def of(cls, runs: dict[Key, Run], dataset: str, row: str) -> Summary:
        """Take a row's runs, by seed."""
        keys = sorted(key for key in runs if key[:2] == (dataset, row))
        return cls(tuple(runs[key] for key in keys))

    def __len__(self) -> int:
        return len(self.runs)

    def values(self, name: str) -> dict[int, float]:
        """Return a number of every seed that has it."""
        return {run["seed"]: run[name] for run in self.runs if run.get(name) is not None}

    def figure(self, name: str) -> Figure | None:
        """Return mean and standard deviation over the seeds; None without a run."""
        values = list(self.values(name).values())
        if not values:
            return None
        return Figure(fmean(values), deviation(values))

    def core_minutes(self) -> float | None:
        """Return the mean cost of the runs that were made in one go; None if none was."""
        seconds = [run["core_seconds"] for run in self.runs if not _resumed(run)]
        return fmean(seconds) / 60 if seconds else None


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; nan for one value, or if one is infinite."""
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else nan


def _resumed(run: Run) -> bool:
    """Say whether a run counts only its last part's seconds, its training being longer."""
    return bool(run["details"].get("fit_seconds", 0.0) > run["seconds"])


def render(table: Table, runs: dict[Key, Run]) -> str:
    """Return a table with the paper's numbers, for each of its data."""
    parts = []
    for dataset in table.seeds:
        make = _toy_lines if dataset == "toy" else _wine_lines
        lines = list(make(table, dataset, runs))
        heading = [] if dataset == "toy" else [f"{NAMES[dataset]}:", ""]
        parts.append("\n".join([*heading, *aligned(lines)]))
    return "\n\n".join(parts)


def _toy_lines(table: Table, dataset: str, runs: dict[Key, Run]) -> Iterable[Sequence[str]]:
    yield (
        "", "-log p(v)", "truth", "paper", "-log p(w)", "truth", "paper", "seeds", "core minutes",
    )  # fmt: skip
    for row in table.rows:
        found, said = Summary.of(runs, dataset, row.name), printed(table.name, dataset, row.name)
        yield (
            row.title,
            shown(found.figure(V)), shown(found.figure("truth_v"), sd=False), shown(said.v, "-"),
            shown(found.figure(W)), shown(found.figure("truth_w"), sd=False), shown(said.w, "-"),
            *_cost(found),
        )  # fmt: skip


def _wine_lines(table: Table, dataset: str, runs: dict[Key, Run]) -> Iterable[Sequence[str]]:
    yield ("", "-log p(v)", "paper", "rows without a copy", "-log p(w)", "seeds", "core minutes")
    for row in table.rows:
        found = Summary.of(runs, dataset, row.name)
        yield (
            row.title,
            shown(found.figure(V)),
            shown(printed(table.name, dataset.removesuffix(FILE_ORDER), row.name).v, "-"),
            shown(found.figure(f"{V}_without_copy")),
            shown(found.figure(W), "-" if len(found) else NOT_RUN),
            *_cost(found),
        )


def _cost(found: Summary) -> tuple[str, str]:
    minutes = found.core_minutes()
    return str(len(found)), "-" if minutes is None else f"{minutes:.1f}"


def shown(figure: Figure | None, nothing: str = NOT_RUN, *, sd: bool = True) -> str:
    """Return a mean with its standard deviation, if there is one."""
    if figure is None:
        return nothing
    if not sd or figure.sd != figure.sd:
        return f"{figure.mean:.3f}"
    return f"{figure.mean:.3f} ± {figure.sd:.3f}"


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose columns have one width each."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rows = [
        "| " + " | ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    return [rows[0], "|" + "|".join("-" * (n + 2) for n in widths) + "|", *rows[1:]]


def missing(
    table: Table, runs: dict[Key, Run], seeds: dict[str, tuple[int, ...]] | None = None
) -> list[tuple[str, Row, int]]:
    """Return the runs that a whole table has and this one has not."""
    return [
        (dataset, row, seed)
        for dataset, wanted in (seeds or table.seeds).items()
        for row in table.rows
        for seed in wanted
        if (dataset, row.name, seed) not in runs
    ]
