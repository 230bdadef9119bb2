"""What ``python -m paper`` does: make runs that are missing, show them, check them."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm.auto import tqdm

from paper import figures, runs
from paper.data import wine_rows
from paper.findings import AllRuns, missing
from paper.fits import SETTINGS, fitted_as
from paper.page import UNEXPLAINED, grid_part, part_in, parts, read_all, refresh, table_part
from paper.protocols import (
    FILE_ORDER,
    PAPER,
    TABLES,
    V_FITTED,
    Protocol,
    Table,
    Task,
)
from paper.runs import Key, Records, Run, Runs
from paper.search import NAME as GRID_NAME
from paper.search import SEARCHES, Settings, rounds, search, searches_named, settings_for

#: How far XD may be from the truth on the toy.
XD_BAR = 0.005

#: Rows that the records must have with every seed at the paper's protocol, by their table; the
#: others take half a day per run and more.
LEAST_AT_PAPER = {"mixture": "elbo-1", "pretraining": "gmm-exact"}

#: Whether something is as it should be, and what it is.
Finding = tuple[bool, str]


def check(
    results: Path, document: Path, protocol: Protocol, names: Sequence[str]
) -> Iterator[Finding]:
    """Check tables by name, the searches, the figures and the document."""
    runs = read_all(results, protocol.name)
    for table in (TABLES[name] for name in names if name in TABLES):
        yield from _check_table(table, runs, protocol)
        yield from _check_settings(table, runs, protocol)
    if "mixture" in names:
        yield from _check_bar(runs)
    if protocol.name != PAPER.name:
        yield from _check_least(read_all(results, PAPER.name), names)
    if GRID_NAME in names:
        yield from _check_searches(runs, protocol)
    if "figures" in names:
        yield from _check_figures(results, document, protocol)
    yield from _check_document(results, document, names)


def _check_table(table: Table, runs: AllRuns, protocol: Protocol) -> Iterator[Finding]:
    name, there = f"{table.name} ({protocol.name})", len(runs[table.name])
    left: dict[str, list[str]] = {}
    for task in missing(table, runs[table.name]):
        left.setdefault(f"{task.dataset} {task.row.name}", []).append(str(task.seed))
    if not left:
        yield True, f"{name}: every row and seed is there, {there} runs"
    for what, seeds in left.items():
        yield False, f"{name}: missing {what}, seeds {', '.join(seeds)}"


def _check_least(runs: AllRuns, names: Sequence[str]) -> Iterator[Finding]:
    """Check the rows that the paper's own protocol can be run with here."""
    for name, row in LEAST_AT_PAPER.items():
        if name in names:
            seeds = TABLES[name].seeds["toy"]
            left = [str(seed) for seed in seeds if ("toy", row, seed) not in runs[name]]
            words = f"{name} (paper): {row}, {len(seeds) - len(left)} of {len(seeds)} seeds"
            yield not left, f"{words}, missing {', '.join(left)}" if left else words


def _check_settings(table: Table, runs: AllRuns, protocol: Protocol) -> Iterator[Finding]:
    """Find runs that lack a score, or have other settings than a new run would have."""
    rows = {row.name: row for row in table.rows}
    for (dataset, name, seed), run in runs[table.name].items():
        row = rows.get(name)
        if row is None:
            continue
        wanted, source = settings_for(dataset, row, protocol, runs[GRID_NAME])
        if row.fit in SETTINGS:
            wanted, source = SETTINGS[row.fit](protocol, **row.options), "the protocol"
        if dataset.endswith(FILE_ORDER) and V_FITTED not in run:
            yield False, f"{table.name}: {dataset} {name} seed {seed} has no score of fitted rows"
        if any(run["settings"].get(key) != value for key, value in wanted.items()):
            yield (
                False,
                f"{table.name}: {dataset} {name} seed {seed} was run with other settings than "
                f"{source} says; delete it from the record to run it again",
            )


def _check_bar(runs: AllRuns) -> Iterator[Finding]:
    found = [run for (_, row, _), run in runs["mixture"].items() if row == "xd"]
    gaps = [abs(run[f"minus_log_p_{x}"] - run[f"truth_{x}"]) for run in found for x in "vw"]
    if gaps:
        words = f"XD-GMM on the toy: within {max(gaps):.4f} of the truth, at the worst seed"
        yield max(gaps) <= XD_BAR, f"{words} (at most {XD_BAR})"


def _check_searches(runs: AllRuns, protocol: Protocol) -> Iterator[Finding]:
    for wine, kind in SEARCHES:
        last = rounds(wine, kind, protocol, runs[GRID_NAME])[-1]
        next_round = f"not done, a round of {len(last.points)} settings is next"
        state = "done" if last.done else next_round
        yield last.done, f"grid ({protocol.name}): {wine} {kind} {state}"


def _check_figures(results: Path, document: Path, protocol: Protocol) -> Iterator[Finding]:
    folder = document.parent / "images"
    for name in figures.PICTURES:
        if not (folder / name).is_file():
            yield False, f"figure {name} is missing in {folder}"
        elif not figures.is_up_to_date(results, protocol.name, folder / name):
            yield False, f"figure {name} shows other draws than are kept; draw it again"
        else:
            yield True, f"figure {name} is there, made of the draws that are kept"
    for table, row in (row for rows in figures.PICTURES.values() for row in rows.values()):
        if not figures.draws_path(results, protocol.name, table, row).is_file():
            yield False, f"figures: no draws of {table} {row}; its run of seed 0 keeps them"


def _check_document(results: Path, document: Path, names: Sequence[str]) -> Iterator[Finding]:
    if not document.is_file():
        yield False, f"{document} is missing"
        return
    text = document.read_text()
    for name, content in parts(results, document).items():
        if name in (*TABLES, GRID_NAME) and name not in names:
            continue
        found = part_in(text, name)
        if found is None:
            yield False, f"{document}: no markers for {name}"
        elif found != content:
            yield False, f"{document}: {name} does not agree with the records"
        elif UNEXPLAINED in content:
            yield False, f"{document}: {name} has a difference whose reason is to be written"
        else:
            yield True, f"{document}: {name} agrees with the records"
    if "figures" in names:
        shown = all(f"(images/{name})" in text for name in figures.PICTURES)
        words = "agrees with the records" if shown else "does not show every picture"
        yield shown, f"{document}: figures {words}"


FIGURES = "figures"
NAMES = (*TABLES, GRID_NAME, FIGURES)


@dataclass(frozen=True)
class Reproduction:
    """Where and how to reproduce the paper.

    ``results`` is the folder of the records, with the document in ``docs`` beside it, ``data`` that
    of the wines; ``at_once`` runs are made at a time, and ``say`` gets a line about each.
    """

    results: Path
    data: Path | None
    protocol: Protocol
    at_once: int = 2
    say: Callable[[str], None] = print
    progress: bool = False

    @property
    def document(self) -> Path:
        """The document that the records are shown in."""
        return self.results.resolve().parent / "docs" / "reproduction.md"

    def run(self, name: str, rows: Sequence[str] = (), seeds: Sequence[int] | None = None) -> str:
        """Run an experiment, bring the document up to date, and return its table."""
        if seeds is not None and name not in TABLES:
            raise ValueError(f"Expected no --seeds with {name}, which has none; got {seeds}.")
        if rows and name == FIGURES:
            raise ValueError(f"Expected no --rows with figures; got {', '.join(rows)}.")
        if name == FIGURES:
            answer = self._draw()
        elif name == GRID_NAME:
            answer = self._search(rows)
        else:
            answer = self._run_table(name, rows, seeds)
        self.write()
        return answer

    def write(self) -> bool:
        """Bring the document up to date, if there is one; return whether it changed."""
        return self.document.is_file() and refresh(self.document, self.results)

    def check(self, names: Sequence[str] = NAMES) -> list[Finding]:
        """Check records, figures and document."""
        return list(check(self.results, self.document, self.protocol, names))

    def _run_table(self, name: str, rows: Sequence[str], seeds: Sequence[int] | None) -> str:
        table = TABLES[name]
        searched = read_all(self.results, self.protocol.name)[GRID_NAME]
        fitted = dict.fromkeys(
            replace(task, row=fitted_as(task.row, table, self.protocol))
            for task in table.tasks(rows, seeds)
        )
        self._make(
            name,
            [(t, settings_for(t.dataset, t.row, self.protocol, searched)[0]) for t in fitted],
        )
        self._share(table, fitted)
        return table_part(name, read_all(self.results, self.protocol.name))

    def _share(self, table: Table, fitted: Iterable[Task]) -> None:
        """Record runs again for all other rows of the table that they serve."""
        records = Records(self.results, table.name, self.protocol.name)
        served = {row: fitted_as(row, table, self.protocol) for row in table.rows}
        with records.alone():
            for task in fitted:
                for row, other in served.items():
                    if other == task.row != row:
                        shared = {"row": row.name, "same_fit_as": task.row.name}
                        records.add({**records.runs()[task.key], **shared})

    def _search(self, rows: Sequence[str]) -> str:
        """Search for each wine and kind of model, or for those that are named."""
        for wine, kind in searches_named(rows):
            search(wine, kind, self.protocol, lambda tasks: self._make(GRID_NAME, tasks))
        return grid_part(read_all(self.results, self.protocol.name), self.protocol)

    def _make(self, table: str, pairs: Sequence[tuple[Task, Settings]]) -> Runs:
        """Make the runs of some tasks, each with its settings, unless they are there."""
        records = Records(self.results, table, self.protocol.name)
        with records.alone():
            done = records.runs()
            jobs = [self.job(*pair) for pair in pairs if pair[0].key not in done]
            wines = {job.task.dataset.removesuffix(FILE_ORDER) for job in jobs} - {"toy"}
            for wine in sorted(wines):  # to fail at once, and with one line, if one cannot be had
                wine_rows(wine, self.data)
            failed: dict[Key, str] = {}
            options = {"total": len(pairs), "initial": len(pairs) - len(jobs), "unit": "run"}
            with (
                closing(runs.make_all(jobs, self.at_once)) as made,  # ends what still runs
                tqdm(desc=table, **options, disable=not self.progress) as bar,
            ):
                for job, run in made:
                    self._take(job, run, failed)
                    bar.update()
            if failed:
                key, why = next(iter(failed.items()))
                raise ChildProcessError(
                    f"Expected every run to succeed; got {len(failed)} that did not, the first "
                    f"{' '.join(map(str, key))}: {why} Run the same command to try again."
                )
            return records.runs()

    def job(self, task: Task, settings: Settings) -> runs.Job:
        """Return a run with all that it needs."""
        data = self.data and self.data.resolve()
        return runs.Job(task, self.protocol, self.results.resolve(), data, settings)

    def _take(self, job: runs.Job, run: Run | str, failed: dict[Key, str]) -> None:
        """Record a run and show it in the document, so that both agree at any time."""
        if isinstance(run, str):
            failed[job.task.key] = run
            line = f"{job.task.stem} failed: {run}"
        else:
            job.records.add(run)
            job.clear()
            line = in_words(run)
        with tqdm.external_write_mode(file=sys.stderr):
            self.say(line)
        self.write()

    def _draw(self) -> str:
        folder = self.document.parent / "images"
        if not self.document.is_file():
            folder = self.results / "reproduction" / FIGURES
        drawn, left = figures.draw_all(self.results, folder, self.protocol.name)
        lines = [f"{folder / name}" for name in drawn]
        return "\n".join([*lines, *(f"not drawn, for want of runs: {name}" for name in left)])


def in_words(run: Run) -> str:
    """Say what a run found."""
    scores = [
        f"-log p({letter}) {run[f'minus_log_p_{letter}']:.3f}"
        for letter in ("v", "w")
        if run.get(f"minus_log_p_{letter}") is not None
    ]
    name = f"{run['table']} {run['dataset']} {run['row']} seed {run['seed']}"
    return f"{name}: {', '.join(scores)} ({run['core_seconds']:.0f} core seconds)"
