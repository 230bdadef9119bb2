"""Arguments and options of the commands, each written once, and the methods that they name."""

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Annotated, Any

import typer

from deconflow.refusals import refuse_if
from deconflow.tables import NOISE_KINDS, parse_atoms, parse_bounds

#: Of Extreme Deconvolution with a number of components: it must not collapse.
SINGLE_FLOOR = 0.1


@dataclass(frozen=True)
class Method:
    """An estimator of the library by its class's name.

    Attributes
    ----------
    resumable : bool
        Whether its fits keep checkpoints; those of the others are short.
    """

    class_name: str
    words: str
    resumable: bool = False


METHODS = {
    "auto": Method(
        "Deconvolver", "mixtures, log-splines and flows, averaged by held-out rows", resumable=True
    ),
    "xd": Method("XDGMM", "Extreme Deconvolution: a Gaussian mixture; quick"),
    "bayes": Method(
        "BayesianXDGMM",
        "Bayesian Gaussian mixture: averages over all that fit, nothing to choose",
        resumable=True,
    ),
    "flow": Method("FlowDeconvolver", "one normalizing flow", resumable=True),
    "spline": Method("LogSplineDeconvolver", "penalised log density; one or two columns"),
    "kde": Method("DeconvolvingKDE", "deconvolving kernel density estimate; up to three columns"),
    "wavelet": Method("WaveletDeconvolver", "wavelets; one column"),
}


def method_of_class(class_name: str) -> str:
    """Name the method of an estimator's class; no other class is ever looked up."""
    known = {method.class_name: name for name, method in METHODS.items()}
    refuse_if(
        class_name not in known,
        f"Expected a model of {', '.join(METHODS)}; got one of {class_name!r}.",
    )
    return known[class_name]


def check_method(method: str) -> Method:
    """Return a method by its name."""
    refuse_if(
        method not in METHODS, f"Expected --method as one of {', '.join(METHODS)}; got {method!r}."
    )
    return METHODS[method]


def takes(method: str, fact: str) -> bool:
    """Whether a method fits rows with a fact, such as atoms."""
    from deconflow.estimators import ESTIMATORS

    return fact in ESTIMATORS[check_method(method).class_name]._engine_type.takes


def check_known(options: Namespace, method: str) -> None:
    """Raise if a method does not take a fact about true values, before a table is read."""
    check_method(method)
    refuse_if(
        options.background not in (None, "uniform"),
        f"Expected --background uniform; got {options.background!r}.",
    )
    for name in ("given", "bounds", "atoms", "background"):
        fact = "covariates" if name == "given" else name
        if getattr(options, name) is not None and not takes(method, fact):
            *able, last = [each for each in METHODS if takes(each, fact)]
            raise ValueError(
                f"Expected no --{name} with --method {method}; got one. Use --method "
                f"{', '.join(able)} or {last}, which take it."
            )


def parameters_of(options: Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return parameters of an estimator of these columns: what options say of true values."""
    found: dict[str, Any] = {}
    if options.bounds is not None:
        ends = parse_bounds(options.bounds, names)
        found["bounds"] = ends and [ends.get(name) for name in names]
    if options.atoms is not None:
        found["atoms"] = parse_atoms(options.atoms, names)
    if options.background is not None:
        found["background"] = options.background
    for name, values in found.items():
        refuse_if(not values, f"Expected values after --{name}; got none.")
    return found


def settings_of(method: str, settings: Sequence[str] | None, *, quick: bool = False) -> list[str]:
    """Return what ``--set`` and ``--quick`` say of a method, checked before a table is read."""
    refuse_if(
        quick and method != "auto", f"Expected --quick with --method auto; got --method {method}."
    )
    said = [*(settings or ()), *["quick=true"] * quick]
    if said:
        make_estimator(method, said)
    return said


def make_estimator(
    method: str,
    settings: Sequence[str] = (),
    known: Mapping[str, Any] | None = None,
    **about_the_run: Any,
) -> Any:
    """Make an unfitted estimator.

    Parameters
    ----------
    method
        A name in :data:`METHODS`.
    settings
        ``NAME=VALUE``, as after ``--set``.
    known
        Parameters by which options say what is known of the truth.
    **about_the_run
        Parameters that not every estimator has, such as a seed; who lacks one is not given it.

    Raises
    ------
    ValueError
        If a setting makes no sense, before any work.
    """
    from deconflow.estimators import ESTIMATORS

    cls = ESTIMATORS[check_method(method).class_name]
    usual = cls().get_params()
    given: dict[str, Any] = {}
    for item in settings:  # a value is JSON, or else text
        name, equals, text = item.partition("=")
        refuse_if(
            not equals or name not in usual,
            f"Expected --set NAME=VALUE, with a parameter of {method}: "
            f"{', '.join(sorted(usual))}; got {item!r}.",
        )
        try:
            given[name] = json.loads(text)
        except json.JSONDecodeError:
            given[name] = text
    for name in (known or {}).keys() & given.keys():
        raise ValueError(f"Expected {name} once; got --{name} and --set {name}. Leave one out.")
    about = {name: value for name, value in about_the_run.items() if name in usual}
    if method == "xd" and given.setdefault("n_components", "auto") != "auto":
        about["floor"] = SINGLE_FLOOR
    model = cls(**(about | given | dict(known or {})))
    model._check_parameters()
    return model


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
