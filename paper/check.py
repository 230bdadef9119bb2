"""Whether every run is there, and whether the document says what the records say."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paper import figures
from paper.findings import AllRuns
from paper.fits import SETTINGS
from paper.numbers import FILE_ORDER, V_FITTED
from paper.page import UNEXPLAINED, part_in, parts, read_all
from paper.protocols import PAPER, Protocol
from paper.render import missing
from paper.search import NAME as GRID_NAME
from paper.search import SEARCHES, rounds, settings_for
from paper.tables import TABLES, Table

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
    folder = figures.folder_of(document)
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
