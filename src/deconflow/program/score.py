"""``deconflow score``: how probable each row is, and how unusual."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from deconflow._types import Array
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Chunk, Model, Prefix, Quiet, Table
from deconflow.program.streaming import NewColumn, append_columns, open_for, report_counts
from deconflow.tables import Rows

SCORES = (
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
        from deconflow.evaluation import PValueCounts

        saved, p_values, parts = load(model), PValueCounts(), []
        ask = saved.estimator

        def scores(rows: Rows) -> Array:
            """Log density and p-value of each measurement, ``(n, 2)``."""
            p, found = rows.ask(ask.p_values), rows.ask(ask.score_observations)
            parts.append((len(found), found.mean(), found.var()))
            return np.column_stack([found, p])

        counts = append_columns(
            saved.reader(open_for(table, output)), output, SCORES, scores, prefix=prefix,
            chunk=chunk, progress=not quiet, watch=lambda values: p_values.add(values[:, 1]),
        )  # fmt: skip
        sizes, means, variances = np.array(parts).T
        mean = np.average(means, weights=sizes)
        error = np.sqrt(sizes @ (variances + (means - mean) ** 2)) / sizes.sum()
        words = f"mean log p(w) {mean:.6f} +- {error:.6f}; {report_counts(counts)}"
        say(words, str(p_values), table=output)
