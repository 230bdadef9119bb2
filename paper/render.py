"""Our numbers beside the paper's, as aligned Markdown."""

from collections.abc import Iterator, Sequence
from math import isfinite, isnan, nan
from statistics import fmean, stdev

from paper.numbers import FILE_ORDER, V_FITTED, V_WITHOUT_COPY, Figure, V, W, printed
from paper.records import Run, Runs
from paper.tables import Table, Task

NOT_RUN = "not run"
DATASETS = {
    "toy": "The toy",
    "white": "White wine, shuffled splits",
    "red": "Red wine, shuffled splits",
    "white-file": "White wine, split in file order",
    "red-file": "Red wine, split in file order",
}


def runs_of(runs: Runs, dataset: str, row: str) -> list[Run]:
    """Return a row's runs, by seed."""
    return [run for key, run in sorted(runs.items()) if key[:2] == (dataset, row)]


def figure(runs: Sequence[Run], name: str) -> Figure | None:
    """Return mean and standard deviation of a number over some runs; None if none has it."""
    values = [run[name] for run in runs if run.get(name) is not None]
    return Figure(fmean(values), deviation(values)) if values else None


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; nan for one value, or if one is infinite."""
    return stdev(values) if len(values) > 1 and all(map(isfinite, values)) else nan


def core_minutes(runs: Sequence[Run]) -> float | None:
    """Return the mean cost of the runs that were made in one go; None if none was.

    A run that went on from a checkpoint has trained longer than its last part took.
    """
    in_one_go = [
        run["core_seconds"]
        for run in runs
        if run["details"].get("fit_seconds", 0.0) <= run["seconds"]
    ]
    return fmean(in_one_go) / 60 if in_one_go else None


def missing(table: Table, runs: Runs) -> list[Task]:
    """Return the runs that a complete table has and this one has not."""
    return [task for task in table.tasks() if task.key not in runs]


def render(table: Table, runs: Runs) -> str:
    """Return a table with the paper's numbers, for each of its data."""
    parts = []
    for dataset in table.seeds:
        lines = _toy_lines if dataset == "toy" else _wine_lines
        heading = [] if dataset == "toy" else [f"{DATASETS[dataset]}:", ""]
        parts.append("\n".join([*heading, *aligned(list(lines(table, dataset, runs)))]))
    return "\n\n".join(parts)


def completeness(table: Table, runs: Runs) -> str:
    """Say how much of a table has been run."""
    left, total = missing(table, runs), len(table.tasks())
    if not left:
        return f"All {total} runs are there."
    rows = sorted({f"{task.dataset} {task.row.name}" for task in left})
    return f"{total - len(left)} of {total} runs are there; missing: {', '.join(rows)}."


def _toy_lines(table: Table, dataset: str, runs: Runs) -> Iterator[Sequence[str]]:
    yield (
        "", "-log p(v)", "truth", "paper", "-log p(w)", "truth", "paper", "seeds", "core minutes",
    )  # fmt: skip
    for row in table.rows:
        found = runs_of(runs, dataset, row.name)
        line = [row.title + _of_another(table, found)]
        for score, truth in ((V, "truth_v"), (W, "truth_w")):
            line += [shown(figure(found, score)), shown(figure(found, truth), sd=False)]
            line += [shown(printed(dataset, row.name, score), "-")]
        yield *line, *_cost(found)


def _of_another(table: Table, found: Sequence[Run]) -> str:
    """Say whose fit it is, if the runs are those of a row with another number of draws."""
    names = {run["same_fit_as"] for run in found if "same_fit_as" in run}
    draws = [row.options["n_draws"] for row in table.rows if row.name in names]
    return f" (the fit with K = {draws[0]})" if draws else ""


def _wine_lines(table: Table, dataset: str, runs: Runs) -> Iterator[Sequence[str]]:
    """Show held-out rows; in file order, as in the published scripts, the fitted ones before."""
    in_file_order = dataset.endswith(FILE_ORDER)
    fitted = ("-log p(v), fitted rows", "paper") if in_file_order else ()
    held_out = ("-log p(v), held-out rows", "without copies", "-log p(w)")
    yield ("", *fitted, *held_out, "seeds", "core minutes")
    for row in table.rows:
        found = runs_of(runs, dataset, row.name)
        beside = shown(figure(found, V_FITTED)), shown(printed(dataset, row.name, V_FITTED), "-")
        yield (
            row.title,
            *(beside if in_file_order else ()),
            shown(figure(found, V)),
            shown(figure(found, V_WITHOUT_COPY)),
            shown(figure(found, W), "-" if found else NOT_RUN),
            *_cost(found),
        )


def _cost(found: Sequence[Run]) -> tuple[str, str]:
    minutes = core_minutes(found)
    return str(len(found)), "-" if minutes is None else f"{minutes:.1f}"


def shown(figure: Figure | None, nothing: str = NOT_RUN, *, sd: bool = True) -> str:
    """Return a mean with its standard deviation, if there is one."""
    if figure is None:
        return nothing
    return f"{figure.mean:.3f}" + (f" ± {figure.sd:.3f}" if sd and not isnan(figure.sd) else "")


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose columns have one width each."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rows = [
        "| " + " | ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    return [rows[0], "|" + "|".join("-" * (n + 2) for n in widths) + "|", *rows[1:]]
