"""The generated parts of ``docs/reproduction.md``: written from the records, between markers."""

import json
import math
import re
from pathlib import Path

from sklearn.model_selection import ParameterGrid

from paper.data import TEST_SHARE
from paper.findings import (
    DATASETS,
    NOT_RUN,
    ORDERINGS,
    AllRuns,
    aligned,
    completeness,
    differences,
    figure,
    render,
    runs_of,
    shown,
)
from paper.protocols import (
    BUDGET,
    CHOSEN,
    EARLY_STOPPING_SHARE,
    GRID,
    MIXTURE,
    PAPER,
    PROTOCOLS,
    SEEDS,
    TABLES,
    Protocol,
    V,
    W,
    printed,
)
from paper.runs import Records, Run, write
from paper.search import NAME as GRID_NAME
from paper.search import SEARCHES, describe, mean_score, rounds

#: In the place of a reason; whoever finds it writes it into the page, where it is kept.
UNEXPLAINED = "Not explained yet."

MEASURED, ORDERS = "flow_evaluation.json", "flow_orders.json"
STARTS = {"before": "as in version 0.1", "now": "as today"}
WINE_ROWS = {"white": 4898, "red": 1599}
#: About how long a fit to a wine lasts until early stopping ends it.
EPOCHS_PER_FIT = 100


def read_all(results: Path, protocol: str) -> AllRuns:
    """Return the runs of every table and of the grid, by their names."""
    return {name: Records(results, name, protocol).runs() for name in (*TABLES, GRID_NAME)}


def parts(results: Path, document: Path) -> dict[str, str]:
    """Return every generated part of a document by its name.

    Reasons of differences are written by hand: one is kept as long as its numbers are.
    """
    text = document.read_text()
    budget, paper = (read_all(results, protocol.name) for protocol in (BUDGET, PAPER))
    orderings = [(ordering.words, ordering.verdict(budget)) for ordering in ORDERINGS]
    return {
        **{name: table_part(name, budget) for name in TABLES},
        GRID_NAME: grid_part(budget, PROTOCOLS["budget"]),
        "paper": _paper_part(paper, text),
        "seeds": seeds(paper),
        "orderings": "\n".join(
            aligned([("finding of the paper, or ours", "on our records"), *orderings])
        ),
        "differences": _differences_part(budget, part_in(text, "differences")),
        "cost": cost(results),
        "orders": orders(results),
    }


def table_part(name: str, runs: AllRuns) -> str:
    """Show a table, and say how much of it has been run."""
    table = TABLES[name]
    return f"{render(table, runs[name])}\n\n{completeness(table, runs[name])}"


def grid_part(runs: AllRuns, protocol: Protocol) -> str:
    """Say what the searches chose, beside what the paper chose."""
    found = runs[GRID_NAME]
    lines = [("", "chosen", "-log p(w), left-out fold", "the paper chose")]
    for wine, kind in SEARCHES:
        last = rounds(wine, kind, protocol, found)[-1]
        chosen, score = "not done", "-"
        if last.done:
            chosen = describe(last.points[0])
            score = f"{mean_score(wine, kind, last.rung, last.points[0], found):.3f}"
        name = f"{DATASETS[wine].split(',')[0]}, {kind}"
        lines.append((name, chosen, score, describe(CHOSEN[wine, kind])))
    minutes = sum(run["core_seconds"] for run in found.values()) / 60
    cost = f"{len(found)} fits are recorded, of {minutes:.0f} core minutes."
    return "\n".join([*aligned(lines), "", cost])


def _paper_part(runs: AllRuns, text: str) -> str:
    """Show the tables of the paper's protocol that have at least one run."""
    some = [table for table in TABLES.values() if runs[table.name]]
    if not some:
        return "No run at the paper's protocol is recorded yet."
    shown_tables = [f"{table.title}:\n\n{render(table, runs[table.name])}" for table in some]
    heading = "More than two of the paper's standard deviations from its own:"
    differing = _differences_part(runs, part_in(text, "paper"))
    return "\n\n".join([*shown_tables, heading, differing])


def seeds(runs: AllRuns) -> str:
    """Show the runs of the flow by the paper's protocol one by one, above the paper's spread."""
    row = "elbo-1"
    found = runs_of(runs[MIXTURE.name], "toy", row)
    if not found:
        return "No run at the paper's protocol is recorded yet."
    now = [run for run in found if "code" in run]
    head = (
        "", "orders of the prior's layers", "best epoch", "last learning rate",
        "-log p(v)", "-log p(w)",
    )  # fmt: skip
    means = [
        (words, "", "", "", *(shown(each) for each in figures))
        for words, figures in (
            (f"with today's scales ({len(now)})", [figure(now, score) for score in (V, W)]),
            ("paper (5)", [printed("toy", row, score) for score in (V, W)]),
        )
    ]
    return "\n".join(aligned([head, *map(_seed_line, found), *means]))


def _seed_line(run: Run) -> tuple[str, ...]:
    details = run["details"]
    scales = "" if "code" in run else ", exponential scales"
    rates = list(details.get("learning_rate", {}).values())
    return (
        f"seed {run['seed']}{scales}",
        details.get("orders", {}).get("prior", "not recorded"),
        f"{details['best_epoch'] + 1} of {details['epochs']}",
        f"{rates[-1]:g}" if rates else "not recorded",
        f"{run[V]:.3f}",
        f"{run[W]:.3f}",
    )


def _differences_part(runs: AllRuns, old: str | None) -> str:
    """Name our numbers that differ from the paper's, with the reasons that the page gives."""
    reasons = {}
    for line in (old or "").splitlines():
        name, ours, paper, *rest = [cell.strip() for cell in line.strip("| ").split("|")] + [""] * 3
        reasons[name, ours, paper] = rest[0]
    keys = [(name, shown(ours), shown(paper)) for name, ours, paper in differences(runs)]
    lines = [(*key, reasons.get(key) or UNEXPLAINED) for key in keys]
    if not lines:
        return "Of what has been run, no number differs by more than two standard deviations."
    return "\n".join(aligned([("", "ours", "paper", "reason"), *lines]))


def cost(results: Path) -> str:
    """Say what the paper's protocol costs in core hours, from what a step was measured to cost."""
    path = results / MEASURED
    if not path.is_file():
        return (
            f"What the paper's protocol costs is not known: {MEASURED} is missing; "
            "`python -m benchmarks.flow_evaluation` writes it."
        )
    cases = json.loads(path.read_text())["cases"]

    def hours(case: str, K: int, epochs: int, n_rows: int, batch_size: int) -> float:
        seconds = cases[case]["draws"][str(K)]["seconds_a_step"]
        return epochs * math.ceil(n_rows / batch_size) * seconds / 3600

    draws = [row.options["n_draws"] for row in MIXTURE.rows if "n_draws" in row.options]
    toy = PAPER.epochs, PAPER.train_rows, PAPER.batch_size
    run = {K: hours("mixture, paper", K, *toy) for K in draws}
    batch = PAPER.wine_batch_size
    share = (1 - TEST_SHARE) * (1 - 1 / PAPER.folds) * (1 - EARLY_STOPPING_SHARE)
    grid = sum(
        hours(f"{wine} wine, the paper's settings", 50, EPOCHS_PER_FIT, round(share * n), batch)
        for wine, n in WINE_ROWS.items()
    )
    fits = PAPER.folds * len(ParameterGrid(GRID["flow"]))
    return (
        f"At the paper's protocol one run takes {run[1]:.1f} core hours with K = 1, "
        f"{run[10]:.1f} with K = 10, {run[25]:.0f} with K = 25 and {run[50]:.0f} with K = 50: the "
        f"full table with five seeds is {len(SEEDS) * sum(run[K] for K in draws):.0f} core hours "
        f"(`results/{MEASURED}`). The whole grid on both wines is about {fits * grid:.0f} more, if "
        f"a fit lasts {EPOCHS_PER_FIT} epochs."
    )


def orders(results: Path) -> str:
    """Show what the order of its layers does to a flow, before and now."""
    path = results / ORDERS
    if not path.is_file():
        return f"Not known: {ORDERS} is missing; `python -m benchmarks.flow_orders` writes it."
    runs = json.loads(path.read_text()).get("runs", [])
    found = {(run["case"], run["start"], run["seed"]): f"{run['excess']:.3f}" for run in runs}
    drawn = sorted({run["seed"] for run in runs})
    lines = [
        (case, words, *(found.get((case, start, seed), NOT_RUN) for seed in drawn))
        for case in dict.fromkeys(run["case"] for run in runs)
        for start, words in STARTS.items()
    ]
    head = ("flow, length of the fit", "scales and start", *(f"seed {seed}" for seed in drawn))
    return "\n".join(aligned([head, *lines]))


def refresh(document: Path, results: Path) -> bool:
    """Write the generated parts anew; return whether anything changed."""
    text = document.read_text()
    new = with_parts(text, parts(results, document))
    if new != text:
        write(document, new)
    return new != text


def with_parts(text: str, contents: dict[str, str]) -> str:
    """Return a document with the text between its markers replaced."""
    for name, content in contents.items():
        start, end = markers(name)
        found = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        text = found.sub(lambda _, new=f"{start}\n\n{content}\n\n{end}": new, text)  # type: ignore[misc]
    return text


def part_in(text: str, name: str) -> str | None:
    """Return what a document has between the markers of a part; None without markers."""
    start, end = markers(name)
    if start not in text or end not in text:
        return None
    return text.split(start)[1].split(end)[0].strip()


def markers(name: str) -> tuple[str, str]:
    """Return the lines between which a part stands."""
    return f"<!-- {name}: written by python -m paper -->", f"<!-- end of {name} -->"
