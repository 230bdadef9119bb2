"""The paper's findings, checked on our records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from deconflow.reproduction.books import Books
from deconflow.reproduction.data import WINES
from deconflow.reproduction.tables import NAMES, Summary, V, W, deviation


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
    few, many = (Side("mixture", "toy", f"elbo-{K}") for K in (1, 50))
    yield Ordering("Toy: the ELBO's -log p(w) is better with K = 50 than with K = 1", W, many, few)
    words = "Toy: importance weighting's -log p(w) is better with K = 50 than with"
    few, many = (Side("mixture", "toy", f"iw-{K}") for K in (10, 50))
    yield Ordering(f"{words} K = 10", W, many, few)
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
    words = f"(ours) {name}: the flow on noisy rows beats XD with the paper's settings in -log p(v)"
    yield Ordering(words, V, noisy, Side("uci", wine, "xd-paper"))
    words = f"(ours) {name}: the flow beats the averaged XD in -log p(v)"
    yield Ordering(words, V, flow, average)
    words = f"(ours) {name}: our default beats the averaged XD in -log p(v)"
    yield Ordering(words, V, Side("uci", wine, "default"), average)


def _pretraining_orderings() -> Iterator[Ordering]:
    names = ("pretrained", "after", "gmm-flow", "gmm-exact")
    before, after, flow, exact = (Side("pretraining", "toy", name) for name in names)
    words = "Toy: variational fitting makes the -log p(v) of pretrained flows worse"
    yield Ordering(words, V, before, after)
    words = "Toy: the exact posterior of a mixture beats a flow posterior in -log p(v)"
    yield Ordering(words, V, exact, flow)


ORDERINGS = tuple(_orderings())
