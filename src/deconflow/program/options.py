# ruff: noqa: RUF009  # `option` makes a field
"""Arguments and options of the commands, each written once."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from deconflow.program.methods import METHODS
from deconflow.tables import (
    NOISE_KINDS,
    correlation_column,
    error_columns,
    finite_number,
    split_list,
)

TABLE_HELP = (
    "CSV, TSV, Parquet, Arrow, FITS, ECSV, VOTable or text file, also packed (.gz); a folder of "
    "them; - for a pipe."
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
    int, typer.Option("--seed", min=0, max=2**31, help="The same seed gives the same result.")
]
Chunk = Annotated[int, typer.Option("--chunk", min=1, help="Rows to hold in memory at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Prefix = Annotated[str, typer.Option("--prefix", help="Put before the names of new columns.")]

#: How Python writes errors that a fit is to estimate.
LEARNED = r'(?:noise\.gaussian\(\w+=\.\.\., )?\b(\w+)="fit"\)?'


def option(help: str, metavar: str | None = None, *, of: str = "", **more: Any) -> Any:
    """Return a field of a group of options, None if it is not given.

    Parameters
    ----------
    help, metavar
        As typer shows them.
    of
        Name of the argument in Python, if it is not that of the option.
    more
        Other options of typer; ``default``, and ``names`` if the option has another or several.
    """
    default, names = more.pop("default", None), more.pop("names", ())
    made = typer.Option(*names, metavar=metavar, help=help, **more)
    return field(default=default, metadata={"option": made, "argument": of})


@dataclass(frozen=True)
class RowOptions:
    """What is known of the rows of a table, and of their true values."""

    table: Table
    columns: list[str] = option(
        "Measured columns, such as x,y,z or 'f*'.", "NAMES", names=("--columns", "-c"), default=...
    )
    errors: list[str] | None = option(
        "Errors: x=COLUMN, x=0.1, x=LOWER:UPPER; 0.1 or '*=0.1' for all columns. Without it "
        "they are found by name, such as x_err, x_se, e_x, dx, or x_err_lo with x_err_hi.",
        "NAME=ERROR",
    )
    cov: list[str] | None = option(
        "Covariances: x:y=COLUMN; variances: x:x=COLUMN.", "PAIR=COLUMN", of="covariances"
    )
    corr: list[str] | None = option(
        "Error correlations: x:y=COLUMN, or none. Without it x_y_corr.",
        "PAIR=COLUMN", of="correlations",
    )  # fmt: skip
    noise: str = option(
        re.sub(r"(\w+)=", r"--\1", "; ".join(f"{name}: {w}" for name, w in NOISE_KINDS.items()))
        + ".",
        default="gaussian", autocompletion=lambda: list(NOISE_KINDS),
    )  # fmt: skip
    df: float = option("Degrees of freedom of student-t noise.", default=3.0, min=0.1)
    missing: list[str] | None = option(
        "Numbers that stand for a missing value, such as -999.", "NUMBERS"
    )
    groups: str | None = option(
        "Rows with the same word or number here belong together, such as all rows of an object: "
        "they are never split between a fit and the rows that judge it.",
        "COLUMN",
    )
    weights: str | None = option(
        "How much each row counts: numbers of at least 0. A row of weight 2 counts as two.",
        "COLUMN",
    )
    limits: list[str] | None = option(
        "Which values are limits: -1 or < for upper ones, 1 or > for lower ones. Without it "
        "x_limit; none if that has another meaning. In a table of text, <1.5 is a limit, too.",
        "NAME=COLUMN",
    )
    replicates: list[str] | None = option(
        "Repeated measurements, whose scatter is the error: -c x --replicates x1,x2; of several "
        "columns x=x1,x2 and y=y1,y2. Errors are taken to be the same in all rows.",
        "NAME=COLUMNS", of="replicate_columns",
    )  # fmt: skip
    id: str | None = option(
        "Rows are posterior samples: those with the same word or number here are draws of one "
        "object. A table whose cells are lists of draws does not need it.",
        "COLUMN",
    )
    log_prior: str | None = option(
        "Log prior of each posterior sample; without it, the prior is flat.", "COLUMN"
    )
    trials: str | None = option("Trials of binomial counts.", "COLUMN")
    exposure: str | None = option("Time or amount in which poisson counts were counted.", "COLUMN")
    fit_errors: str | None = option(
        "Parts of uncertain errors to estimate: scale (a factor), correlation (of columns), jitter "
        "(additional scatter, with --replicates-by), or several: scale,jitter.",
        "PARTS",
    )
    replicates_by: str | None = option(
        "With --fit-errors: rows with the same word or number here measure the same true value.",
        "COLUMN", of="replicates",
    )  # fmt: skip
    given: list[str] | None = option(
        "Columns known exactly, of numbers or text, that true values may depend on, such as a,b; "
        "the word noise stands for the rows' own errors.",
        "NAMES",
    )
    bounds: list[str] | None = option(
        "Bounds of the true values: x=0:, x=:10 or x=0:1.", "NAME=LOW:HIGH"
    )
    atoms: list[str] | None = option(
        "Values that a share of the true values has exactly: 0 or 0,1; of several columns whole "
        "points, 0:0.",
        "POINTS",
    )
    background: str | None = option(
        "uniform: some rows carry no information, and may be anywhere.", "KIND"
    )


@dataclass(frozen=True)
class SelectionOptions:
    """Which rows were seen at all."""

    select: list[str] | None = option(
        "Only rows in this range were seen, such as 'g<18' or '0<x<2', by their measured values; "
        "may be given several times.",
        "RANGE", of="selection",
    )  # fmt: skip
    select_of: str = option(
        "What decides if a row is seen: measured or truth.", of="selection_of", default="measured"
    )
    efficiency: Path | None = option(
        "Probability to be seen on a grid of the measured columns: numpy.savez of values, "
        "edges_0, edges_1, ...",
        "FILE",
    )


#: Options by the names of their arguments in Python.
ARGUMENTS = {
    each.metadata.get("argument") or each.name: "--" + each.name.replace("_", "-")
    for group in (SelectionOptions, RowOptions)
    for each in fields(group)
} | {"rows": "--rows"}  # fmt: skip


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes groups of options an option for each of their fields.

    Its parameters are all taken by name.
    """
    whole = inspect.signature(command, eval_str=True)
    annotations = {name: each.annotation for name, each in whole.parameters.items()}
    kinds: dict[str, Any] = {n: kind for n, kind in annotations.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in whole.parameters.items():
        parameters += _options(kinds[name]) if name in kinds else [parameter]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in kinds.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def as_options(message: str) -> str:
    """Write a message about arguments in Python as one about options.

    Examples
    --------
    >>> as_options("Name it: errors=['x=COLUMN'], or leave noise= out.")
    'Name it: --errors x=COLUMN, or leave --noise out.'
    >>> as_options("Use XDGMM or FlowDeconvolver in more dimensions.")
    'Use --method xd or --method flow in more dimensions.'
    >>> as_options('Expected rows for noise.gaussian(sd=..., scale="fit"); got none.')
    'Expected rows for --fit-errors scale; got none.'
    """
    value = r"""\[?(?P<quote>['"])(?P<value>.*?)(?P=quote)\]?"""
    written = rf"\b(?P<name>{'|'.join(ARGUMENTS)})=(?:{value}|(?=[\s,.;]|$))"

    def as_option(found: re.Match[str]) -> str:
        return " ".join(filter(None, [ARGUMENTS[found["name"]], found["value"]]))

    message = message.replace("quick=True", "--quick")
    message = re.sub(LEARNED, r"--fit-errors \1", re.sub(written, as_option, message))
    for name, method in METHODS.items():
        message = re.sub(rf"\b{method.class_name}\b", f"--method {name}", message)
    return message


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
        names += _matching(part, available) if _is_pattern(part, available) else [part]
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
        if not _is_pattern(pattern, names):
            found.append(part)
            continue
        fits = [name for name in names if fnmatchcase(name, pattern)]
        if not fits:
            raise ValueError(
                f"Expected a pattern in --errors that matches some of {', '.join(names)}; got "
                f"{pattern!r}."
            )
        found += [f"{name}={error}" for name in fits if name not in by_name]
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


def _options(group: Any) -> list[inspect.Parameter]:
    """Return a parameter for each field of a group."""
    hints = get_type_hints(group, include_extras=True)
    found = []
    for each in fields(group):
        required = each.default in (MISSING, ...)
        annotation = hints[each.name]
        if "option" in each.metadata:
            annotation = Annotated[annotation, each.metadata["option"]]
        found.append(
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation,
                default=inspect.Parameter.empty if required else each.default,
            )
        )  # fmt: skip
    return found
