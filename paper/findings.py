"""Tables of our records, the paper's findings on them, and numbers that differ from the paper's."""

from collections.abc import Iterator, Sequence
from math import isfinite, isnan, nan
from statistics import fmean, stdev
from typing import NamedTuple

from paper.protocols import (
    FILE_ORDER,
    TABLES,
    V_FITTED,
    V_WITHOUT_COPY,
    WINES,
    Figure,
    Table,
    Task,
    V,
    W,
    printed,
)
from paper.runs import Run, Runs

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


#: The runs of every table, by its name.
AllRuns = dict[str, Runs]


class Place(NamedTuple):
    """A row of a table on some data."""

    table: str
    dataset: str
    row: str


class Ordering(NamedTuple):
    """A finding of the paper: one row scores lower, which is better, than another."""

    words: str
    score: str
    better: Place
    worse: Place

    def gaps(self, runs: AllRuns) -> list[float]:
        """Return by how much it holds, for each seed that both have."""
        low, high = (
            {
                run["seed"]: run[self.score]
                for run in self._runs(place, runs)
                if run.get(self.score) is not None
            }
            for place in (self.better, self.worse)
        )
        return [high[seed] - low[seed] for seed in sorted(low.keys() & high.keys())]

    def _runs(self, place: Place, runs: AllRuns) -> list[Run]:
        return runs_of(runs.get(place.table, {}), place.dataset, place.row)

    def _fits(self, runs: AllRuns) -> dict[str, str]:
        """Return the rows that are compared, and those whose fits they are."""
        return {
            place.row: run.get("same_fit_as", place.row)
            for place in (self.better, self.worse)
            for run in self._runs(place, runs)
        }

    def verdict(self, runs: AllRuns) -> str:
        """Say whether it holds in the mean over the seeds, and by how much."""
        gaps = self.gaps(runs)
        if not gaps:
            return "not run"
        fits = self._fits(runs)
        if len(set(fits.values())) == 1:
            return "not tested: one fit serves both"
        others = "".join(f" ({row} is the fit of {fit})" for row, fit in fits.items() if row != fit)
        return self._in_words(gaps) + others

    def _in_words(self, gaps: Sequence[float]) -> str:
        mean = fmean(gaps)
        words = f"{'holds' if mean > 0 else 'does not hold'}: by {mean:+.4f}"
        if len(gaps) < 2:
            return f"{words} with one seed"
        error = deviation(gaps) / len(gaps) ** 0.5
        sure = "" if abs(mean) > 2 * error else ", within two standard errors of nothing"
        return f"{words} ± {error:.4f} over {len(gaps)} seeds{sure}"


def _toy(words: str, score: str, better: str, worse: str, table: str = "mixture") -> Ordering:
    return Ordering(f"Toy: {words}", score, *(Place(table, "toy", row) for row in (better, worse)))


def _fitted(wine: str) -> Iterator[Ordering]:
    """Compare on the rows that were fitted, as the paper does, the settings being the paper's."""
    name, dataset = DATASETS[wine].split(",")[0], wine + FILE_ORDER
    flow, xd = (Place("uci", dataset, row) for row in ("iw-50", "xd-paper"))
    noisy = Place("ablation", dataset, "noisy")
    for words, better, worse in (
        ("the flow beats XD", flow, xd),
        ("deconvolution beats the flow on noisy rows", flow, noisy),
        ("the flow on noisy rows beats XD", noisy, xd),
    ):
        for score, rows in ((V_FITTED, "fitted"), (V, "held-out")):
            yield Ordering(f"{name}, file order: {words} on {rows} rows", score, better, worse)


def _wine(wine: str) -> Iterator[Ordering]:
    name, end = DATASETS[wine].split(",")[0], "in -log p(v)"
    flow, xd, as_paper = (Place("uci", wine, row) for row in ("iw-50", "xd", "xd-paper"))
    noisy = Place("ablation", wine, "noisy")
    for words, better, worse in (
        (f"{name}: the flow beats XD", flow, xd),
        (f"{name}: deconvolution beats the flow on noisy rows", flow, noisy),
        (f"{name}: the flow on noisy rows beats XD", noisy, xd),
        (
            f"(ours) {name}: the flow on noisy rows beats XD with the paper's settings",
            noisy,
            as_paper,
        ),
    ):
        yield Ordering(f"{words} {end}", V, better, worse)


_IW = "importance weighting"
_BEST = "XD beats the paper's best flow"
_AFTER = "variational fitting makes the -log p(v) of pretrained flows worse"
_EXACT = "the exact posterior of a mixture beats a flow posterior in -log p(v)"
ORDERINGS = (
    *(
        _toy(f"{_IW} beats the ELBO in -log p(w), K = {K}", W, f"iw-{K}", f"elbo-{K}")
        for K in (10, 25, 50)
    ),
    _toy("the ELBO's -log p(w) is better with K = 50 than with K = 1", W, "elbo-50", "elbo-1"),
    _toy(f"{_IW}'s -log p(w) is better with K = 50 than with K = 10", W, "iw-50", "iw-10"),
    _toy(f"{_BEST} (IW, K = 10) in -log p(v)", V, "xd", "iw-10"),
    _toy(f"{_BEST} (IW, K = 50) in -log p(w)", W, "xd", "iw-50"),
    *(ordering for wine in WINES for ordering in (*_fitted(wine), *_wine(wine))),
    _toy(_AFTER, V, "pretrained", "after", "pretraining"),
    _toy(_EXACT, V, "gmm-exact", "gmm-flow", "pretraining"),
)


def differences(runs: AllRuns) -> Iterator[tuple[str, Figure, Figure]]:
    """Name our numbers that are more than two of the paper's standard deviations from its own.

    Each comes with ours and the paper's. Those of the wines are of fitted rows in file order.
    """
    words = {V: "-log p(v)", W: "-log p(w)", V_FITTED: "-log p(v) of fitted rows"}
    for table in TABLES.values():
        for dataset in table.seeds:
            for row in table.rows:
                for score in words:
                    ours = figure(runs_of(runs.get(table.name, {}), dataset, row.name), score)
                    paper = printed(dataset, row.name, score)
                    if ours and paper and abs(ours.mean - paper.mean) > 2 * paper.sd:
                        wine = dataset.removesuffix(FILE_ORDER)
                        where = "" if dataset == "toy" else f"{wine} wine, "
                        group = "pretraining, " if table.name == "pretraining" else ""
                        yield f"{where}{group}{row.title}, {words[score]}", ours, paper
