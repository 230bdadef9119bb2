"""Arguments and options of the commands, each written once, and the methods that they name."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Annotated, Any

import typer

from deconflow.program.methods import METHODS
from deconflow.tables import NOISE_KINDS

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
SEVERAL = list[str] | None


def option(
    name: str,
    help: str,
    metavar: str | None = None,
    *,
    kind: Any = str | None,
    default: Any = None,
    names: Sequence[str] = (),
    **more: Any,
) -> inspect.Parameter:
    """Return an option of a command, None if it is not given; ``more`` is for typer."""
    made = Annotated[kind, typer.Option(*names, metavar=metavar, help=help, **more)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=made)


#: What is known of the rows of a table, and of their true values.
ABOUT_ROWS = (
    inspect.Parameter("table", inspect.Parameter.KEYWORD_ONLY, annotation=Table),
    option(
        "columns", "Measured columns, such as x,y,z or 'f*'.", "NAMES",
        kind=list[str], default=inspect.Parameter.empty, names=("--columns", "-c"),
    ),
    option(
        "errors",
        "Errors: x=COLUMN, x=0.1, x=LOWER:UPPER; 0.1 or '*=0.1' for all columns. Without it "
        "they are found by name, such as x_err, x_se, e_x, dx, or x_err_lo with x_err_hi.",
        "NAME=ERROR", kind=SEVERAL,
    ),
    option(
        "cov", "Covariances: x:y=COLUMN; variances: x:x=COLUMN.", "PAIR=COLUMN", kind=SEVERAL
    ),
    option(
        "corr", "Error correlations: x:y=COLUMN, or none. Without it x_y_corr.", "PAIR=COLUMN",
        kind=SEVERAL,
    ),
    option(
        "noise",
        re.sub(r"(\w+)=", r"--\1", "; ".join(f"{name}: {w}" for name, w in NOISE_KINDS.items()))
        + ".",
        kind=str, default="gaussian", autocompletion=lambda: list(NOISE_KINDS),
    ),
    option("df", "Degrees of freedom of student-t noise.", kind=float, default=3.0, min=0.1),
    option(
        "missing", "Numbers that stand for a missing value, such as -999.", "NUMBERS", kind=SEVERAL
    ),
    option(
        "groups",
        "Rows with the same word or number here belong together, such as all rows of an object: "
        "they are never split between a fit and the rows that judge it.",
        "COLUMN",
    ),
    option(
        "weights",
        "How much each row counts: numbers of at least 0. A row of weight 2 counts as two.",
        "COLUMN",
    ),
    option(
        "limits",
        "Which values are limits: -1 or < for upper ones, 1 or > for lower ones. Without it "
        "x_limit; none if that has another meaning. In a table of text, <1.5 is a limit, too.",
        "NAME=COLUMN", kind=SEVERAL,
    ),
    option(
        "replicates",
        "Repeated measurements, whose scatter is the error: -c x --replicates x1,x2; of several "
        "columns x=x1,x2 and y=y1,y2. Errors are taken to be the same in all rows.",
        "NAME=COLUMNS", kind=SEVERAL,
    ),
    option(
        "id",
        "Rows are posterior samples: those with the same word or number here are draws of one "
        "object. A table whose cells are lists of draws does not need it.",
        "COLUMN",
    ),
    option(
        "log_prior", "Log prior of each posterior sample; without it, the prior is flat.", "COLUMN"
    ),
    option("trials", "Trials of binomial counts.", "COLUMN"),
    option("exposure", "Time or amount in which poisson counts were counted.", "COLUMN"),
    option(
        "fit_errors",
        "Parts of uncertain errors to estimate: scale (a factor), correlation (of columns), jitter "
        "(additional scatter, with --replicates-by), or several: scale,jitter.",
        "PARTS",
    ),
    option(
        "replicates_by",
        "With --fit-errors: rows with the same word or number here measure the same true value.",
        "COLUMN",
    ),
    option(
        "given",
        "Columns known exactly, of numbers or text, that true values may depend on, such as a,b; "
        "the word noise stands for the rows' own errors.",
        "NAMES", kind=SEVERAL,
    ),
    option(
        "bounds", "Bounds of the true values: x=0:, x=:10 or x=0:1.", "NAME=LOW:HIGH", kind=SEVERAL
    ),
    option(
        "atoms",
        "Values that a share of the true values has exactly: 0 or 0,1; of several columns whole "
        "points, 0:0.",
        "POINTS", kind=SEVERAL,
    ),
    option("background", "uniform: some rows carry no information, and may be anywhere.", "KIND"),
)  # fmt: skip
#: Which rows were seen at all.
ABOUT_SELECTION = (
    option(
        "select",
        "Only rows in this range were seen, such as 'g<18' or '0<x<2', by their measured values; "
        "may be given several times.",
        "RANGE", kind=SEVERAL,
    ),
    option(
        "select_of", "What decides if a row is seen: measured or truth.",
        kind=str, default="measured",
    ),
    option(
        "efficiency",
        "Probability to be seen on a grid of the measured columns: numpy.savez of values, "
        "edges_0, edges_1, ...",
        "FILE", kind=Path | None,
    ),
)  # fmt: skip
#: Arguments in Python, where they are not called as the options.
OTHER_NAMES = {
    "cov": "covariances", "corr": "correlations", "replicates": "replicate_columns",
    "replicates_by": "replicates", "select": "selection", "select_of": "selection_of",
}  # fmt: skip
#: Options by the names of their arguments in Python.
ARGUMENTS = {
    OTHER_NAMES.get(each.name, each.name): "--" + each.name.replace("_", "-")
    for each in (*ABOUT_SELECTION, *ABOUT_ROWS)
} | {"rows": "--rows"}  # fmt: skip


def with_options(*more: inspect.Parameter) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command more options, in the place of ``options``, which holds their values."""

    def changed(command: Callable[..., None]) -> Callable[..., None]:
        whole = inspect.signature(command)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            command(options=Namespace(**{p.name: given.pop(p.name) for p in more}), **given)

        own = ([p] if p.name != "options" else more for p in whole.parameters.values())
        run.__signature__ = whole.replace(parameters=[*chain(*own)])  # type: ignore[attr-defined]
        return run

    return changed


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

    message = re.sub(
        written,
        lambda found: " ".join(filter(None, [ARGUMENTS[found["name"]], found["value"]])),
        message.replace("quick=True", "--quick"),
    )
    message = re.sub(LEARNED, r"--fit-errors \1", message)
    for name, method in METHODS.items():
        message = re.sub(rf"\b{method.class_name}\b", f"--method {name}", message)
    return message
