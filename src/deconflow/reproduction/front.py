"""What ``deconflow reproduce`` does, without the program around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deconflow.reproduction import figures
from deconflow.reproduction.books import read_books
from deconflow.reproduction.check import Finding, check
from deconflow.reproduction.data import FILE_ORDER, wine_rows
from deconflow.reproduction.document import completeness, grid_lines, refresh
from deconflow.reproduction.experiments import TABLES, Task
from deconflow.reproduction.jobs import Job
from deconflow.reproduction.protocols import PROTOCOLS, Protocol
from deconflow.reproduction.records import Key, Records, Run
from deconflow.reproduction.running import Runner
from deconflow.reproduction.search import TABLE as GRID_TABLE
from deconflow.reproduction.search import Settings, search, searches_named, settings_for
from deconflow.reproduction.tables import render

FIGURES = "figures"
NAMES = (*TABLES, GRID_TABLE, FIGURES)


@dataclass(frozen=True)
class Reproduction:
    """Where and how to reproduce the paper.

    Attributes
    ----------
    results : Path
        Folder of the records; the document lies in ``docs`` beside it.
    data : Path
        Folder of the wines.
    protocol : Protocol
        Sizes and lengths.
    at_once : int
        Processes at a time.
    say : callable
        What to do with a line about a run.
    progress : bool
        Whether to show progress bars.
    """

    results: Path
    data: Path
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
        elif name == GRID_TABLE:
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
        tasks = TABLES[name].tasks(rows, seeds)
        searched = read_books(self.results, self.protocol.name)[GRID_TABLE]
        pairs = [
            (task, settings_for(task.dataset, task.row, self.protocol, searched)[0])
            for task in tasks
        ]
        self._make(name, pairs)
        books = read_books(self.results, self.protocol.name)
        return f"{render(TABLES[name], books[name])}\n\n{completeness(name, books)}"

    def _search(self, rows: Sequence[str]) -> str:
        """Search for each wine and kind of model, or for those that are named."""
        for pair in searches_named(rows):
            search(*pair, self.protocol, lambda tasks: self._make(GRID_TABLE, tasks))
        books = read_books(self.results, self.protocol.name)
        return "\n".join(grid_lines(books, self.protocol))

    def _make(self, table: str, pairs: Sequence[tuple[Task, Settings]]) -> dict[Key, Run]:
        """Make the runs of some tasks, each with its settings, unless they are there."""
        records = Records(self.results, table, self.protocol.name)
        with records.alone():
            done = records.collect()
            self._need_data([task for task, _ in pairs if task.key not in done])
            jobs = [self._job(records, task, settings) for task, settings in pairs]
            runner = Runner(
                records, at_once=self.at_once, say=self._say_and_write, progress=self.progress
            )
            return runner.run(jobs)

    def _say_and_write(self, line: str) -> None:
        """Say what a run found, and show it in the document: records and page agree at any time."""
        self.say(line)
        self.write()

    def _job(self, records: Records, task: Task, settings: Settings) -> Job:
        return Job(task, self.protocol, self.data.resolve(), records.work.resolve(), settings)

    def _need_data(self, tasks: Sequence[Task]) -> None:
        """Fail at once, and with one line, if a wine cannot be had."""
        wines = {task.dataset.removesuffix(FILE_ORDER) for task in tasks} - {"toy"}
        for wine in sorted(wines):
            wine_rows(wine, self.data)

    def _draw(self) -> str:
        folder = figures.folder_of(self.document)
        if not self.document.is_file():
            folder = self.results / "reproduction" / FIGURES
        drawn, left = figures.draw_all(self.results, folder, self.protocol.name)
        lines = [f"{folder / name}" for name in drawn]
        return "\n".join([*lines, *(f"not drawn, for want of runs: {name}" for name in left)])


def protocol_named(name: str) -> Protocol:
    """Return a protocol, or say which there are."""
    if name not in PROTOCOLS:
        raise ValueError(f"Expected --protocol as one of {', '.join(PROTOCOLS)}; got {name!r}.")
    return PROTOCOLS[name]
