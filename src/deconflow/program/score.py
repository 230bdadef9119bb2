"""``deconflow score``: how probable each row is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from deconflow._types import Array
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Chunk, Model, Prefix, Quiet, Table
from deconflow.program.streaming import (
    NewColumn,
    answers,
    append_columns,
    open_for,
    refuse_useless,
    report_counts,
)
from deconflow.tables import RowReader

if TYPE_CHECKING:
    from deconflow.noise import Noise

LOG_DENSITY = NewColumn("log_density", "log density of the measurement, log p(w)")


def score(
    model: Model,
    table: Table,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write the table, with each row's log density."),
    ] = None,
    prefix: Prefix = "",
    chunk: Chunk = 50_000,
    quiet: Quiet = False,
) -> None:
    """Give the log density of measurements.

    Larger is better, on rows that were not fitted.

    Example: deconflow score model stars.csv -o scored.csv
    """
    with one_line_errors():
        saved = load(model)
        reader = saved.reader(open_for(table, output))
        total = Mean(saved.estimator)
        if output is None:
            counts = _without_output(reader, total, chunk, progress=not quiet)
        else:
            counts = append_columns(
                reader, output, [LOG_DENSITY], total,
                prefix=prefix, chunk=chunk, progress=not quiet,
            )  # fmt: skip
        say(f"{total}; {report_counts(counts)}", table=output)


class Mean:
    """Scores rows, and keeps their mean and its error."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def __call__(self, w: Array, noise: Noise) -> Array:
        """Log density of each measurement, ``(n, 1)``."""
        scores = self.estimator.score_observations(w, noise=noise)
        new = self.count + len(scores)
        step = scores.mean() - self.mean
        self.squares += scores.var() * len(scores) + step**2 * self.count * len(scores) / new
        self.mean += step * len(scores) / new
        self.count = new
        return scores[:, None]

    def __str__(self) -> str:
        error = np.sqrt(self.squares) / self.count
        return f"mean log p(w) {self.mean:.6f} +- {error:.6f}"


def _without_output(reader: RowReader, total: Mean, chunk: int, *, progress: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _, _, status in answers(reader, 1, total, chunk, progress, reader.needed):
        counts.update(status)
    refuse_useless(counts, reader.source.name)
    return counts
