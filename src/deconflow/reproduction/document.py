"""The generated parts of ``docs/reproduction.md``: written from the records, between markers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from deconflow.files import replacing
from deconflow.reproduction import cost, figures
from deconflow.reproduction.books import Books, read_books
from deconflow.reproduction.differences import differences
from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.orderings import ORDERINGS
from deconflow.reproduction.paper import CHOSEN
from deconflow.reproduction.protocols import PAPER, PROTOCOLS, Protocol
from deconflow.reproduction.search import describe, mean_score, rounds, whole_search
from deconflow.reproduction.tables import NAMES, V, aligned, missing, render, shown

START, END = "<!-- {name}: written by deconflow reproduce -->", "<!-- end of {name} -->"


def parts(results: Path, images: Path) -> dict[str, str]:
    """Return every generated part by its name; ``images`` is the folder of the document's."""
    protocol = PROTOCOLS["budget"]
    budget, paper = (read_books(results, name) for name in ("budget", "paper"))
    answer = {name: _table_part(name, budget) for name in TABLES}
    answer["grid"] = "\n".join(grid_lines(budget, protocol))
    answer["paper"] = "\n\n".join(_paper_parts(paper))
    answer["orderings"] = "\n".join(ordering_lines(budget))
    answer["differences"] = "\n".join(difference_lines(budget, protocol, paper))
    answer["cost"] = cost.in_words(results)
    answer["figures"] = "\n\n".join(_figure_parts(images))
    return answer


def _table_part(name: str, books: Books) -> str:
    return f"{render(TABLES[name], books[name])}\n\n{completeness(name, books)}"


def completeness(name: str, books: Books) -> str:
    """Say how much of a table has been run."""
    table = TABLES[name]
    left = missing(table, books[name])
    whole = sum(len(seeds) for seeds in table.seeds.values()) * len(table.rows)
    if not left:
        return f"All {whole} runs are there."
    rows = sorted({f"{dataset} {row.name}" for dataset, row, _ in left})
    return f"{whole - len(left)} of {whole} runs are there; missing: {', '.join(rows)}."


def _paper_parts(books: Books) -> Iterator[str]:
    """Show the tables of the paper's protocol that have at least one run."""
    some = [name for name in TABLES if books[name]]
    if not some:
        yield "No run at the paper's protocol is recorded yet."
    for name in some:
        yield f"{TABLES[name].title}:\n\n{render(TABLES[name], books[name])}"
    if some:
        yield "More than two of the paper's standard deviations from its own:"
        yield "\n".join(difference_lines(books, PAPER))


def _figure_parts(images: Path) -> Iterator[str]:
    """Show the figures that have been drawn, and name the others."""
    for name, caption in figures.CAPTIONS.items():
        if (images / name).is_file():
            yield f"![{caption}]({images.name}/{name})\n\n{caption}"
        else:
            yield f"Not drawn yet, for want of runs: {caption}"


def grid_lines(books: Books, protocol: Protocol) -> Iterator[str]:
    """Say what the searches chose, beside what the paper chose."""
    lines = [("", "chosen", "-log p(w), left-out fold", "the paper chose")]
    for wine, kind in whole_search():
        last = rounds(wine, kind, protocol, books["grid"])[-1]
        name = f"{NAMES[wine].split(',')[0]}, {kind}"
        said = describe(CHOSEN[wine, kind])
        if not last.whole:
            lines.append((name, "not done", "-", said))
            continue
        score = mean_score(wine, kind, last.rung, last.points[0], books["grid"])
        lines.append((name, describe(last.points[0]), f"{score:.3f}", said))
    yield from aligned(lines)
    yield ""
    minutes = sum(run["core_seconds"] for run in books["grid"].values()) / 60
    yield f"{len(books['grid'])} fits are recorded, of {minutes:.0f} core minutes."


def ordering_lines(books: Books) -> Iterator[str]:
    """Say of each of the paper's findings whether it holds."""
    lines = [("finding of the paper, or ours", "on our records")]
    yield from aligned([*lines, *((o.words, o.verdict(books)) for o in ORDERINGS)])


def difference_lines(
    books: Books, protocol: Protocol, at_paper: Books | None = None
) -> Iterator[str]:
    """Name our numbers that differ from the paper's by more than two of its deviations."""
    found = differences(books, protocol, at_paper)
    if not found:
        yield "Of what has been run, no number differs by more than two standard deviations."
        return
    lines = [("", "ours", "paper", "reason")]
    for one in found:
        table, score = TABLES[one.where.table], "-log p(v)" if one.score == V else "-log p(w)"
        title = next(row.title for row in table.rows if row.name == one.where.row)
        where = "" if one.where.dataset == "toy" else f"{one.where.dataset} wine, "
        group = "pretraining, " if table.name == "pretraining" else ""
        name = f"{where}{group}{title}, {score}"
        lines.append((name, shown(one.ours), shown(one.paper), one.reason))
    yield from aligned(lines)


def refresh(document: Path, results: Path) -> bool:
    """Write the generated parts anew; return whether anything changed."""
    text = document.read_text()
    new = with_parts(text, parts(results, figures.folder_of(document)))
    if new != text:
        with replacing(document) as part:
            part.write_text(new)
    return new != text


def with_parts(text: str, contents: dict[str, str]) -> str:
    """Return a document with the text between its markers replaced."""
    for name, content in contents.items():
        start, end = _markers(name)
        place = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        whole = f"{start}\n\n{content}\n\n{end}"
        text = place.sub(lambda _, whole=whole: whole, text)  # type: ignore[misc]
    return text


def part_in(text: str, name: str) -> str | None:
    """Return what a document has between the markers of a part; None without markers."""
    start, end = _markers(name)
    if start not in text or end not in text:
        return None
    return text.split(start)[1].split(end)[0].strip()


def _markers(name: str) -> tuple[str, str]:
    return START.format(name=name), END.format(name=name)


def toy_bar(books: Books) -> float | None:
    """Return how far XD is from the truth on the toy, at the worst seed; None without runs."""
    runs = [run for key, run in books["mixture"].items() if key[1] == "xd"]
    gaps = [abs(run[f"minus_log_p_{x}"] - run[f"truth_{x}"]) for run in runs for x in ("v", "w")]
    return max(gaps) if gaps else None
