"""The paper's tables: their rows, their data, and the seeds that each is run with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paper.data import WINES
from paper.protocols import FILE_ORDER

SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Row:
    """One line of a table: made by a fit of :mod:`paper.fits`, by its name, with some options.

    ``needs`` names a row of the same table whose model it starts from.
    """

    name: str
    title: str
    fit: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    needs: str | None = None


@dataclass(frozen=True)
class Task:
    """One run: a row of a table on some data, with a seed."""

    table: str
    dataset: str
    row: Row
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the other runs of its table."""
        return self.dataset, self.row.name, self.seed

    @property
    def stem(self) -> str:
        """A name for its files."""
        return f"{self.table}.{self.dataset}.{self.row.name}.{self.seed}".replace(" ", "_")


@dataclass(frozen=True)
class Table:
    """A table of the paper; ``seeds`` has those of a complete table, by data."""

    name: str
    title: str
    rows: tuple[Row, ...]
    seeds: dict[str, tuple[int, ...]]

    def tasks(self, chosen: Sequence[str] = (), seeds: Iterable[int] | None = None) -> list[Task]:
        """Return runs, seed by seed; ``chosen`` names rows, data, or both."""
        names = self._rows_named(chosen)
        datasets = [dataset for dataset in self.seeds if dataset in chosen] or self.seeds
        wanted = {dataset: tuple(seeds or self.seeds[dataset]) for dataset in datasets}
        return [
            Task(self.name, dataset, row, seed)
            for seed in sorted(set().union(*wanted.values()))
            for dataset in datasets
            for row in self.rows
            if row.name in names and seed in wanted[dataset]
        ]

    def _rows_named(self, chosen: Sequence[str]) -> set[str]:
        """Return the rows that are named, all if none is, with those that they need."""
        known = [row.name for row in self.rows]
        for name in chosen:
            if name not in known and name not in self.seeds:
                words = ", ".join([*known, *self.seeds])
                raise ValueError(f"Expected --rows of {self.name} from {words}; got {name!r}.")
        named = {name for name in chosen if name in known} or set(known)
        return named | {row.needs for row in self.rows if row.needs and row.name in named}


def _bound(objective: str, K: int) -> Row:
    words = {"elbo": "evidence lower bound", "iw": "importance weighted"}[objective]
    options = {"objective": objective, "n_draws": K}
    return Row(f"{objective}-{K}", f"Flow, {words}, K = {K}", "toy_flow", options)


_DEFAULT = Row("default", "`Deconvolver`, our default", "default")
_GMM = {"flow": "gaussian_mixture", "base_components": 3, "objective": "elbo", "n_draws": 50}
_WINE_SEEDS: dict[str, tuple[int, ...]] = {wine: SEEDS for wine in WINES} | {
    wine + FILE_ORDER: SEEDS[:3] for wine in WINES
}

MIXTURE = Table(
    "mixture",
    "Mixture of Gaussians",
    (
        Row("xd", "XD-GMM", "toy_xd"),
        *(_bound("elbo", K) for K in (1, 10, 25, 50)),
        *(_bound("iw", K) for K in (10, 25, 50)),
        _DEFAULT,
    ),
    {"toy": SEEDS},
)
PRETRAINING = Table(
    "pretraining",
    "Pretraining",
    (
        Row("pretrained", "Pretrained flows", "pretrained"),
        Row("after", "After variational fitting", "after_pretraining", needs="pretrained"),
        Row("gmm-flow", "GMM, flow posterior", "toy_flow", {**_GMM, "posterior_family": "flow"}),
        Row("gmm-exact", "GMM, exact posterior", "toy_flow", {**_GMM, "posterior_family": "exact"}),
    ),
    {"toy": SEEDS[:3]},
)
_XD_TITLE = "XD-GMM, by gradients"
UCI = Table(
    "uci",
    "Two wines",
    (
        Row("xd", _XD_TITLE, "wine_xd"),
        Row("xd-paper", f"{_XD_TITLE}, the paper's settings", "wine_xd", {"as_paper": True}),
        Row("iw-50", "Flow, importance weighted, K = 50", "wine_flow", {"n_draws": 50}),
        _DEFAULT,
    ),
    _WINE_SEEDS,
)
ABLATION = Table(
    "ablation",
    "Two wines, without deconvolution",
    (
        Row("noisy", "Flow on noisy rows, no deconvolution", "wine_plain", {"fitted": "w"}),
        Row("clean", "Flow on clean rows (oracle)", "wine_plain", {"fitted": "v"}),
    ),
    _WINE_SEEDS,
)
TABLES = {table.name: table for table in (MIXTURE, PRETRAINING, UCI, ABLATION)}
