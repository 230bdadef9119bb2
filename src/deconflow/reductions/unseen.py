"""A selection: rows that were not seen are simulated, so that an engine fits all there are."""

from dataclasses import dataclass, replace

from deconflow.core import EVERYTHING, Run
from deconflow.observations import Observations
from deconflow.reductions.base import Learned, PlainFit
from deconflow.reductions.known import Known
from deconflow.reductions.unseen_rows import DRAWS, SeenShare, with_unseen_rows


@dataclass(frozen=True)
class Unseen:
    """Reduction of rows of which some were not seen."""

    known: Known
    name = "a selection"
    takes = EVERYTHING - {
        "covariates", "atoms", "background", "limits", "counts", "errors to learn", "beyond memory",
    }  # fmt: skip

    def applies(self, rows: Observations) -> bool:
        """Whether there is a selection."""
        return rows.selection is not None

    def prepare(self, rows: Observations, run: Run, fit: PlainFit) -> tuple[Observations, Learned]:
        """Return rows with simulated ones among them."""
        rule, rng = rows.selection, run.rng()
        rows = replace(rows, selection=None)
        drawn = fit(rows, run).sample(DRAWS, rng) if rule.of_truth else None
        data, seen = with_unseen_rows(rule, rows, drawn, self.known.bounds, rng, run.threads)
        return data, SelectionFound(seen)


@dataclass(frozen=True)
class SelectionFound(Learned):
    """The share of all rows that is seen."""

    seen: SeenShare

    def words(self) -> list[str]:
        """Return what was seen, and what that rests on."""
        return self.seen.in_words()
