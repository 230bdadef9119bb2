"""The generated tables of the page, as Markdown: our figures beside the published ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import deconvolver
from benchmarks.records import batting, gamma, honest, real, sparse
from benchmarks.records.estimators import LABELS
from benchmarks.records.sections import RECORD, SECTIONS
from benchmarks.runs import Run, codes
from paper.render import aligned

NOT_RUN = "Not run yet."
TASKS_RECORD = f"{deconvolver.RECORD}.json"
TASKS = {
    "white": "white wine, -log p(v)",
    "red": "red wine, -log p(v)",
    "toy": "toy",
    "moons": "moons",
    "hetero": "hetero moons",
    "toy_t": "toy, t(3) noise",
    "toy_missing": "toy, 30 % missing",
    "ring": "ring",
    "explog": "exponential x lognormal, 3-D",
}
PUBLISHED_TASKS = {"white": "8.685 ± .082", "red": "8.083 ± .128"}
"""Their best flow; how they split the rows is not known."""


def read(path: Path) -> list[Run]:
    """Return the runs that the page shows; none if there is no record.

    Other seeds than those of the bars were for trials, and would bend the figures.
    """
    runs = json.loads(path.read_text())["runs"] if path.is_file() else []
    return [run for run in runs if run["seed"] in SECTIONS[run["section"]].seeds]


def parts(results: Path) -> dict[str, str]:
    """Return every generated part of the page by its name."""
    runs = read(results / RECORD)
    by_section = {name: [run for run in runs if run["section"] == name] for name in SECTIONS}
    makers: dict[str, Callable[[list[Run]], str]] = {
        "gamma": gamma_part, "batting": batting_part, "real": real_part, "sparse": sparse_part,
        "honest": honest_part,
    }  # fmt: skip
    written = {name: maker(by_section[name]) or NOT_RUN for name, maker in makers.items()}
    tasks = results / TASKS_RECORD
    return {"tasks": tasks_part(tasks), **written, "machine": machine_part(results)}


def short(value: float | None, digits: int = 3) -> str:
    """Return a number without a zero before its point; a dash for none."""
    if value is None:
        return "-"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def significant(value: float, digits: int = 2) -> str:
    """Return a positive number to a few digits, without powers of ten."""
    if not 0 < value < np.inf:
        return short(value, 4)
    return short(value, max(0, digits - 1 - int(np.floor(np.log10(value)))))


def tasks_part(path: Path) -> str:
    """Show the tasks of ``benchmarks.deconvolver``, before and after."""
    if not path.is_file():
        return NOT_RUN
    content = json.loads(path.read_text())
    runs = [r for r in content["runs"] if "code" in r and r["seed"] in deconvolver.SEEDS[r["task"]]]
    before = content.get("before") or deconvolver.before(path)
    whole = _tasks_table(deconvolver.summary(runs), before)
    quick = deconvolver.summary(runs, quick=True)
    if quick:
        whole += f"\n\nWith `quick=True`:\n\n{_tasks_table(quick, {})}"
    return whole


def _tasks_table(now: dict[str, Run], before: dict[str, Run]) -> str:
    lines = [("task", "before", "now, mean", "bar", "worst seed", "most behind its best candidate",
              "seconds before", "seconds now", "seeds", "published")]  # fmt: skip
    for name, label in TASKS.items():
        new, old = now.get(name), before.get(name)
        if new is None and old is None:
            continue
        new, old = new or {}, old or {}
        worst = short(new.get("worst"))
        if name in deconvolver.WORST:
            worst += f" (bar {short(deconvolver.WORST[name], 2)})"
        lines.append((
            label, short(old.get("mean")), short(new.get("mean")) if new else NOT_RUN,
            short(deconvolver.BARS[name]), worst, short(new.get("most_lost")),
            short(old.get("seconds"), 0), short(new.get("seconds"), 0),
            str(len(new.get("seeds", []))), PUBLISHED_TASKS.get(name, "-"),
        ))  # fmt: skip
    return "\n".join(aligned(lines))


def gamma_part(runs: list[Run]) -> str:
    """Show geometric means of the divergence by the number of rows."""
    head = ("", *(f"N = {n:,}" for n in gamma.ROWS), "all", "worst cell", "seconds", "runs")
    lines = [head]
    for label, figure in gamma.PUBLISHED.items():
        flow = label == "their normalizing flow"
        by_rows = (gamma.PUBLISHED_BY_ROWS[n] if flow else None for n in gamma.ROWS)
        cells = ("-" if value is None else significant(value) for value in by_rows)
        lines.append((f"published: {label}", *cells, f"{figure:g}".lstrip("0"), "-", "-", "-"))
    for name, mine in by_estimator(runs):
        cells = (_mean_kl([run for run in mine if run["rows"] == n]) for n in gamma.ROWS)
        worst = max(mine, key=lambda run: run["kl"])
        where = f"{significant(worst['kl'])} (k = {worst['shape']}, N = {worst['rows']:,})"
        lines.append((LABELS[name], *cells, _mean_kl(mine, 3), where, _seconds(mine),
                      _count(mine, "gamma")))  # fmt: skip
    return "\n".join(aligned(lines)) + _lost(runs) if runs else ""


def _mean_kl(runs: list[Run], digits: int = 2) -> str:
    kls = [run["kl"] for run in runs]
    return significant(gamma.geometric_mean(kls), digits) if kls else "-"


def _lost(runs: list[Run]) -> str:
    """Say how far ``Deconvolver`` is behind the best of its own candidates."""
    lost = [
        r["loss"] for r in runs if r["estimator"] == "deconvolver" and r.get("loss") is not None
    ]
    if not lost:
        return ""
    return (
        f"\n\n`Deconvolver` against the best of its own candidates alone, cell by cell: "
        f"{short(float(np.mean(lost)), 4)} nat behind on average, {short(max(lost), 4)} at most."
    )


def batting_part(runs: list[Run]) -> str:
    """Show the total log-likelihood of fitted priors."""
    lines = [("", "log-likelihood", "seconds")]
    for label, figure in batting.PUBLISHED.items():
        lines.append((f"published: {label}", f"{figure}", "-"))
    for name, mine in by_estimator(runs):
        run = mine[0]
        error = f" ± {run['error']:.2f}" if run["error"] > 0.005 else ""
        wrong = run["total"] - 2 * run["error"] > batting.CEILING
        words = ", above the ceiling: wrong" if wrong else ""
        lines.append((LABELS[name], f"{run['total']:.2f}{error}{words}", _seconds(mine)))
    return "\n".join(aligned(lines)) if runs else ""


def real_part(runs: list[Run]) -> str:
    """Show what each table's truth looks like, and how well held-out rows are foretold."""
    tables = []
    for key, table in real.TABLES.items():
        mine = [run for run in runs if run["table"] == key]
        if mine:
            tables.append(_real_table(key, table, mine))
    return "\n\n".join(tables)


def _real_table(key: str, table: real.Table, runs: list[Run]) -> str:
    rows, spread = runs[0]["rows_fitted"], short(runs[0]["spread_by_moments"])
    lines = [("", "held-out log p(w)", "gain over one Gaussian", f"near zero ({table.near_words})",
              "spread of the truth", "5 %, 50 %, 95 %", "seconds")]  # fmt: skip
    for name, (run, *_) in by_estimator(runs):
        lines.append((
            LABELS[name], short(run["held_out"]),
            f"{short(run['gain'], 4)} ± {short(run['gain_error'], 4)}", short(run["near_zero"]),
            short(run["spread"]), ", ".join(short(q, 2) for q in run["quantiles"]),
            _seconds([run]),
        ))  # fmt: skip
    head = f"`{key}`: {table.words}; {rows:,} rows. Spread by moments alone: {spread}."
    return "\n".join([head, "", *aligned(lines)])


def sparse_part(runs: list[Run]) -> str:
    """Show the density of the slab at .2 over the truth's, seed by seed."""
    seeds = sorted({run["seed"] for run in runs})
    lines = [("", *(f"seed {seed}" for seed in seeds), "wrong", "seconds")]
    for name, mine in by_estimator(runs):
        ratios = {run["seed"]: run["ratio"] for run in mine}
        wrong = sum(map(sparse.is_wrong, ratios.values()))
        cells = (short(ratios.get(seed), 2) for seed in seeds)
        lines.append((LABELS[name], *cells, f"{wrong} of {len(ratios)}", _seconds(mine)))
    return "\n".join(aligned(lines)) if runs else ""


def honest_part(runs: list[Run]) -> str:
    """Show by how much noisy rows change the score of clean ones."""
    noises = [noise for noise in honest.NOISES if noise]
    lines = [("", "excess without them", *(f"change, noise {n:.0f}" for n in noises), "seeds")]
    for name, mine in by_estimator(runs):
        base = {run["seed"]: run for run in mine if not run["noise"]}
        excess = [run["truth"] - run["log_p"] for run in base.values()]
        if excess:
            cells = (_changes(mine, base, noise) for noise in noises)
            lines.append((LABELS[name], short(float(np.mean(excess))), *cells, str(len(base))))
    return "\n".join(aligned(lines)) if len(lines) > 1 else ""


def _changes(runs: list[Run], base: dict[int, Run], noise: float) -> str:
    """Mean change of ``log p(v)`` over the seeds, and the largest."""
    found = [
        run["log_p"] - base[run["seed"]]["log_p"]
        for run in runs
        if run["noise"] == noise and run["seed"] in base
    ]
    if not found:
        return "-"
    return f"{short(float(np.mean(found)), 4)} (largest {short(max(found, key=abs), 4)})"


def machine_part(results: Path) -> str:
    """Say what made the figures: processor, versions, and the code's digests."""
    lines = []
    for name in (TASKS_RECORD, RECORD):
        path = results / name
        if path.is_file():
            content = json.loads(path.read_text())
            made = [run for run in content["runs"] if "code" in run]
            versions = ", ".join(f"{k} {v}" for k, v in content["versions"].items())
            machine = content["machine"]
            digests = ", ".join(codes(made)) or "unknown"
            several = "; more than one: run again for figures of one" if "," in digests else ""
            lines.append(
                f"- `results/{name}`: {len(made)} runs on {machine['processor']}, "
                f"{machine['cores']} cores; {versions}; digest of the code {digests}{several}."
            )
    return "\n".join(lines) or NOT_RUN


def by_estimator(runs: list[Run]) -> list[tuple[str, list[Run]]]:
    """Return the runs of every estimator, in the order of the labels."""
    found = [(name, [run for run in runs if run["estimator"] == name]) for name in LABELS]
    return [(name, mine) for name, mine in found if mine]


def _seconds(runs: Sequence[Run]) -> str:
    mean = float(np.mean([run["seconds"] for run in runs]))
    return short(mean, 0 if mean >= 10 else 1)


def _count(runs: list[Run], section: str) -> str:
    return f"{len(runs)} of {len(SECTIONS[section].tasks(('any',)))}"
