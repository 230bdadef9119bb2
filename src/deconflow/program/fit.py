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
from deconflow.program.how import HowSaid
from deconflow.program.known import Known
from deconflow.program.messages import as_options, note, one_line_errors, say
from deconflow.program.methods import METHODS, make_estimator, settings_of
from deconflow.program.model_folder import check_writable, save, special_settings
from deconflow.program.option_groups import with_option_groups
from deconflow.program.options import Quiet, Seed, Settings
from deconflow.program.provenance import of_this_run
from deconflow.program.reading import TableSaid, read_table
from deconflow.program.selected import Selected
from deconflow.program.waiting import waiting, watched
from deconflow.progress import Progress
from deconflow.tables import STANDARD, Columns, Measurements

METHOD_HELP = "; ".join(f"{name}: {method.words}" for name, method in METHODS.items()) + "."
ModelOutput = Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")]
MethodName = Annotated[
    str, typer.Option("--method", "-m", help=METHOD_HELP, autocompletion=lambda: list(METHODS))
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A first answer of auto: no flows, and fewer fits.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a fit to the same output that was interrupted.")
]


@with_option_groups
def fit(
    *,
    output: ModelOutput,
    method: MethodName = "auto",
    said: TableSaid,
    how: HowSaid,
    known: Known,
    seen: Selected,
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
    ending = " Go on with --resume." if resumable else " Start it again."
    with one_line_errors(ending), waiting(quiet=quiet) as progress:
        parameters = settings_of(method, settings, quick=quick)
        known.check_method(method)
        seen.check()
        check_writable(output)
        progress.begin(f"reading {said.table}")
        found, rows = read_table(said, how, known)
        selection = seen.arguments(found.names, rows)
        with _checkpoint(output, method, resume) as checkpoint:
            model = make_estimator(
                method, len(rows.w), parameters, known.parameters(found.names),
                random_state=seed, checkpoint=checkpoint,
            )  # fmt: skip
            model.name_columns(found.names)
            seconds, certificate = _fit(model, rows, selection, progress)
            about = _about(model, said, found, rows) | {"method": method, "seconds": seconds}
            about |= of_this_run()
            save(model, output, found, about | {"certificate": certificate.as_dict()})
        words = as_options(certificate.in_words())
        say(model.describe(), *model.known_, *words.splitlines())
        say(f"Model written to {output} after {seconds:.1f} s.")


def _fit(
    model: Any, rows: Measurements, selection: dict[str, Any], progress: Progress
) -> tuple[float, Certificate]:
    """Fit and check; return the seconds of the fit, and its certificate."""
    from deconflow.estimators import UntrustedFitWarning

    start = time.perf_counter()
    with watched(model, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedFitWarning)  # the certificate says it at the end
        model.fit(rows.w, **rows.to_fit, **selection)
        seconds = round(time.perf_counter() - start, 1)
        own = getattr(model, "certificate_", None)
        if own is None:
            progress.begin("checking the fit")
            own = model.certify(rows.w, **rows.to_fit, **selection)
    return seconds, own


def _about(model: Any, said: TableSaid, columns: Columns, rows: Measurements) -> dict[str, Any]:
    """Say what a model is kept with, as JSON can hold it."""
    settings = _settings(model)
    return {
        "fitted": model.describe(),
        "known": model.known_,
        "settings": settings,
        "special_settings": special_settings(model, settings),
        "table": _figures(said, columns, rows),
    }


def _settings(model: Any) -> dict[str, str]:
    parameters = model.get_params(deep=False).items()
    return {name: repr(value) for name, value in parameters if name not in ABOUT_ONE_RUN}


def _figures(said: TableSaid, columns: Columns, rows: Measurements) -> dict[str, Any]:
    """Describe the rows in numbers that JSON can hold."""
    sd, seen = rows.rows.errors, ~np.isnan(rows.w)
    return {
        "path": "standard input" if said.table == STANDARD else str(said.table.resolve()),
        **({} if said.weights is None else {"weights": said.weights}),
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
