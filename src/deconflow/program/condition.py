"""``deconflow condition``: some columns, given others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from deconflow._types import Array
from deconflow.program.denoise import PosteriorColumns, parse_shares
from deconflow.program.known import refuse_covariates
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Chunk, Model, Output, Prefix, Quantiles, Quiet, Seed, Table
from deconflow.program.streaming import (
    Compute,
    NewColumn,
    append_columns,
    open_for,
    report_counts,
    units_of,
)
from deconflow.tables import RowReader, Rows, Source, split_list


def condition(
    model: Model,
    table: Table,
    output: Output,
    given: Annotated[list[str], typer.Option("--given", "-g", help="Columns that are known.")],
    density: Annotated[
        bool,
        typer.Option(
            "--density", help="The log density of the other columns' measurements instead."
        ),
    ] = False,
    quantiles: Quantiles = "",
    prefix: Prefix = "",
    chunk: Chunk = 20_000,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Predict columns of each row from others.

    The columns that are given count with their errors.

    Example: deconflow condition model stars.csv --given x -o predicted.csv
    """
    with one_line_errors():
        saved = load(model)
        known = _known(saved, split_list(given, saved.names))
        if not saved.takes_missing_values:
            refuse_covariates(saved.estimator, "predictions by a method that needs whole rows")
        source = open_for(table, output)
        reader, columns, compute = (
            _density(saved, source, known)
            if density
            else _prediction(saved, source, known, parse_shares(quantiles), seed)
        )
        counts = append_columns(
            reader, output, columns, compute,
            prefix=prefix, chunk=chunk, progress=not quiet,
        )  # fmt: skip
        say(f"{report_counts(counts)}; written to {output}", table=output)


Plan = tuple[RowReader, list[NewColumn], Compute]


def _prediction(
    saved: ModelFolder, source: Source, known: list[str], shares: list[float], seed: int
) -> Plan:
    others = [name for name in saved.names if name not in known]
    reader = saved.reader(source, known)
    given = None if saved.takes_missing_values else [saved.names.index(name) for name in known]
    columns = PosteriorColumns(
        saved.estimator, reader.columns.law, saved.names, shares,
        targets=others, given=given, seed=seed, units=units_of(saved, source),
    )  # fmt: skip
    return reader, columns.columns, columns


def _density(saved: ModelFolder, source: Source, known: list[str]) -> Plan:
    if not saved.takes_missing_values:
        raise ValueError(
            "Expected a model that takes missing values for --density; "
            f"got one of --method {saved.method}. Fit one with --method xd."
        )
    dims = [saved.names.index(name) for name in known]
    compute = ConditionalDensity(saved.estimator, dims)
    words = f"log density of the measurement, given {', '.join(known)}"
    return saved.reader(source), [NewColumn("conditional_log_density", words)], compute


@dataclass(frozen=True)
class ConditionalDensity:
    """Log density ``log p(w) - log p(w of the known dimensions)``."""

    estimator: Any
    known: list[int]

    def __call__(self, rows: Rows) -> Array:
        """Compute it for rows, ``(n, 1)``; NaN where nothing is known."""
        known = rows.only(self.known)
        some = ~np.isnan(known.w).all(axis=1)
        answer = np.full(len(rows), np.nan)
        if some.any():
            whole, part = rows[some], known[some]
            answer[some] = self.estimator.score_observations(
                whole.w, **whole.arguments
            ) - self.estimator.score_observations(part.w, **part.arguments)
        return answer[:, None]


def _known(saved: ModelFolder, given: list[str]) -> list[str]:
    for name in given:
        if name not in saved.names:
            raise ValueError(
                f"Expected --given with some of {', '.join(saved.names)}; got {name!r}."
            )
    if not given or len(set(given)) >= len(saved.names):
        raise ValueError(
            f"Expected --given with some, but not all, of {', '.join(saved.names)}; got "
            f"{', '.join(given) or 'none'}."
        )
    return list(dict.fromkeys(given))
