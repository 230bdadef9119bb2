"""``deconflow score``: how probable each row is, and how unusual."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow import ranks
from deconflow._types import Array
from deconflow.program.many_files import ManyFiles, counts_of, end_of, is_for_many, refuse_resume
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Chunk, Model, Prefix, Quiet, ResumeFiles, Table
from deconflow.program.streaming import (
    NewColumn,
    answers,
    append_columns,
    open_for,
    refuse_useless,
    report_counts,
    rows_bar,
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
    resume: ResumeFiles = False,
    quiet: Quiet = False,
) -> None:
    """Give the log density of measurements, and how unusual each is.

    A larger log density is better, on rows that were not fitted. A small p-value says that a row
    is unusual, given its error; of many rows a few are so by chance, and the last line says how
    many of these to expect.

    Example: deconflow score model stars.csv -o scored.csv
    """
    many = is_for_many(table, output)
    with one_line_errors(" Go on with --resume." if many else ""):
        saved = load(model)
        if many and output is not None:
            files = ManyFiles(
                saved, table, output, {"command": "score"},
                prefix=prefix, chunk=chunk, resume=resume, progress=not quiet,
            )  # fmt: skip
            _score_files(files)
            return
        refuse_resume(resume)
        scores = Scores(saved.estimator)
        reader = saved.reader(open_for(table, output))
        if output is None:
            counts = _without_output(reader, scores, chunk, progress=not quiet)
        else:
            counts = append_columns(
                reader, output, COLUMNS, scores,
                prefix=prefix, chunk=chunk, progress=not quiet, watch=scores.watch,
            )  # fmt: skip
        say(*scores.in_words(report_counts(counts)), table=output)


class Scores:
    """Scores rows; keeps the mean, its error, and how unusual they are, in a few numbers.

    Parameters
    ----------
    estimator
        What scores them.
    table
        Name of the file, where there are several.
    """

    def __init__(self, estimator: Any, table: str = "") -> None:
        from deconflow.evaluation import PValueCounts

        self.estimator, self.table = estimator, table
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.n_rows, self.p_values = 0, PValueCounts()

    def __call__(self, rows: Rows) -> Array:
        """Log density and p-value of each measurement, ``(n, 2)``."""
        p = self.estimator.p_values(rows.w, **rows.arguments)
        scores = self.estimator.score_observations(rows.w, **rows.arguments)
        self._add(len(scores), scores.mean(), scores.var() * len(scores))
        return np.column_stack([scores, p])

    def _add(self, count: int, mean: float, squares: float) -> None:
        """Add rows of a mean and a sum of squares around it."""
        if count == 0:
            return
        new = self.count + count
        step = mean - self.mean
        self.squares += squares + step**2 * self.count * count / new
        self.mean += step * count / new
        self.count = new

    def watch(self, values: Array) -> None:
        """Count the p-values of a chunk."""
        self.p_values.add(values[:, 1], self.n_rows, self.table)
        self.n_rows += len(values)

    def figures(self) -> dict[str, Any]:
        """Return what is kept, as JSON can hold it."""
        kept = [self.count, float(self.mean), float(self.squares)]
        return {"mean": kept, "p_values": self.p_values.as_dict()}

    def merge(self, figures: dict[str, Any]) -> None:
        """Add what was kept of later rows."""
        self._add(*figures["mean"])
        self.p_values.merge(type(self.p_values).from_dict(figures["p_values"]))

    def in_words(self, counts: str) -> list[str]:
        """Say the mean, the counts of rows, and how many are unusual."""
        error = np.sqrt(self.squares) / self.count
        return [f"mean log p(w) {self.mean:.6f} +- {error:.6f}; {counts}", str(self.p_values)]


def _score_files(files: ManyFiles) -> None:
    """Write each file of a folder with its rows' scores, and say what they are together."""
    with ranks.started(), one_line_errors(" Go on with --resume."):
        outcome = files.write(COLUMNS, lambda name: Scores(files.saved.estimator, name))
        counts, all_rows = counts_of(outcome, files.table), Scores(files.saved.estimator)
        for figures in outcome.figures.values():
            all_rows.merge(figures)
        if all_rows.count:
            words = f"{report_counts(counts)} of {len(outcome.figures)} files"
            say(*all_rows.in_words(words))
        end_of(outcome, files.output)


def _without_output(
    reader: RowReader, scores: Scores, chunk: int, *, progress: bool
) -> Counter[str]:
    counts: Counter[str] = Counter()
    with rows_bar(reader.source.n_rows, progress) as bar:
        for _, values, status in answers(reader, len(COLUMNS), scores, chunk, bar, reader.needed):
            counts.update(status)
            scores.watch(values)
    refuse_useless(counts, reader.source.name)
    return counts
