"""Whether every run is there, and whether the document says what the records say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deconflow.reproduction import figures
from deconflow.reproduction.books import Books, read_books
from deconflow.reproduction.document import part_in, parts, toy_bar
from deconflow.reproduction.experiments import TABLES, Table
from deconflow.reproduction.protocols import PAPER, Protocol
from deconflow.reproduction.records import Records
from deconflow.reproduction.search import TABLE as GRID_TABLE
from deconflow.reproduction.search import rounds, settings_for, whole_search
from deconflow.reproduction.tables import missing
from deconflow.reproduction.toy_fits import SETTINGS

XD_BAR = 0.005
"""How far XD may be from the truth on the toy."""

LEAST_AT_PAPER = ("toy", "elbo-1", 0)
"""The run that the records must have at the paper's protocol."""


@dataclass(frozen=True)
class Finding:
    """Something that was checked."""

    good: bool
    words: str


def check(
    results: Path, document: Path, protocol: Protocol, names: Sequence[str]
) -> Iterator[Finding]:
    """Check tables by name, the searches, the figures and the document."""
    books = read_books(results, protocol.name)
    for name in names:
        if name in TABLES:
            yield from _check_table(TABLES[name], books, protocol)
    if "mixture" in names:
        yield from _check_bar(books)
        if protocol.name != PAPER.name:
            yield _check_least(results)
    if GRID_TABLE in names:
        yield from _check_searches(books, protocol)
    if "figures" in names:
        yield from _check_figures(results, document, protocol)
    yield from _check_document(results, document, names)


def _check_table(table: Table, books: Books, protocol: Protocol) -> Iterator[Finding]:
    name = f"{table.name} ({protocol.name})"
    left: dict[str, list[int]] = {}
    for dataset, row, seed in missing(table, books[table.name]):
        left.setdefault(f"{dataset} {row.name}", []).append(seed)
    if not left:
        there = len(books[table.name])
        yield Finding(True, f"{name}: every row and seed is there, {there} runs")
    for what, seeds in left.items():
        yield Finding(False, f"{name}: missing {what}, seeds {', '.join(map(str, seeds))}")
    yield from _check_settings(table, books, protocol)


def _check_settings(table: Table, books: Books, protocol: Protocol) -> Iterator[Finding]:
    """Find runs that were made with other settings than a new run would have."""
    rows = {row.name: row for row in table.rows}
    for (dataset, name, seed), run in books[table.name].items():
        if name not in rows:
            continue
        row = rows[name]
        wanted, source = settings_for(dataset, row, protocol, books[GRID_TABLE])
        if row.fit in SETTINGS:
            wanted, source = SETTINGS[row.fit](protocol, **row.options), "the protocol"
        if any(run["settings"].get(key) != value for key, value in wanted.items()):
            yield Finding(
                False,
                f"{table.name}: {dataset} {name} seed {seed} was run with other settings than "
                f"{source} says; delete it from the record to run it again",
            )


def _check_bar(books: Books) -> Iterator[Finding]:
    worst = toy_bar(books)
    if worst is not None:
        words = f"XD-GMM on the toy: within {worst:.4f} of the truth, at the worst seed"
        yield Finding(worst <= XD_BAR, f"{words} (at most {XD_BAR})")


def _check_least(results: Path) -> Finding:
    runs = read_books(results, PAPER.name)["mixture"]
    words = f"mixture (paper): {len(runs)} runs"
    there = LEAST_AT_PAPER in runs
    return Finding(there, words if there else f"{words}, missing elbo-1 seed 0, the least of all")


def _check_searches(books: Books, protocol: Protocol) -> Iterator[Finding]:
    for wine, kind in whole_search():
        last = rounds(wine, kind, protocol, books[GRID_TABLE])[-1]
        words = f"grid ({protocol.name}): {wine} {kind}"
        state = (
            "done" if last.whole else f"not done, a round of {len(last.points)} settings is next"
        )
        yield Finding(last.whole, f"{words} {state}")


def _check_figures(results: Path, document: Path, protocol: Protocol) -> Iterator[Finding]:
    folder = figures.folder_of(document)
    for name in figures.NAMES:
        if not (folder / name).is_file():
            yield Finding(False, f"figure {name} is missing in {folder}")
        elif not figures.is_up_to_date(results, protocol.name, folder / name):
            yield Finding(False, f"figure {name} shows other draws than are kept; draw it again")
        else:
            yield Finding(True, f"figure {name} is there, made of the draws that are kept")
    for table, row in figures.SHOWN:
        if not Records(results, table, protocol.name).draws_path("toy", row).is_file():
            yield Finding(
                False, f"figures: no draws of {table} {row}; its run of seed 0 keeps them"
            )


def _check_document(results: Path, document: Path, names: Sequence[str]) -> Iterator[Finding]:
    if not document.is_file():
        yield Finding(False, f"{document} is missing")
        return
    text = document.read_text()
    for name, content in parts(results, figures.folder_of(document)).items():
        if name in (*TABLES, GRID_TABLE, "figures") and name not in names:
            continue
        found = part_in(text, name)
        if found is None:
            yield Finding(False, f"{document}: no markers for {name}")
        elif found != content:
            yield Finding(False, f"{document}: {name} does not agree with the records")
        else:
            yield Finding(True, f"{document}: {name} agrees with the records")
