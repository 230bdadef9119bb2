"""``deconflow score``: how probable each row is, and how unusual."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

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
from deconflow.tables import RowReader, Rows

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
        reader = saved.reader(open_for(table, output))
        total, p_values = Mean(saved.estimator), PValues()
        if output is None:
            counts = _without_output(reader, total, p_values, chunk, progress=not quiet)
        else:
            counts = append_columns(
                reader, output, COLUMNS, total,
                prefix=prefix, chunk=chunk, progress=not quiet, watch=p_values,
            )  # fmt: skip
        say(f"{total}; {report_counts(counts)}", str(p_values), table=output)


class Mean:
    """Scores rows, and keeps their mean and its error."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def __call__(self, rows: Rows) -> Array:
        """Log density and p-value of each measurement, ``(n, 2)``."""
        p = self.estimator.p_values(rows.w, **rows.arguments)
        scores = self.estimator.score_observations(rows.w, **rows.arguments)
        new = self.count + len(scores)
        step = scores.mean() - self.mean
        self.squares += scores.var() * len(scores) + step**2 * self.count * len(scores) / new
        self.mean += step * len(scores) / new
        self.count = new
        return np.column_stack([scores, p])

    def __str__(self) -> str:
        error = np.sqrt(self.squares) / self.count
        return f"mean log p(w) {self.mean:.6f} +- {error:.6f}"


class PValues:
    """Keeps the p-values of all rows: eight bytes for each, in the order of the table."""

    def __init__(self) -> None:
        self.parts: list[Array] = []

    def __call__(self, values: Array) -> None:
        """Keep those of a chunk's new columns."""
        self.parts.append(values[:, 1].copy())

    def __str__(self) -> str:
        from deconflow.evaluation import unusual_rows

        return str(unusual_rows(np.concatenate(self.parts)))


def _without_output(
    reader: RowReader, total: Mean, p_values: PValues, chunk: int, *, progress: bool
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _, values, status in answers(reader, len(COLUMNS), total, chunk, progress, reader.needed):
        counts.update(status)
        p_values(values)
    refuse_useless(counts, reader.source.name)
    return counts
