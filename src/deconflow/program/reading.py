"""A table read as the options say, with a word on what was found in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import typer

from deconflow.program.found import Found
from deconflow.program.how import HowSaid
from deconflow.program.known import Known
from deconflow.program.messages import as_options, note
from deconflow.program.options import Table, expand_columns, expand_errors
from deconflow.tables import (
    NOISE_KINDS,
    Columns,
    Measurements,
    RowReader,
    find_columns,
    find_given,
    gathered,
    open_table,
    read_rows,
    split_list,
)

MOST_VALUES = 30_000_000
"""Measured values that are read into memory: ten million rows of three columns, about 2 GiB."""
MOST_BYTES = 2**31
"""The same for a file of text, whose rows are not counted before they are read."""


@dataclass(frozen=True)
class TableSaid:
    """What was said of a table to fit, as it was written."""

    table: Table
    columns: Annotated[
        list[str],
        typer.Option(
            "--columns", "-c", metavar="NAMES", help="Measured columns, such as x,y,z or 'f*'."
        ),
    ]
    errors: Annotated[
        list[str] | None,
        typer.Option(
            "--errors",
            metavar="NAME=ERROR",
            help="Errors: x=COLUMN, x=0.1, x=LOWER:UPPER; 0.1 or '*=0.1' for all columns. "
            "Without it "
            "they are found by name, such as x_err, x_se, e_x, dx, or x_err_lo with x_err_hi.",
        ),
    ] = None
    cov: Annotated[
        list[str] | None,
        typer.Option(
            "--cov",
            metavar="PAIR=COLUMN",
            help="Covariances: x:y=COLUMN; variances: x:x=COLUMN.",
        ),
    ] = None
    corr: Annotated[
        list[str] | None,
        typer.Option(
            "--corr",
            metavar="PAIR=COLUMN",
            help="Error correlations: x:y=COLUMN, or none. Without it x_y_corr.",
        ),
    ] = None
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            help=as_options("; ".join(f"{name}: {words}" for name, words in NOISE_KINDS.items()))
            + ".",
            autocompletion=lambda: list(NOISE_KINDS),
        ),
    ] = "gaussian"
    df: Annotated[
        float, typer.Option("--df", min=0.1, help="Degrees of freedom of student-t noise.")
    ] = 3.0
    missing: Annotated[
        list[str] | None,
        typer.Option(
            "--missing",
            metavar="NUMBERS",
            help="Numbers that stand for a missing value, such as -999.",
        ),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            metavar="COLUMN",
            help="Rows with the same word or number here belong together, as those of one object: "
            "they are never split between a fit and the rows it is judged by.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="COLUMN",
            help="How much each row counts: numbers of at least 0. A row of weight 2 counts as "
            "two.",
        ),
    ] = None


def find_rows(said: TableSaid, how: HowSaid, known: Known) -> RowReader:
    """Find columns and errors in a table; what is known of the truth is checked first."""
    source, groups, weights = open_table(said.table, typed=False), said.groups, said.weights
    names = expand_columns(said.columns, source.names)
    found = find_columns(
        source.names, names, errors=expand_errors(said.errors or (), names),
        covariances=said.cov or (), correlations=said.corr or (), noise=said.noise, df=said.df,
        missing=_numbers(said.missing or []), how=how.find(source, names, said.noise),
    )  # fmt: skip
    if how.id is not None and (groups or weights or known.given) is not None:
        raise ValueError(
            "Expected no --groups, --weights or --given with --id; got one. Leave it out."
        )
    source = gathered(source, found)
    found = replace(found, units=tuple(source.unit(found.place(name)) for name in names))
    for option, column in (("--groups", groups), ("--weights", weights)):
        if column in found.names:
            raise ValueError(f"Expected {option} as a column that is not measured; got {column!r}.")
    known.parameters(found.names)
    given = None if known.given is None else find_given(known.given, source, found.names)
    return RowReader(found, source, groups=groups, given=given, weights=weights)


def is_too_large(reader: RowReader) -> bool:
    """Whether a table has too many rows for memory."""
    source = reader.source
    if source.n_rows is not None:
        return source.n_rows * len(reader.columns.names) > MOST_VALUES
    return (source.n_bytes or 0) > MOST_BYTES


def refuse_too_large(reader: RowReader) -> None:
    """Raise for a table that is too large for a command that holds all rows in memory."""
    if is_too_large(reader):
        raise ValueError(
            f"Expected a table of at most {MOST_VALUES // 10**6} million measured values, or of "
            f"{MOST_BYTES // 2**30} GiB of text, where all rows are held in memory; got more in "
            f"{reader.source.name}. Give a smaller table: one of its files, or a sample."
        )


def read_all(reader: RowReader) -> tuple[Columns, Measurements, Found]:
    """Read all rows into memory, and tell what was found."""
    rows = read_rows(reader)
    found = Found.of(rows)
    found.take_errors(rows)
    given_words = [] if rows.given is None else [rows.given.describe()]
    more = [*given_words, *_groups(rows, reader.groups), *found.of_weights(reader.weights)]
    note(*found.in_words(reader.columns), *more)
    return to_keep(reader.columns), rows, found


def to_keep(columns: Columns) -> Columns:
    """Return what is asked of tables that are read with the model: not what only the fit needs."""
    return replace(columns, how=replace(columns.how, replicates_by=None))


def _numbers(texts: list[str]) -> list[float]:
    """Read what stands for a missing value, such as ``-999,-99``."""
    try:
        return [float(text) for text in split_list(texts)]
    except ValueError as error:
        raise ValueError(
            f"Expected --missing with numbers, such as -999; got {', '.join(texts)!r}."
        ) from error


def _groups(rows: Measurements, column: str | None) -> list[str]:
    """Say how many groups there are."""
    if rows.groups is None:
        return []
    _, sizes = np.unique(rows.groups.astype(str), return_counts=True)
    most = f"the largest of {sizes.max()} rows"
    return [f"{len(sizes)} groups by {column}, {most}, that no split of the rows parts"]
