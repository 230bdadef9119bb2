"""Our numbers that differ from the paper's, each with the reason that the records support."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from deconflow.reproduction.books import Books
from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.orderings import Side
from deconflow.reproduction.paper import (
    CHOSEN,
    EXPECTED_V,
    EXPECTED_W,
    PRINTED,
    TEST_SET_SD,
    Figure,
    Printed,
    printed,
)
from deconflow.reproduction.protocols import PAPER, Protocol
from deconflow.reproduction.search import describe, kind_of
from deconflow.reproduction.tables import Summary, V, W, shown

XD = Side("mixture", "toy", "xd")
ROUNDING = 0.001
"""The paper prints three places, of two numbers whose difference is taken."""

LATE = 0.95
"""A best epoch is near the end if it is later than this share of all."""


@dataclass(frozen=True)
class Difference:
    """A number of ours that is more than two of the paper's standard deviations from its own."""

    where: Side
    score: str
    ours: Figure
    paper: Figure
    reason: str


def differences(
    books: Books, protocol: Protocol, at_paper: Books | None = None
) -> list[Difference]:
    """Return all such numbers, each with its reason.

    ``at_paper`` has the runs at the paper's protocol, which a reason may name.
    """
    found = []
    for side, score, paper in _printed():
        ours = _summary(side, books).figure(score)
        if ours and abs(ours.mean - paper.mean) > 2 * paper.sd:
            if side.dataset == "toy":
                reason = _toy_reason(side, score, ours, paper, books, protocol, at_paper or {})
            else:
                reason = _wine_reason(side, ours, books, protocol)
            found.append(Difference(side, score, ours, paper, reason))
    return found


def _printed() -> Iterator[tuple[Side, str, Figure]]:
    """Return every number that the paper prints for a row of ours."""
    for (table, dataset), rows in PRINTED.items():
        for row in TABLES[table].rows:
            said = rows.get(row.name, Printed())
            for score, figure in ((V, said.v), (W, said.w)):
                if figure:
                    yield Side(table, dataset, row.name), score, figure


def _summary(side: Side, books: Books) -> Summary:
    return Summary.of(books.get(side.table, {}), side.dataset, side.row)


def _toy_reason(
    side: Side,
    score: str,
    ours: Figure,
    paper: Figure,
    books: Books,
    protocol: Protocol,
    at_paper: Books,
) -> str:
    summary = _summary(side, books)
    explain = _other_rows_of_xd if side == XD else _other_rows_of_others
    if words := explain(score, ours, paper, books):
        return words
    if protocol.name == PAPER.name:
        return _not_known(summary)
    settings = summary.runs[0]["settings"]
    if "learning_rate" not in settings:
        return "Not known."
    return _protocol_reason(settings, _summary(side, at_paper).figure(score))


def _not_known(summary: Summary) -> str:
    """Say so, and which fits were best near their end."""
    ends = [(run["details"].get("best_epoch") or 0, run) for run in summary.runs]
    late = [
        f"{best + 1} of {run['details']['epochs']} (seed {run['seed']})"
        for best, run in ends
        if best >= LATE * run["details"].get("epochs", math.inf)
    ]
    near = f" The best epoch was near the end: {', '.join(late)}." if late else ""
    room = "Dropout, the embedding and the choice of the epoch leave room in the paper's words."
    return f"Not known.{near} {room}"


def _wine_reason(side: Side, ours: Figure, books: Books, protocol: Protocol) -> str:
    ends = "" if protocol.name == PAPER.name else _ends_in_words(_summary(side, books))
    words = (_settings_in_words(side, books), ends, _split_in_words(ours))
    return " ".join(part for part in words if part)


def _settings_in_words(side: Side, books: Books) -> str:
    """Compare the settings with the paper's, and say what XD gives with those."""
    row = next(row for row in TABLES[side.table].rows if row.name == side.row)
    paper = CHOSEN[side.dataset, kind_of(row) or ""]
    runs = _summary(side, books).runs
    used = sorted({describe({name: run["settings"][name] for name in paper}) for run in runs})
    if used == [describe(paper)]:
        return "The settings are the paper's."
    words = f"The settings are {' and '.join(used)}, the paper's {describe(paper)}"
    with_those = _summary(replace(side, row=f"{side.row}-paper"), books).figure(V)
    return f"{words}; with those, ours is {shown(with_those)}." if with_those else f"{words}."


def _ends_in_words(summary: Summary) -> str:
    """Say how many runs of flows the budget cut short."""
    ends = [run["details"].get("stopped_early") for run in summary.runs]
    if None in ends:
        return ""
    if all(ends):
        return "Early stopping ended every run, the budget none."
    return f"The budget ended {ends.count(False)} of {len(ends)} runs."


def _split_in_words(ours: Figure) -> str:
    moves = "" if math.isnan(ours.sd) else f", between which the same method moves by {ours.sd:.3f}"
    return (
        f"The paper's split and noise are not known: ours are shuffled splits{moves}. How much of "
        "the gap that is, is not known."
    )


def _other_rows_of_xd(score: str, ours: Figure, paper: Figure, books: Books) -> str:
    """Say that other test rows explain a gap, if what is left above the truth is as the paper's."""
    name, expected = ("truth_v", EXPECTED_V) if score == V else ("truth_w", EXPECTED_W)
    truth = _summary(XD, books).figure(name)
    if truth is None:
        return ""
    above, paper_above = ours.mean - truth.mean, paper.mean - expected
    if abs(above - paper_above) > 2 * TEST_SET_SD:
        return ""
    return (
        f"Other rows can explain it: ours is {above:+.3f} from the truth on the same rows; the "
        f"paper's is {paper_above:+.3f} from the truth's expectation, which 50,000 test rows move "
        f"by {TEST_SET_SD}."
    )


def _other_rows_of_others(score: str, ours: Figure, paper: Figure, books: Books) -> str:
    """Say so if ours is as far from our XD, on the same test rows, as the paper's from its own."""
    xd, said = _summary(XD, books).figure(score), printed(XD.table, XD.dataset, XD.row)
    paper_xd = said.v if score == V else said.w
    if xd is None or paper_xd is None:
        return ""
    above, paper_above = ours.mean - xd.mean, paper.mean - paper_xd.mean
    if abs(above - paper_above) > 2 * paper.sd + ROUNDING:
        return ""
    return (
        f"Other rows explain it: ours is {above:+.3f} from our XD on the same rows, the paper's "
        f"{paper_above:+.3f} from its own."
    )


def _protocol_reason(settings: dict[str, Any], at_paper: Figure | None) -> str:
    """Name what the shorter protocol does otherwise, and what the paper's gives if it was run."""
    times = settings["learning_rate"] / PAPER.learning_rate
    has_network = settings.get("posterior_family") != "exact"
    own = (
        f"The paper's own protocol gives {shown(at_paper)} here."
        if at_paper
        else "Whether the paper's own protocol gives its number is not known here."
    )
    networks = ", no dropout, half the hidden features" if has_network else ""
    return (
        f"The protocol: {_epochs(settings['epochs'])} epochs where the paper has {PAPER.epochs}, a "
        f"learning rate that starts {times:.0f} times as high{networks}. {own}"
    )


def _epochs(epochs: int | dict[str, int]) -> str:
    if isinstance(epochs, int):
        return str(epochs)
    return " and ".join(f"{count} ({part})" for part, count in epochs.items())
