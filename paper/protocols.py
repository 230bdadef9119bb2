"""The paper's tables, the numbers that it prints, and with what networks and how long to run it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

V, W = "minus_log_p_v", "minus_log_p_w"
#: The scores, as they are called in the records; the last two are of the wines alone.
V_WITHOUT_COPY, V_FITTED = f"{V}_without_copy", f"{V}_fitted"

WINES = ("white", "red")
#: Ends the name of a wine whose rows are split in the order of the file.
FILE_ORDER = "-file"


class Figure(NamedTuple):
    """A mean over some runs, and their standard deviation."""

    mean: float
    sd: float


_XD = {"white": (9.903, 0.112), "red": (8.775, 0.152)}
#: By data and row: mean and standard deviation of -log p(v) and, on the toy, of -log p(w).
PRINTED: dict[str, dict[str, tuple[float, ...]]] = {
    "toy": {
        "xd": (2.667, 0.000, 3.600, 0.000),
        "elbo-1": (2.897, 0.046, 3.609, 0.002),
        "elbo-10": (3.015, 0.228, 3.607, 0.002),
        "elbo-25": (2.858, 0.077, 3.606, 0.004),
        "elbo-50": (2.913, 0.174, 3.605, 0.001),
        "iw-10": (2.854, 0.083, 3.604, 0.002),
        "iw-25": (2.871, 0.045, 3.604, 0.001),
        "iw-50": (3.070, 0.499, 3.603, 0.001),
        "pretrained": (2.675, 0.017, 3.601, 0.002),
        "after": (2.729, 0.035, 3.602, 0.001),
        "gmm-flow": (2.731, 0.008, 3.602, 0.000),
        "gmm-exact": (2.666, 0.001, 3.600, 0.000),
    },
    "white": {
        "xd": _XD["white"],
        "xd-paper": _XD["white"],
        "iw-50": (8.685, 0.082),
        "noisy": (9.544, 0.184),
    },
    "red": {
        "xd": _XD["red"],
        "xd-paper": _XD["red"],
        "iw-50": (8.083, 0.128),
        "noisy": (8.611, 0.254),
    },
}

#: The paper's grid for the wines, for flows and for XD.
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "flow": {
        "learning_rate": (0.001, 0.0005, 0.0001),
        "n_layers": (3, 4, 5),
        "posterior_layers": (3, 4, 5),
        "hidden": (64, 128),
        "n_blocks": (1, 2),
    },
    "xd": {"learning_rate": (0.01, 0.005, 0.001), "n_components": (20, 50, 100, 200, 300)},
}

_FLOW = {"learning_rate": 0.001, "hidden": 128, "n_blocks": 1}
#: What the paper chose from its grid.
CHOSEN: dict[tuple[str, str], dict[str, Any]] = {
    ("white", "flow"): {**_FLOW, "n_layers": 3, "posterior_layers": 4},
    ("red", "flow"): {**_FLOW, "n_layers": 5, "posterior_layers": 5},
    ("white", "xd"): {"learning_rate": 0.01, "n_components": 300},
    ("red", "xd"): {"learning_rate": 0.005, "n_components": 20},
}


def printed(dataset: str, row: str, score: str) -> Figure | None:
    """Return what the paper prints, which may be nothing.

    On the wines its numbers are of the rows that were fitted, in the order of the file: in
    ``experiments/flows/train_final_alt.py`` of its repository, lines 98 and 99, training and test
    rows are the same ``data[:n_train]``. XD's script is not published; it is taken to be alike.
    """
    of_fitted_rows = dataset.endswith(FILE_ORDER)
    if (score == V_FITTED) != of_fitted_rows or (dataset != "toy" and not of_fitted_rows):
        return None
    numbers = PRINTED[dataset.removesuffix(FILE_ORDER)].get(row, ())
    pair = numbers[2:] if score == W else numbers[:2]
    return Figure(*pair) if pair else None


#: Where a fit ends that early stopping has not ended.
MOST_EPOCHS = 10_000

#: Of the rows of a wine.
EARLY_STOPPING_SHARE = 0.1


@dataclass(frozen=True)
class Rung:
    """A round of successive halving: how many settings, on how many folds, for how long."""

    settings: int
    folds: int
    epochs: int


@dataclass(frozen=True)
class Protocol:
    """Sizes and lengths of all experiments; tests make smaller ones.

    Rows, networks and learning rates are those of the toy, unless the name says otherwise.

    Attributes
    ----------
    mixture_learning_rate : float
        Of the rows whose prior is a Gaussian mixture.
    pretraining_learning_rate, pretraining_factor : float
        Of the flows that are trained by themselves: Adam's step size at the start, and what it is
        multiplied with where it has brought nothing for long.
    epochs, exact_epochs : int
        Of every flow on the toy, and of the mixture with its exact posterior, unless
        ``evaluations`` end them before.
    elbo_draws : int or None
        Draws per row in a step of the evidence lower bound, at the most: its expectation is the
        same with any number. None for as many as the row says.
    evaluations : int or None
        Flow evaluations per run, of prior and posterior together: a pass through ``n`` rows with
        ``K`` draws takes ``2 K n``. On the wines early stopping may end a run before. None for no
        limit.
    patience : int
        Epochs without improvement that end a fit on the wines.
    scored_draws, kept_draws : int
        Draws per row for -log p(w); draws of prior and posterior for the figures.
    folds, rungs
        Of the grid search: without rungs all settings on all folds, with them successive halving.
    """

    name: str
    train_rows: int = 50_000
    validation_rows: int = 12_500
    test_rows: int = 50_000
    hidden: int = 128
    layers: int = 5
    blocks: int = 2
    dropout: float = 0.2
    batch_size: int = 512
    learning_rate: float = 1e-4
    mixture_learning_rate: float = 1e-3
    pretraining_learning_rate: float = 1e-3
    pretraining_factor: float = 0.5
    schedule: str = "plateau"
    clip_norm: float | None = None
    epochs: int = 300
    exact_epochs: int = 150
    elbo_draws: int | None = None
    evaluations: int | None = None
    wine_rows: int | None = None
    wine_batch_size: int = 100
    patience: int = 30
    scored_draws: int = 100
    folds: int = 5
    rungs: tuple[Rung, ...] = ()
    kept_draws: int = 10_000

    def epochs_for(
        self, evaluations_per_row: int, n_rows: int, *, exact_posterior: bool = False
    ) -> int:
        """Return the published number of epochs, or as many of them as the budget allows."""
        published = self.exact_epochs if exact_posterior else self.epochs
        return min(published, self._within_budget(evaluations_per_row, n_rows))

    def draws(self, objective: str, K: int) -> int:
        """Return with how many draws per row and step a row of the paper with ``K`` is fitted."""
        return min(K, self.elbo_draws or K) if objective == "elbo" else K

    def wine_epochs(self, evaluations_per_row: int, n_rows: int) -> int:
        """Return the longest that a fit on the wines may take; patience ends it before."""
        return min(MOST_EPOCHS, self._within_budget(evaluations_per_row, n_rows))

    def _within_budget(self, evaluations_per_row: int, n_rows: int) -> int:
        if self.evaluations is None:
            return MOST_EPOCHS
        return max(1, round(self.evaluations / (evaluations_per_row * n_rows)))


#: The appendix to the letter and, where it is silent, the scripts of the paper's repository:
#: ``experiments/flows/svi_gmm.sh``, ``svi_exact_gmm.sh`` and ``pretraining.py``.
PAPER = Protocol("paper")

#: About ten minutes of one core: ``results/flow_evaluation.json`` has 18 to 24 microseconds for one
#: evaluation with K of 10 to 50, and 49 with K = 1, where a step is mostly overhead.
EVALUATIONS = 25_000_000

#: The same for every flow of a table: equal flow evaluations, narrower, faster and decaying.
BUDGET = Protocol(
    "budget",
    hidden=64,
    dropout=0.0,
    learning_rate=2e-3,
    pretraining_learning_rate=2e-3,
    schedule="cosine",
    clip_norm=5.0,
    elbo_draws=1,
    evaluations=EVALUATIONS,
    rungs=(Rung(108, 1, 2), Rung(27, 1, 8), Rung(7, 5, 8), Rung(2, 5, 20)),
)

PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, BUDGET)}

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
