"""``deconflow fit``: a table in, a model out; ``compare``: which method foretells unseen rows."""

import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deconflow import ranks
from deconflow.checks import refuse_if
from deconflow.files import clear_write_errors, locked_folder
from deconflow.program.messages import TYPED, note, now, one_line_errors, say, speaks
from deconflow.program.methods import (
    METHODS,
    check_known,
    make_estimator,
    parameters_of,
    settings_of,
)
from deconflow.program.options import (
    ABOUT_ROWS,
    ABOUT_SELECTION,
    Namespace,
    Quiet,
    Seed,
    as_options,
    with_options,
)
from deconflow.program.reading import (
    find_rows,
    is_too_large,
    read_all,
    refuse_unseen,
    selection_of,
)
from deconflow.progress import Progress
from deconflow.saving import ABOUT_ONE_RUN, TABLE, check_free, to_json
from deconflow.tables import STANDARD

METHOD_HELP = "; ".join(f"{name}: {method.words}" for name, method in METHODS.items()) + "."


@with_options(*ABOUT_ROWS, *ABOUT_SELECTION)
def fit(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")],
    method: Annotated[
        str, typer.Option("--method", "-m", help=METHOD_HELP, autocompletion=lambda: list(METHODS))
    ] = "auto",
    options: Namespace,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of the method, such as epochs=50."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first result of auto: no flows, and fewer fits.")
    ] = False,
    seed: Seed = 0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted fit to the same output."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Fit the density of the true values to a table with errors.

    Example: deconflow fit stars.csv -c x,y -o model --method xd
    """
    resumable = method in METHODS and METHODS[method].resumable
    with (
        one_line_errors(" Continue with --resume." if resumable else " Start it again."),
        ranks.started(),
        Progress(shown=speaks() and not quiet, tell=note) as progress,
    ):
        parameters = settings_of(method, settings, quick=quick)
        check_known(options, method)
        selection = selection_of(options)
        _check_writable(output)
        progress.begin(f"reading {options.table}")
        reader = find_rows(options)
        stream: Any = None
        if ranks.world() > 1 or is_too_large(reader):
            from deconflow.program.beyond_memory import CountedStream

            stream = CountedStream.of(reader, method, selected=bool(selection))
        else:
            measured, found = read_all(reader)
            refuse_unseen(measured, options, reader.columns.names)
            rows = replace(measured.rows, selection=selection)
        from deconflow.core import shown_by
        from deconflow.estimators import UntrustedFitWarning

        known = parameters_of(options, reader.columns.names)
        model = make_estimator(method, parameters, known, random_state=seed)
        with _checkpoint(output, method, resume, resumable) as checkpoint:
            if resumable:
                model.set_params(checkpoint=checkpoint)
            progress.begin("fitting")
            start = time.perf_counter()
            with (
                shown_by(progress),  # doubts are left to the certificate
                warnings.catch_warnings(action="ignore", category=UntrustedFitWarning),
            ):
                model.fit(stream) if stream else rows.ask(model.fit)
            seconds = round(time.perf_counter() - start, 1)
            if not ranks.is_first():
                return
            if stream:
                rows, found = stream.seen.sample, stream.found
            progress.begin("checking the fit")
            certificate = getattr(model, "certificate_", None)
            if certificate is None:
                with ranks.alone():
                    certificate = stream.certify(model) if stream else rows.ask(model.certify)
            columns = replace(reader.columns, replicates=None)  # which only the fit needs
            path = "standard input" if options.table == STANDARD else str(options.table.resolve())
            about = {
                "fitted": model.describe(), "known": model.known_,
                "special_settings": special_settings(model), "method": method,
                "seconds": seconds, "date": now(), "command": TYPED.get(),
                "certificate": to_json(certificate, {}, "certificate"),
                "columns": to_json(columns, {}, "columns"),
                "table": {"path": path, "weights": options.weights} | found.figures(columns, rows),
            }  # fmt: skip
            model.save(output, extra_files={TABLE: json.dumps(about, indent=1) + "\n"})
        say(model.describe(), *model.known_, *as_options(certificate.in_words()).splitlines())
        say(f"Model written to {output} after {seconds:.1f} s.")


def _check_writable(path: Path) -> None:
    """Raise, before any work, if a model cannot be written there."""
    refuse_if(
        path == STANDARD, "Expected a folder for the model, which is no table; got '-'. Name one."
    )
    check_free(path)
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def special_settings(estimator: Any) -> dict[str, str]:
    """Return the parameters of a fit that differ from the estimator's defaults."""
    plain = type(estimator)().get_params()
    return {
        name: repr(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in ABOUT_ONE_RUN and repr(value) != repr(plain.get(name))
    }


@contextmanager
def _checkpoint(output: Path, method: str, resume: bool, resumable: bool) -> Iterator[Path | None]:
    """Give a file for a fit that is not finished, in a folder for one process at a time.

    A file that is there is deleted, unless it is to be resumed; the folder is deleted when the
    model is written.
    """
    if not ranks.is_first():  # the first process keeps it for all
        yield None
        return
    folder = output.parent / f".{output.name}.checkpoint"
    with locked_folder(folder) as ours:
        if not resumable and resume:
            note(f"Fits of --method {method} are not kept half done: starting anew.")
        elif resumable and not ours:
            note(f"Another fit to {output} is running: this one keeps no checkpoint.")
        elif resumable and resume and not (folder / "fit").exists():
            note(f"Nothing to resume for {output}: starting anew.")
        for path in folder.iterdir() if ours and not resume else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            yield folder / "fit" if ours else None
        except BaseException:
            with suppress(OSError):
                if ours:
                    folder.rmdir()  # if nothing was kept
            raise
        if ours:
            shutil.rmtree(folder, ignore_errors=True)
