"""A table read as the options say, with a word on what was found in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deconflow.program.how import HowSaid
from deconflow.program.known import Known
from deconflow.program.messages import note
from deconflow.program.options import (
    Correlations,
    Covariances,
    DegreesOfFreedom,
    Errors,
    Groups,
    MeasuredColumns,
    Missing,
    Noise,
    Table,
    Weights,
    expand_columns,
    expand_errors,
)
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

SUSPECTS = (-99.0, -999.0, -9999.0, -99999.0)
"""What many tables write for a missing value, and few measure."""


@dataclass(frozen=True)
class TableSaid:
    """What was said of a table to fit, as it was written."""

    table: Table
    columns: MeasuredColumns
    errors: Errors = None
    cov: Covariances = None
    corr: Correlations = None
    noise: Noise = "gaussian"
    df: DegreesOfFreedom = 3.0
    missing: Missing = None
    groups: Groups = None
    weights: Weights = None


def read_table(said: TableSaid, how: HowSaid, known: Known) -> tuple[Columns, Measurements]:
    """Find columns and errors, and read all rows; what is known of the truth is checked first."""
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
    reader = RowReader(found, source, groups=groups, given=given, weights=weights)
    rows = read_rows(reader)
    given_words = [] if rows.given is None else rows.given.describe()
    note(*_describe(found, rows), *given_words, *_groups(rows, groups), *_weights(rows, weights))
    return _to_keep(reader.columns), rows


def _to_keep(columns: Columns) -> Columns:
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


def _weights(rows: Measurements, column: str | None) -> list[str]:
    """Say how far weights go."""
    if rows.weights is None:
        return []
    without = int((rows.weights == 0).sum())
    said = f"; {without} of them do not count" if without else ""
    return [f"rows count by {column}, from {rows.weights.min():g} to {rows.weights.max():g}{said}"]


def _limits(columns: Columns, rows: Measurements) -> list[str]:
    """Say how many values are limits, and in which columns."""
    if rows.limits is None:
        return []
    lines = []
    for name, flags in zip(columns.names, rows.limits.T, strict=True):
        counts = {"upper": int((flags < 0).sum()), "lower": int((flags > 0).sum())}
        said = " and ".join(f"{n} {word} limits" for word, n in counts.items() if n)
        if said:
            lines.append(f"  {said} of {name}")
    return lines


def _describe(columns: Columns, rows: Measurements) -> list[str]:
    lines = [f"{line} ({columns.law})" for line in columns.describe()]
    lines.append(f"{len(rows.w)} of {len(rows)} rows can be used")
    reasons, counts = np.unique(rows.reasons[~rows.usable].astype(str), return_counts=True)
    lines += [f"  {n} left out: {reason}" for reason, n in zip(reasons, counts, strict=True)]
    if rows.without_error:
        lines.append(f"  {rows.without_error} values have no error and are taken as missing")
    lines += _limits(columns, rows)
    for name, values in zip(columns.names, rows.w.T, strict=True):
        for number in SUSPECTS:
            count = int((values == number).sum())
            if count > 1 and not (values < number).any():
                lines.append(
                    f"  {count} values of {name} are {number:g} and count as measured; "
                    f"if they are missing, give --missing {number:g}"
                )
    return lines
