"""The paper's findings, checked on our records; and our numbers that differ from its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

from deconflow.reproduction.data import WINES
from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.paper import PRINTED, TEST_SET_SD, Figure
from deconflow.reproduction.protocols import PAPER, Protocol
from deconflow.reproduction.records import Key, Run
from deconflow.reproduction.tables import NAMES, Summary, V, W

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
        error = stdev(gaps) / len(gaps) ** 0.5
        sure = "" if abs(fmean(gaps)) > 2 * error else ", within two standard errors of nothing"
        return f"{word}: by {fmean(gaps):+.4f} ± {error:.4f} over {len(gaps)} seeds{sure}"


def _orderings() -> Iterator[Ordering]:
    for K in (10, 25, 50):
        iw, elbo = (Side("mixture", "toy", f"{name}-{K}") for name in ("iw", "elbo"))
        yield Ordering(
            f"Toy: importance weighting beats the ELBO in -log p(w), K = {K}", W, iw, elbo
        )
    for wine in WINES:
        flow, xd = Side("uci", wine, "iw-50"), Side("uci", wine, "xd")
        name = NAMES[wine].split(",")[0]
        yield Ordering(f"{name}: the flow beats XD in -log p(v)", V, flow, xd)
        average = Side("uci", wine, "xd-average")
        yield Ordering(f"{name}: the flow beats the averaged XD in -log p(v)", V, flow, average)
        noisy = Side("ablation", wine, "noisy")
        words = f"{name}: deconvolution beats the flow on noisy rows in -log p(v)"
        yield Ordering(words, V, flow, noisy)
    before, after = (Side("pretraining", "toy", name) for name in ("pretrained", "after"))
    words = "Toy: variational fitting makes the -log p(v) of pretrained flows worse"
    yield Ordering(words, V, before, after)


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
        return (
            "The paper's split and noise are not known: ours are five shuffled splits, between "
            f"which the same method moves by {ours.sd:.3f}. How much of the gap that is, is not "
            "known."
        )
    if abs(ours.mean - paper.mean) <= 2 * TEST_SET_SD:
        truth = summary.figure("truth_v" if score == V else "truth_w")
        value = f"; on ours the truth itself has {truth.mean:.3f}" if truth else ""
        return f"Other rows: 50,000 test rows alone move this by {TEST_SET_SD}{value}."
    if protocol.name == PAPER.name:
        return "Not known; dropout and the choice of the epoch leave room in the paper's words."
    settings = summary.runs[0]["settings"]
    if "learning_rate" not in settings:
        return "Not known."
    times = settings["learning_rate"] / PAPER.learning_rate
    return (
        f"The protocol: {_epochs(settings['epochs'])} epochs where the paper has {PAPER.epochs}, a "
        f"learning rate that starts {times:.0f} times as high, no dropout, half the hidden "
        "features. Whether the paper's own protocol gives its number is not known here."
    )


def _epochs(epochs: int | dict[str, int]) -> str:
    if isinstance(epochs, int):
        return str(epochs)
    return " and ".join(f"{count} ({part})" for part, count in epochs.items())
