"""The paper's findings, checked on our records; and our numbers that differ from its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import Any

from deconflow.reproduction.data import WINES
from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.paper import EXPECTED_V, EXPECTED_W, PRINTED, TEST_SET_SD, Figure
from deconflow.reproduction.protocols import PAPER, Protocol
from deconflow.reproduction.records import Key, Run
from deconflow.reproduction.tables import NAMES, Summary, V, W, deviation

Books = dict[str, dict[Key, Run]]
"""The runs of every table, by its name."""


@dataclass(frozen=True)
class Side:
    """A row of a table on some data."""

    table: str
    dataset: str
    row: str

    def values(self, books: Books, score: str) -> dict[int, float]:
        """Return its score by seed."""
        return Summary.of(books.get(self.table, {}), self.dataset, self.row).values(score)


@dataclass(frozen=True)
class Ordering:
    """A finding of the paper: one row scores lower, which is better, than another."""

    words: str
    score: str
    better: Side
    worse: Side

    def gaps(self, books: Books) -> list[float]:
        """Return by how much it holds, for each seed that both have."""
        low, high = (side.values(books, self.score) for side in (self.better, self.worse))
        return [high[seed] - low[seed] for seed in sorted(low.keys() & high.keys())]

    def holds(self, books: Books) -> bool | None:
        """Say whether it holds in the mean over the seeds; None without runs of both."""
        gaps = self.gaps(books)
        return fmean(gaps) > 0 if gaps else None

    def verdict(self, books: Books) -> str:
        """Say whether it holds, and by how much."""
        gaps = self.gaps(books)
        if not gaps:
            return "not run"
        word = "holds" if self.holds(books) else "does not hold"
        if len(gaps) < 2:
            return f"{word}: by {fmean(gaps):+.4f} with one seed"
        error = deviation(gaps) / len(gaps) ** 0.5
        sure = "" if abs(fmean(gaps)) > 2 * error else ", within two standard errors of nothing"
        return f"{word}: by {fmean(gaps):+.4f} ± {error:.4f} over {len(gaps)} seeds{sure}"


def _orderings() -> Iterator[Ordering]:
    yield from _toy_orderings()
    for wine in WINES:
        yield from _wine_orderings(wine)
    yield from _pretraining_orderings()


def _toy_orderings() -> Iterator[Ordering]:
    for K in (10, 25, 50):
        iw, elbo = (Side("mixture", "toy", f"{name}-{K}") for name in ("iw", "elbo"))
        yield Ordering(
            f"Toy: importance weighting beats the ELBO in -log p(w), K = {K}", W, iw, elbo
        )
    xd = Side("mixture", "toy", "xd")
    for score, letter, K in ((V, "v", 10), (W, "w", 50)):
        best = Side("mixture", "toy", f"iw-{K}")
        words = f"Toy: XD beats the paper's best flow (IW, K = {K}) in -log p({letter})"
        yield Ordering(words, score, xd, best)


def _wine_orderings(wine: str) -> Iterator[Ordering]:
    name = NAMES[wine].split(",")[0]
    flow, xd, average = (Side("uci", wine, row) for row in ("iw-50", "xd", "xd-average"))
    noisy = Side("ablation", wine, "noisy")
    yield Ordering(f"{name}: the flow beats XD in -log p(v)", V, flow, xd)
    yield Ordering(
        f"{name}: deconvolution beats the flow on noisy rows in -log p(v)", V, flow, noisy
    )
    yield Ordering(f"{name}: the flow on noisy rows beats XD in -log p(v)", V, noisy, xd)
    words = f"(ours) {name}: the flow beats the averaged XD in -log p(v)"
    yield Ordering(words, V, flow, average)


def _pretraining_orderings() -> Iterator[Ordering]:
    names = ("pretrained", "after", "gmm-flow", "gmm-exact")
    before, after, flow, exact = (Side("pretraining", "toy", name) for name in names)
    words = "Toy: variational fitting makes the -log p(v) of pretrained flows worse"
    yield Ordering(words, V, before, after)
    words = "Toy: the exact posterior of a mixture beats a flow posterior in -log p(v)"
    yield Ordering(words, V, exact, flow)


ORDERINGS = tuple(_orderings())


@dataclass(frozen=True)
class Difference:
    """A number of ours that is more than two of the paper's standard deviations from its own."""

    where: Side
    score: str
    ours: Figure
    paper: Figure
    reason: str


def differences(books: Books, protocol: Protocol) -> list[Difference]:
    """Return all such numbers, each with its reason."""
    found = []
    for (table, dataset), rows in PRINTED.items():
        for row, said in rows.items():
            if row not in {known.name for known in TABLES[table].rows}:
                continue
            summary, side = (
                Summary.of(books.get(table, {}), dataset, row),
                Side(table, dataset, row),
            )
            for score, paper in ((V, said.v), (W, said.w)):
                ours = summary.figure(score)
                if ours and paper and abs(ours.mean - paper.mean) > 2 * paper.sd:
                    reason = _reason(side, summary, score, ours, paper, protocol)
                    found.append(Difference(side, score, ours, paper, reason))
    return found


def _reason(
    side: Side, summary: Summary, score: str, ours: Figure, paper: Figure, protocol: Protocol
) -> str:
    """Give the reason that the records support, or say that it is not known."""
    if side.dataset != "toy":
        return _wine_reason(ours)
    if words := _other_rows(summary, score, ours, paper):
        return words
    if protocol.name == PAPER.name:
        return "Not known; dropout and the choice of the epoch leave room in the paper's words."
    settings = summary.runs[0]["settings"]
    if "learning_rate" not in settings:
        return "Not known."
    return _protocol_reason(settings)


def _wine_reason(ours: Figure) -> str:
    moves = "" if isnan(ours.sd) else f", between which the same method moves by {ours.sd:.3f}"
    return (
        f"The paper's split and noise are not known: ours are shuffled splits{moves}. How much of "
        "the gap that is, is not known."
    )


def _other_rows(summary: Summary, score: str, ours: Figure, paper: Figure) -> str:
    """Say that other test rows explain a gap, if what is left above the truth is as the paper's."""
    name, expected = ("truth_v", EXPECTED_V) if score == V else ("truth_w", EXPECTED_W)
    truth = summary.figure(name)
    if truth is None:
        return ""
    above, paper_above = ours.mean - truth.mean, paper.mean - expected
    if abs(above - paper_above) > 2 * TEST_SET_SD:
        return ""
    return (
        f"Other rows: ours is {above:+.3f} from the truth on the same rows; the paper's is "
        f"{paper_above:+.3f} from the truth's expectation, which 50,000 test rows move by "
        f"{TEST_SET_SD}."
    )


def _protocol_reason(settings: dict[str, Any]) -> str:
    """Name what the shorter protocol does otherwise."""
    times = settings["learning_rate"] / PAPER.learning_rate
    has_network = settings.get("posterior_family") != "exact"
    networks = ", no dropout, half the hidden features" if has_network else ""
    return (
        f"The protocol: {_epochs(settings['epochs'])} epochs where the paper has {PAPER.epochs}, a "
        f"learning rate that starts {times:.0f} times as high{networks}. Whether the paper's own "
        "protocol gives its number is not known here."
    )


def _epochs(epochs: int | dict[str, int]) -> str:
    if isinstance(epochs, int):
        return str(epochs)
    return " and ".join(f"{count} ({part})" for part, count in epochs.items())
