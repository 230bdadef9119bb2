"""A table read as the options say, with a word on what was found in it."""

from dataclasses import replace

import numpy as np

from deconflow.program.found import Found
from deconflow.program.known import parameters_of
from deconflow.program.messages import note
from deconflow.program.options import RowOptions, expand_columns, expand_errors
from deconflow.tables import (
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

#: Measured values that are read into memory: ten million rows of three columns, about 2 GiB.
MOST_VALUES = 30_000_000
#: The same for a file of text, whose rows are not counted before they are read.
MOST_BYTES = 2**31


def find_rows(options: RowOptions) -> RowReader:
    """Find the columns, their errors and other facts in a table; no rows are read yet."""
    source = open_table(options.table, typed=False)
    names = split_list(options.columns, source.names)
    if options.replicates is None:
        names = expand_columns(options.columns, source.names)
    columns = find_columns(
        source, names, errors=expand_errors(options.errors or (), names),
        covariances=options.cov or (), correlations=options.corr or (), noise=options.noise,
        df=options.df, missing=_numbers(options.missing or []), limits=options.limits or (),
        replicate_columns=options.replicates or (), id=options.id, log_prior=options.log_prior,
        trials=options.trials, exposure=options.exposure,
        fit_errors=[] if options.fit_errors is None else [options.fit_errors],
        replicates=options.replicates_by,
    )  # fmt: skip
    groups, weights, given = options.groups, options.weights, options.given
    if options.id is not None and (groups or weights or given) is not None:
        raise ValueError(
            "Expected no --groups, --weights or --given with --id; got one. Leave it out."
        )
    for name, column in (("--groups", groups), ("--weights", weights)):
        if column in names:
            raise ValueError(f"Expected {name} as a column that is not measured; got {column!r}.")
    parameters_of(options, names)
    covariates = None if given is None else find_given(given, source, names)
    return RowReader(columns, gathered(source, columns), groups, covariates, weights)


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
    """Read all rows into memory, and print what was found."""
    measured = read_rows(reader)
    rows, found = measured.rows, Found.of(measured)
    lines = found.in_words(reader.columns, reader.weights)
    if reader.given is not None:
        covariates = ["noise"] * reader.given.errors + list(reader.given.labels)
        lines.append(f"given {', '.join(covariates)}")
    if rows.groups is not None:
        _, sizes = np.unique(rows.groups.astype(str), return_counts=True)
        lines.append(
            f"{len(sizes)} groups by {reader.groups}, the largest of {sizes.max()} rows, that are "
            "never split"
        )
    note(*lines)
    return to_keep(reader.columns), measured, found


def to_keep(columns: Columns) -> Columns:
    """Return what tables that are read with the model need: not what only the fit needs."""
    return replace(columns, replicates=None)


def _numbers(texts: list[str]) -> list[float]:
    """Read numbers that stand for a missing value, such as ``-999,-99``."""
    try:
        return [float(text) for text in split_list(texts)]
    except ValueError as error:
        raise ValueError(
            f"Expected --missing with numbers, such as -999; got {', '.join(texts)!r}."
        ) from error
