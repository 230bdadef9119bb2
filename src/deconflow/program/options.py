"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from deconflow.tables import correlation_column, error_columns, finite_number, split_list

TABLE_HELP = (
    "CSV, TSV, Parquet, FITS, ECSV, VOTable or text file, also packed (.gz); a folder of them; - "
    "for a pipe."
)

Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.")]
Table = Annotated[Path, typer.Argument(help=TABLE_HELP)]
OptionalTable = Annotated[
    Path | None, typer.Argument(help=f"{TABLE_HELP} Without it, the one that was fitted.")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Table to write, as its ending says; - for a pipe.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31, help="The same seed gives the same answer.")
]
Chunk = Annotated[int, typer.Option("--chunk", min=1, help="Rows to hold in memory at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Prefix = Annotated[str, typer.Option("--prefix", help="Put before the names of new columns.")]


def expand_columns(items: Sequence[str], available: Sequence[str]) -> list[str]:
    """Split names, and put for a pattern such as ``f*`` the columns that it matches.

    Columns that hold the errors of others, or their correlations, are not measured ones.

    Examples
    --------
    >>> expand_columns(["id,f*"], ["id", "f1", "f2", "f1_err", "f2_err", "f1_f2_corr"])
    ['id', 'f1', 'f2']
    """
    names: list[str] = []
    for part in split_list(items, available):
        names += _matching(part, available) if _is_pattern(part, available) else [part]
    return names


def expand_errors(items: Sequence[str], names: Sequence[str]) -> list[str]:
    """Say a number, or ``PATTERN=ERROR``, once for each column; what is said by name stays.

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
    said = [name for name in names if any(part.startswith(f"{name}=") for part in parts)]
    found: list[str] = []
    for part in parts:
        pattern, _, error = part.partition("=")
        if _is_pattern(pattern, names):
            fits = [name for name in names if fnmatchcase(name, pattern)]
            if not fits:
                raise ValueError(
                    f"Expected a pattern in --errors that matches some of {', '.join(names)}; got "
                    f"{pattern!r}."
                )
            found += [f"{name}={error}" for name in fits if name not in said]
        else:
            found.append(part)
    return found


def _is_pattern(text: str, names: Sequence[str]) -> bool:
    """Whether a text is a pattern, and no name that only looks like one."""
    return any(sign in text for sign in "*?[") and text not in names


def _matching(pattern: str, available: Sequence[str]) -> list[str]:
    fits = [name for name in available if fnmatchcase(name, pattern)]
    aside = {bar for name in fits for bars in error_columns(available, name) for bar in bars}
    aside |= {correlation_column(available, a, b) or "" for a in fits for b in fits if a != b}
    found = [name for name in fits if name not in aside]
    if not found:
        got = f"only those of errors: {', '.join(fits)}" if fits else "none in the table"
        raise ValueError(f"Expected measured columns that match {pattern!r}; got {got}.")
    return found
