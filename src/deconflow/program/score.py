"""``deconflow score``: how probable each row is, and how unusual."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow._types import Array
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Chunk, Model, Prefix, Quiet, Table
from deconflow.program.streaming import NewColumn, append_columns, open_for, report_counts
from deconflow.tables import Rows

COLUMNS = (
    NewColumn("log_density", "log density of the measurement, log p(w)"),
    NewColumn("p_value", "probability of a measurement as unusual as this, given its error"),
)


def score(
    model: Model,
    table: Table,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Also write the table, with each row's log density and p-value."
        ),
    ] = None,
    prefix: Prefix = "",
    chunk: Chunk = 50_000,
    quiet: Quiet = False,
) -> None:
    """Give the log density of measurements, and how unusual each is.

    A larger log density is better, on rows that were not fitted. A small p-value says that a row
    is unusual, given its error; of many rows a few are so by chance, and the last line says how
    many of these to expect.

    Example: deconflow score model stars.csv -o scored.csv
    """
    with one_line_errors():
        saved = load(model)
        scores = Scores(saved.estimator)
        reader = saved.reader(open_for(table, output))
        counts = append_columns(
            reader, output, COLUMNS, scores,
            prefix=prefix, chunk=chunk, progress=not quiet, watch=scores.watch,
        )  # fmt: skip
        say(*scores.in_words(report_counts(counts)), table=output)


class Scores:
    """Scores of rows: their mean, its error, and counts of p-values, over all chunks."""

    def __init__(self, estimator: Any) -> None:
        from deconflow.evaluation import PValueCounts

        self.estimator = estimator
        self.parts: list[tuple[int, float, float]] = []
        self.p_values = PValueCounts()

    def __call__(self, rows: Rows) -> Array:
        """Log density and p-value of each measurement, ``(n, 2)``."""
        p = rows.ask(self.estimator.p_values)
        scores = rows.ask(self.estimator.score_observations)
        self.parts.append((len(scores), scores.mean(), scores.var()))
        return np.column_stack([scores, p])

    def watch(self, values: Array) -> None:
        """Count the p-values of a chunk."""
        self.p_values.add(values[:, 1])

    def in_words(self, counts: str) -> list[str]:
        """Say the mean, the counts of rows, and how many are unusual."""
        sizes, means, variances = np.array(self.parts).T
        mean = np.average(means, weights=sizes)
        error = np.sqrt(sizes @ (variances + (means - mean) ** 2)) / sizes.sum()
        return [f"mean log p(w) {mean:.6f} +- {error:.6f}; {counts}", str(self.p_values)]
