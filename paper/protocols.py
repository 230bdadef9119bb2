"""How long and with what networks the experiments are run: the paper's way, and ours."""

from dataclasses import dataclass

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
