"""What ``python -m paper`` does: make runs that are missing, show them, check them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm.auto import tqdm

from paper import figures, runs
from paper.check import Finding, check
from paper.data import wine_rows
from paper.fits import fitted_as
from paper.numbers import FILE_ORDER
from paper.page import grid_part, read_all, refresh, table_part
from paper.protocols import Protocol
from paper.records import Key, Records, Run, Runs
from paper.search import NAME as GRID_NAME
from paper.search import Settings, search, searches_named, settings_for
from paper.tables import TABLES, Table, Task

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
            self._need_data(jobs)
            failed: dict[Key, str] = {}
            options = {"total": len(pairs), "initial": len(pairs) - len(jobs), "unit": "run"}
            with (
                closing(runs.make_all(jobs, self.at_once)) as made,  # ends what still runs
                tqdm(desc=table, **options, disable=not self.progress) as bar,
            ):
                for job, run in made:
                    self._take(job, run, failed)
                    bar.update()
            _raise_for(failed)
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

    def _need_data(self, jobs: Sequence[runs.Job]) -> None:
        """Fail at once, and with one line, if a wine cannot be had."""
        wines = {job.task.dataset.removesuffix(FILE_ORDER) for job in jobs} - {"toy"}
        for wine in sorted(wines):
            wine_rows(wine, self.data)

    def _draw(self) -> str:
        folder = figures.folder_of(self.document)
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


def _raise_for(failed: dict[Key, str]) -> None:
    if failed:
        key, why = next(iter(failed.items()))
        raise ChildProcessError(
            f"Expected every run to succeed; got {len(failed)} that did not, the first "
            f"{' '.join(map(str, key))}: {why} Run the same command to try again."
        )
