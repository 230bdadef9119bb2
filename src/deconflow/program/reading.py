"""A table read as the options say, with a word on what was found in it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import refuse_if
from deconflow.program.messages import note
from deconflow.program.methods import parameters_of
from deconflow.program.options import Namespace
from deconflow.ranges import parse_ranges
from deconflow.tables import (
    Columns,
    Measurements,
    RowReader,
    Rows,
    correlation_column,
    error_columns,
    find_columns,
    find_given,
    finite_number,
    gathered,
    open_table,
    read_rows,
    row_name,
    split_list,
)

#: Measured values that are read into memory: ten million rows of three columns, about 2 GiB.
MOST_VALUES = 30_000_000
#: The same for a file of text, whose rows are not counted before they are read.
MOST_BYTES = 2**31
#: What many tables write for a missing value, and few measure.
SUSPECTS = (-99.0, -999.0, -9999.0, -99999.0)


def find_rows(options: Namespace) -> RowReader:
    """Find the columns, their errors and other facts in a table; no rows are read yet."""
    source = open_table(options.table, typed=False)
    names = split_list(options.columns, source.names)
    if options.replicates is None:
        names = expand_columns(options.columns, source.names)
    try:
        missing = [float(text) for text in split_list(options.missing or ())]
    except ValueError as error:
        got = ", ".join(options.missing)
        raise ValueError(f"Expected --missing with numbers, such as -999; got {got!r}.") from error
    columns = find_columns(
        source, names, errors=expand_errors(options.errors, names) if options.errors else (),
        covariances=options.cov or (), correlations=options.corr or (), noise=options.noise,
        df=options.df, missing=missing, limits=options.limits or (),
        replicate_columns=options.replicates or (), id=options.id, log_prior=options.log_prior,
        trials=options.trials, exposure=options.exposure,
        fit_errors=[] if options.fit_errors is None else [options.fit_errors],
        replicates=options.replicates_by,
    )  # fmt: skip
    groups, weights, given = options.groups, options.weights, options.given
    refuse_if(
        options.id is not None and (groups or weights or given) is not None,
        "Expected no --groups, --weights or --given with --id; got one. Leave it out.",
    )
    for name, column in (("--groups", groups), ("--weights", weights)):
        refuse_if(
            column in names, f"Expected {name} as a column that is not measured; got {column!r}."
        )
    parameters_of(options, names)
    covariates = None if given is None else find_given(given, source, names)
    return RowReader(columns, gathered(source, columns), groups, covariates, weights)


def expand_columns(items: Sequence[str], available: Sequence[str]) -> list[str]:
    """Split names, and replace a pattern such as ``f*`` by the columns that it matches.

    Columns that hold the errors of others, or their correlations, are not measured ones.

    Examples
    --------
    >>> expand_columns(["id,f*"], ["id", "f1", "f2", "f1_err", "f2_err", "f1_f2_corr"])
    ['id', 'f1', 'f2']
    """
    names: list[str] = []
    for part in split_list(items, available):
        fits = [part]
        if _is_pattern(part, available):
            fits = [name for name in available if fnmatchcase(name, part)]
            aside = {
                bar for name in fits for bars in error_columns(available, name) for bar in bars
            }
            aside |= {
                correlation_column(available, a, b) or "" for a in fits for b in fits if a != b
            }
            if not {*fits} - aside:
                got = f"only those of errors: {', '.join(fits)}" if fits else "none in the table"
                raise ValueError(f"Expected measured columns that match {part!r}; got {got}.")
            fits = [name for name in fits if name not in aside]
        names += fits
    return names


def expand_errors(items: Sequence[str], names: Sequence[str]) -> list[str]:
    """Write a number, or ``PATTERN=ERROR``, once for each column; errors by name come first.

    Examples
    --------
    >>> expand_errors(["0.3"], ["f1", "f2"])
    ['f1=0.3', 'f2=0.3']
    >>> expand_errors(["*=0.3,f2=0.1"], ["f1", "f2"])
    ['f1=0.3', 'f2=0.1']
    """
    if len(items) == 1 and finite_number(items[0]) is not math.nan:
        items = [f"*={items[0]}"]
    parts = split_list(items, names=names)
    if not any(_is_pattern(part.partition("=")[0], names) for part in parts):
        return list(items)
    by_name = [name for name in names if any(part.startswith(f"{name}=") for part in parts)]
    found: list[str] = []
    for part in parts:
        pattern, _, error = part.partition("=")
        fits = [name for name in names if fnmatchcase(name, pattern)]
        if not _is_pattern(pattern, names):
            found.append(part)
        elif not fits:
            raise ValueError(
                f"Expected a pattern in --errors that matches some of {', '.join(names)}; got "
                f"{pattern!r}."
            )
        else:
            found += [f"{name}={error}" for name in fits if name not in by_name]
    return found


def _is_pattern(text: str, names: Sequence[str]) -> bool:
    """Whether a text is a pattern, and no name that only looks like one."""
    return any(sign in text for sign in "*?[") and text not in names


def is_too_large(reader: RowReader) -> bool:
    """Whether a table has too many rows for memory."""
    source = reader.source
    if source.n_rows is not None:
        return source.n_rows * len(reader.columns.names) > MOST_VALUES
    return (source.n_bytes or 0) > MOST_BYTES


def refuse_too_large(reader: RowReader) -> None:
    """Raise for a table that is too large for a command that holds all rows in memory."""
    refuse_if(
        is_too_large(reader),
        f"Expected a table of at most {MOST_VALUES // 10**6} million measured values, or of "
        f"{MOST_BYTES // 2**30} GiB of text, where all rows are held in memory; got more in "
        f"{reader.source.name}. Give a smaller table: one of its files, or a sample.",
    )


def read_all(reader: RowReader) -> "tuple[Measurements, Found]":
    """Read all rows into memory, and print what was found."""
    measured = read_rows(reader)
    groups, found = measured.rows.groups, Found.of(measured)
    lines = found.in_words(reader.columns, reader.weights)
    if reader.given is not None:
        errors = ["noise"] if reader.given.errors else []
        lines.append(f"given {', '.join([*errors, *reader.given.labels])}")
    if groups is not None:
        sizes = Counter(groups.astype(str)).values()
        lines.append(
            f"{len(sizes)} groups by {reader.groups}, the largest of {max(sizes)} rows, that are "
            "never split"
        )
    note(*lines)
    return measured, found


def selection_of(options: Namespace) -> dict[str, Any]:
    """Return the arguments of ``fit`` about the rows that were seen; none if all were."""
    refuse_if(
        options.select_of not in ("measured", "truth"),
        f"Expected --select-of measured or truth; got {options.select_of!r}.",
    )
    refuse_if(
        options.select is not None and options.efficiency is not None,
        "Expected one of --select and --efficiency; got both. Put zeros into the grid.",
    )
    found: dict[str, Any] = {}
    if options.select is not None:
        found["selection"] = " and ".join(options.select)
    if options.efficiency is not None:
        from deconflow.measuring import Efficiency

        found["selection"] = Efficiency.from_npz(options.efficiency)
    if options.select_of == "truth":
        refuse_if(not found, "Expected --select or --efficiency with --select-of; got neither.")
        found["selection_of"] = "truth"
    return found


def refuse_unseen(found: Measurements, options: Namespace, names: Sequence[str]) -> None:
    """Raise for rows that could not have been seen."""
    for each in parse_ranges(options.select or (), names, "--select"):
        values = found.rows.w[:, list(names).index(each.name)]
        outside = (values < each.lower) | (values > each.upper)
        if outside.any() and options.select_of == "measured":
            first = int(outside.argmax())
            raise ValueError(
                f"Expected rows that --select lets through; got {each.name} = {values[first]:g} in "
                f"{row_name(int(found.places[first]))}. Leave such rows out, or change the range."
            )


@dataclass
class Found:
    """Counts and moments of rows before they are fitted, which chunks add to.

    Attributes
    ----------
    sums : dict
        Numbers that add up: of rows, usable rows, values without errors, weights of zero; for each
        column of measured values, limits and suspects.
    reasons : Counter
        Number of rows that cannot be used, by the reason.
    least : dict
        Smallest numbers: of each column, of weights, and of their negatives.
    mean, squares : array
        Mean of measured values, and the sum of squares around it, ``(D,)``.
    """

    sums: dict[str, Any]
    reasons: Counter[str]
    least: dict[str, Any]
    mean: Array
    squares: Array

    @classmethod
    def of(cls, found: Measurements) -> "Found":
        """Count rows."""
        rows, seen = found.rows, ~np.isnan(found.rows.w)
        w = np.where(seen, rows.w, 0.0)
        mean = w.sum(0) / np.maximum(seen.sum(0), 1)
        flags = np.zeros_like(rows.w) if rows.limits is None else rows.limits
        weights = np.ones(1) if rows.weights is None else rows.weights
        sums = {
            "rows": len(found), "used": len(rows), "without_error": found.without_error,
            "measured": seen.sum(0), "limits": np.array([(flags < 0).sum(0), (flags > 0).sum(0)]),
            "suspects": np.array([(rows.w == number).sum(0) for number in SUSPECTS]).T,
            "uncounted": (weights == 0).sum(),
        }  # fmt: skip
        least = {
            "values": np.where(seen, rows.w, np.inf).min(0, initial=np.inf),
            "weight": weights.min(initial=np.inf), "negative": -weights.max(initial=-np.inf),
        }  # fmt: skip
        reasons = Counter(found.status[~found.usable].tolist())
        return cls(sums, reasons, least, mean, np.where(seen, (w - mean) ** 2, 0.0).sum(0))

    def merged(self, other: "Found") -> "Found":
        """Return the counts of these rows and of others."""
        one, two = self.sums["measured"], other.sums["measured"]
        both, step = np.maximum(one + two, 1), other.mean - self.mean
        return Found(
            {name: value + other.sums[name] for name, value in self.sums.items()},
            self.reasons + other.reasons,
            {name: np.minimum(value, other.least[name]) for name, value in self.least.items()},
            self.mean + step * two / both,
            self.squares + other.squares + step**2 * one * two / both,
        )

    def in_words(self, columns: Columns, weights: str | None) -> list[str]:
        """Say what is measured, how many rows can be used, and what is odd about them."""
        sums, names = self.sums, columns.names
        lines = [f"{line} ({columns.law})" for line in columns.describe()]
        lines.append(f"{sums['used']} of {sums['rows']} rows can be used")
        lines += [f"  {n} left out: {reason}" for reason, n in sorted(self.reasons.items())]
        if sums["without_error"]:
            lines.append(f"  {sums['without_error']} values have no error and count as missing")
        for name, *counts in zip(names, *sums["limits"], strict=True):
            pairs = zip(counts, ("upper", "lower"), strict=True)
            words = " and ".join(f"{n:.0f} {word} limits" for n, word in pairs if n)
            lines += [f"  {words} of {name}"] if words else []
        for name, counts, least in zip(names, sums["suspects"], self.least["values"], strict=True):
            lines += [
                f"  {count} values of {name} are {number:g} and count as measured; "
                f"if they are missing, give --missing {number:g}"
                for number, count in zip(SUSPECTS, counts, strict=True)
                if count > 1 and least >= number
            ]
        if weights is not None:
            low, high, zeros = self.least["weight"], -self.least["negative"], sums["uncounted"]
            words = f"; {zeros} of them do not count" if zeros else ""
            lines.append(f"rows count by {weights}, from {low:g} to {high:g}{words}")
        return lines

    def figures(self, columns: Columns, rows: Rows) -> dict[str, Any]:
        """Return the same as JSON can hold it; medians of the errors are those of some rows."""
        sd = np.sqrt(self.squares / np.maximum(self.sums["measured"], 1))
        errors = [e[s] for e, s in zip(rows.errors.T, ~np.isnan(rows.w.T), strict=True)]
        numbers = zip(columns.names, self.sums["measured"], self.mean, sd, errors, strict=True)
        return {
            "rows": int(self.sums["rows"]),
            "used": int(self.sums["used"]),
            "columns": [
                {
                    "name": name, "measured": int(measured), "mean": float(mean),
                    "sd": float(spread), "median_error": float(np.median(error)),
                }
                for name, measured, mean, spread, error in numbers
            ],
        }  # fmt: skip
