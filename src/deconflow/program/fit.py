"""``deconflow fit``: a table in, a model out."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow.certificate import Certificate
from deconflow.files import locked_folder
from deconflow.model_files import ABOUT_ONE_RUN
from deconflow.program.how import (
    Exposure,
    FitErrors,
    HowSaid,
    Id,
    Limits,
    LogPrior,
    Replicates,
    ReplicatesBy,
    Trials,
)
from deconflow.program.known import Atoms, Background, Bounds, Given, Known
from deconflow.program.messages import as_options, note, one_line_errors, say
from deconflow.program.methods import METHODS, make_estimator, settings_of
from deconflow.program.model_folder import check_writable, save, special_settings
from deconflow.program.options import (
    Correlations,
    Covariances,
    DegreesOfFreedom,
    Errors,
    Groups,
    MeasuredColumns,
    Missing,
    Noise,
    Quiet,
    Seed,
    Settings,
    Table,
)
from deconflow.program.origin import of_this_run
from deconflow.program.reading import read_table
from deconflow.program.selected import EfficiencyFile, Select, Selected, SelectOf
from deconflow.program.spinner import waiting
from deconflow.tables import STANDARD, Columns, Measurements

METHOD_HELP = "; ".join(f"{name}: {method.words}" for name, method in METHODS.items()) + "."
PATIENCE = (
    "fitting mixtures, then flows: one to three minutes on two processors, longer for many "
    "thousands of rows or many columns; --quick or --method xd is quicker"
)
"""What records of Deconvolver say, see docs/deconvolver.md."""
ModelOutput = Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")]
MethodName = Annotated[str, typer.Option("--method", "-m", help=METHOD_HELP)]
Quick = Annotated[
    bool, typer.Option("--quick", help="A first answer of auto: one flow and fewer mixtures.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a fit to the same output that was interrupted.")
]


def fit(
    table: Table,
    columns: MeasuredColumns,
    output: ModelOutput,
    method: MethodName = "auto",
    errors: Errors = None,
    cov: Covariances = None,
    corr: Correlations = None,
    noise: Noise = "gaussian",
    df: DegreesOfFreedom = 3.0,
    missing: Missing = None,
    groups: Groups = None,
    limits: Limits = None,
    replicates: Replicates = None,
    id: Id = None,
    log_prior: LogPrior = None,
    trials: Trials = None,
    exposure: Exposure = None,
    fit_errors: FitErrors = None,
    replicates_by: ReplicatesBy = None,
    select: Select = None,
    select_of: SelectOf = "measured",
    efficiency: EfficiencyFile = None,
    given: Given = None,
    bounds: Bounds = None,
    atoms: Atoms = None,
    background: Background = None,
    settings: Settings = None,
    quick: Quick = False,
    seed: Seed = 0,
    resume: Resume = False,
    quiet: Quiet = False,
) -> None:
    """Fit the density of the truth to a table with errors.

    Example: deconflow fit stars.csv -c x,y -o model --method xd
    """
    resumable = method in METHODS and METHODS[method].resumable
    with one_line_errors(" Go on with --resume." if resumable else " Start it again."):
        said = settings_of(method, settings, quick=quick)
        known = Known(given, bounds, atoms, background)
        known.check_method(method)
        seen = Selected(select, select_of, efficiency)
        seen.check()
        how = HowSaid(
            limits, replicates, id, log_prior, trials, exposure, fit_errors, replicates_by
        )
        check_writable(output)
        found, rows = read_table(
            table, columns, errors, cov, corr, noise, df, missing, groups, known, how
        )
        selection = seen.arguments(found.names, rows)
        with _checkpoint(output, method, resume) as checkpoint:
            model = make_estimator(
                method, len(rows.w), said, known.parameters(found.names),
                random_state=seed, verbose=not quiet, checkpoint=checkpoint,
            )  # fmt: skip
            model.name_columns(found.names)
            if method == "auto" and not (quiet or model.quick):
                note(PATIENCE)
            seconds = _fit(model, rows, selection, f"fitting {method}", quiet)
            certificate = _certificate(model, rows, selection)
            about = _about(model, table, found, rows) | {"method": method, "seconds": seconds}
            about |= of_this_run()
            save(model, output, found, about | {"certificate": certificate.as_dict()})
        words = as_options(certificate.in_words())
        say(model.describe(), *model.known_, *words.splitlines())
        say(f"Model written to {output} after {seconds:.1f} s.")


def _fit(
    model: Any, rows: Measurements, selection: dict[str, Any], what: str, quiet: bool
) -> float:
    """Fit, with a sign of life, and return the seconds that it took."""
    start = time.perf_counter()
    from deconflow.estimators import UntrustedFitWarning

    with waiting(what, shown=not quiet and not _has_bars(model)), warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedFitWarning)  # the certificate says it at the end
        model.fit(rows.w, groups=rows.groups, **rows.rows.arguments, **selection)
    return round(time.perf_counter() - start, 1)


def _has_bars(model: Any) -> bool:
    """Whether a fit shows its progress itself; one of a single mixture does not."""
    given = model.get_params()
    single = given.get("n_average") == 1 and np.size(given["n_components"]) == 1
    single = single and given["n_components"] != "auto"
    return "verbose" in given and not single


def _certificate(model: Any, rows: Measurements, selection: dict[str, Any]) -> Certificate:
    """Return the certificate that the fit has made, or make one."""
    own = getattr(model, "certificate_", None)
    if own is not None:
        return own
    return model.certify(rows.w, groups=rows.groups, **rows.rows.arguments, **selection)


def _about(model: Any, table: Path, columns: Columns, rows: Measurements) -> dict[str, Any]:
    """Say what a model is kept with, as JSON can hold it."""
    settings = _settings(model)
    return {
        "fitted": model.describe(),
        "known": model.known_,
        "settings": settings,
        "special_settings": special_settings(model, settings),
        "table": _figures(table, columns, rows),
    }


def _settings(model: Any) -> dict[str, str]:
    parameters = model.get_params(deep=False).items()
    return {name: repr(value) for name, value in parameters if name not in ABOUT_ONE_RUN}


def _figures(table: Path, columns: Columns, rows: Measurements) -> dict[str, Any]:
    """Describe the rows in numbers that JSON can hold."""
    sd, seen = rows.rows.errors, ~np.isnan(rows.w)
    return {
        "path": "standard input" if table == STANDARD else str(table.resolve()),
        "rows": len(rows),
        "used": len(rows.w),
        "columns": [
            {
                "name": name,
                "measured": int(seen[:, d].sum()),
                "mean": float(rows.w[seen[:, d], d].mean()),
                "sd": float(rows.w[seen[:, d], d].std()),
                "median_error": float(np.median(sd[seen[:, d], d])),
            }
            for d, name in enumerate(columns.names)
        ],
    }


@contextmanager
def _checkpoint(output: Path, method: str, resume: bool) -> Iterator[Path | None]:
    """Give where a fit is kept while it runs: in a folder that one process at a time has.

    What is there goes, unless it is to be resumed; all goes when the model is written.
    """
    folder = output.parent / f".{output.name}.checkpoint"
    if folder.is_file():  # of an older version
        folder.unlink()
    with locked_folder(folder) as ours:
        kept = folder / "fit" if ours else None
        if not METHODS[method].resumable:
            if resume:
                words = "are short and are not kept half done: starting anew."
                note(f"Fits of --method {method} {words}")
        elif kept is None:
            note(f"Another fit to {output} is running: this one keeps no checkpoint.")
        elif resume and not kept.exists():
            note(f"Nothing to resume for {output}: starting anew.")
        if ours and not resume:
            _empty(folder)
        try:
            yield kept
        except BaseException:
            if ours:
                with suppress(OSError):
                    folder.rmdir()  # if nothing was kept
            raise
        if ours:
            shutil.rmtree(folder, ignore_errors=True)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
