"""The paper's findings on our records, and our numbers that differ from the paper's."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from paper.data import WINES
from paper.numbers import FILE_ORDER, V_FITTED, Figure, V, W, printed
from paper.records import Run, Runs
from paper.render import DATASETS, deviation, figure, runs_of
from paper.tables import TABLES

#: The runs of every table, by its name.
AllRuns = dict[str, Runs]


class Place(NamedTuple):
    """A row of a table on some data."""

    table: str
    dataset: str
    row: str


class Ordering(NamedTuple):
    """A finding of the paper: one row scores lower, which is better, than another."""

    words: str
    score: str
    better: Place
    worse: Place

    def gaps(self, runs: AllRuns) -> list[float]:
        """Return by how much it holds, for each seed that both have."""
        low, high = (
            {
                run["seed"]: run[self.score]
                for run in self._runs(place, runs)
                if run.get(self.score) is not None
            }
            for place in (self.better, self.worse)
        )
        return [high[seed] - low[seed] for seed in sorted(low.keys() & high.keys())]

    def _runs(self, place: Place, runs: AllRuns) -> list[Run]:
        return runs_of(runs.get(place.table, {}), place.dataset, place.row)

    def _fits(self, runs: AllRuns) -> dict[str, str]:
        """Return the rows that are compared, and those whose fits they are."""
        return {
            place.row: run.get("same_fit_as", place.row)
            for place in (self.better, self.worse)
            for run in self._runs(place, runs)
        }

    def verdict(self, runs: AllRuns) -> str:
        """Say whether it holds in the mean over the seeds, and by how much."""
        gaps = self.gaps(runs)
        if not gaps:
            return "not run"
        fits = self._fits(runs)
        if len(set(fits.values())) == 1:
            return "not tested: one fit serves both"
        others = "".join(f" ({row} is the fit of {fit})" for row, fit in fits.items() if row != fit)
        return self._in_words(gaps) + others

    def _in_words(self, gaps: Sequence[float]) -> str:
        mean = fmean(gaps)
        words = f"{'holds' if mean > 0 else 'does not hold'}: by {mean:+.4f}"
        if len(gaps) < 2:
            return f"{words} with one seed"
        error = deviation(gaps) / len(gaps) ** 0.5
        sure = "" if abs(mean) > 2 * error else ", within two standard errors of nothing"
        return f"{words} ± {error:.4f} over {len(gaps)} seeds{sure}"


def _toy(words: str, score: str, better: str, worse: str, table: str = "mixture") -> Ordering:
    return Ordering(f"Toy: {words}", score, *(Place(table, "toy", row) for row in (better, worse)))


def _fitted(wine: str) -> Iterator[Ordering]:
    """Compare on the rows that were fitted, as the paper does, the settings being the paper's."""
    name, dataset = DATASETS[wine].split(",")[0], wine + FILE_ORDER
    flow, xd = (Place("uci", dataset, row) for row in ("iw-50", "xd-paper"))
    noisy = Place("ablation", dataset, "noisy")
    for words, better, worse in (
        ("the flow beats XD", flow, xd),
        ("deconvolution beats the flow on noisy rows", flow, noisy),
        ("the flow on noisy rows beats XD", noisy, xd),
    ):
        for score, rows in ((V_FITTED, "fitted"), (V, "held-out")):
            yield Ordering(f"{name}, file order: {words} on {rows} rows", score, better, worse)


def _wine(wine: str) -> Iterator[Ordering]:
    name, end = DATASETS[wine].split(",")[0], "in -log p(v)"
    flow, xd, as_paper = (Place("uci", wine, row) for row in ("iw-50", "xd", "xd-paper"))
    noisy = Place("ablation", wine, "noisy")
    for words, better, worse in (
        (f"{name}: the flow beats XD", flow, xd),
        (f"{name}: deconvolution beats the flow on noisy rows", flow, noisy),
        (f"{name}: the flow on noisy rows beats XD", noisy, xd),
        (
            f"(ours) {name}: the flow on noisy rows beats XD with the paper's settings",
            noisy,
            as_paper,
        ),
    ):
        yield Ordering(f"{words} {end}", V, better, worse)


_IW = "importance weighting"
_BEST = "XD beats the paper's best flow"
_AFTER = "variational fitting makes the -log p(v) of pretrained flows worse"
_EXACT = "the exact posterior of a mixture beats a flow posterior in -log p(v)"
ORDERINGS = (
    *(
        _toy(f"{_IW} beats the ELBO in -log p(w), K = {K}", W, f"iw-{K}", f"elbo-{K}")
        for K in (10, 25, 50)
    ),
    _toy("the ELBO's -log p(w) is better with K = 50 than with K = 1", W, "elbo-50", "elbo-1"),
    _toy(f"{_IW}'s -log p(w) is better with K = 50 than with K = 10", W, "iw-50", "iw-10"),
    _toy(f"{_BEST} (IW, K = 10) in -log p(v)", V, "xd", "iw-10"),
    _toy(f"{_BEST} (IW, K = 50) in -log p(w)", W, "xd", "iw-50"),
    *(ordering for wine in WINES for ordering in (*_fitted(wine), *_wine(wine))),
    _toy(_AFTER, V, "pretrained", "after", "pretraining"),
    _toy(_EXACT, V, "gmm-exact", "gmm-flow", "pretraining"),
)


def differences(runs: AllRuns) -> Iterator[tuple[str, Figure, Figure]]:
    """Name our numbers that are more than two of the paper's standard deviations from its own.

    Each comes with ours and the paper's. Those of the wines are of fitted rows in file order.
    """
    words = {V: "-log p(v)", W: "-log p(w)", V_FITTED: "-log p(v) of fitted rows"}
    for table in TABLES.values():
        for dataset in table.seeds:
            for row in table.rows:
                for score in words:
                    ours = figure(runs_of(runs.get(table.name, {}), dataset, row.name), score)
                    paper = printed(dataset, row.name, score)
                    if ours and paper and abs(ours.mean - paper.mean) > 2 * paper.sd:
                        wine = dataset.removesuffix(FILE_ORDER)
                        where = "" if dataset == "toy" else f"{wine} wine, "
                        group = "pretraining, " if table.name == "pretraining" else ""
                        yield f"{where}{group}{row.title}, {words[score]}", ours, paper
