"""``deconflow fit``: a table in, a model out."""

import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deconflow import ranks
from deconflow.certificate import Certificate
from deconflow.files import locked_folder
from deconflow.program.known import check_known, parameters_of, selection_of, with_selection
from deconflow.program.messages import note, one_line_errors, say, speaks, watched
from deconflow.program.methods import METHODS, make_estimator, settings_of
from deconflow.program.model_folder import check_writable, special_settings
from deconflow.program.options import (
    Quiet,
    RowOptions,
    Seed,
    SelectionOptions,
    as_options,
    with_option_groups,
)
from deconflow.program.provenance import now, typed_command
from deconflow.program.reading import find_rows, read_all, to_keep
from deconflow.progress import Progress
from deconflow.saving import TABLE, to_json
from deconflow.tables import STANDARD, Rows

METHOD_HELP = "; ".join(f"{name}: {method.words}" for name, method in METHODS.items()) + "."


@with_option_groups
def fit(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")],
    method: Annotated[
        str, typer.Option("--method", "-m", help=METHOD_HELP, autocompletion=lambda: list(METHODS))
    ] = "auto",
    options: RowOptions,
    selected: SelectionOptions,
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
        selection = selection_of(selected)
        check_writable(output)
        progress.begin(f"reading {options.table}")
        reader = find_rows(options)
        from deconflow.program.beyond_memory import CountedStream, is_beyond_memory

        stream = rows = None
        if is_beyond_memory(reader):
            stream = CountedStream.of(reader, method, selected=bool(selection))
        else:
            _, measured, found = read_all(reader)
            rows = with_selection(measured, selected, selection, reader.columns.names)
        columns = to_keep(reader.columns)
        known = parameters_of(options, columns.names)
        model = make_estimator(method, parameters, known, random_state=seed)
        with _checkpoint(output, method, resume, resumable) as checkpoint:
            if resumable:
                model.set_params(checkpoint=checkpoint)
            start = time.perf_counter()
            with watched(progress):
                _fit(model, stream or rows)
            seconds = round(time.perf_counter() - start, 1)
            if not ranks.is_first():
                return
            if stream is not None:
                columns, rows, found = to_keep(reader.columns), stream.seen.sample, stream.found
            assert rows is not None
            progress.begin("checking the fit")
            certificate = _certificate(model, rows, found.sums["used"] if stream else None)
            path = "standard input" if options.table == STANDARD else str(options.table.resolve())
            about = {
                "fitted": model.describe(), "known": model.known_,
                "special_settings": special_settings(model), "method": method,
                "seconds": seconds, "date": now(), "command": typed_command(),
                "certificate": to_json(certificate, {}, "certificate"),
                "columns": to_json(columns, {}, "columns"),
                "table": {"path": path, "weights": options.weights} | found.figures(columns, rows),
            }  # fmt: skip
            model.save(output, extra_files={TABLE: json.dumps(about, indent=1) + "\n"})
        words = as_options(certificate.in_words())
        say(model.describe(), *model.known_, *words.splitlines())
        say(f"Model written to {output} after {seconds:.1f} s.")


def _fit(model: Any, rows: Any) -> None:
    """Fit rows, in memory or in passes; doubts are left to the certificate."""
    from deconflow.estimators import UntrustedFitWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedFitWarning)
        if isinstance(rows, Rows):
            rows.ask(model.fit)
        else:
            model.fit(rows)


def _certificate(model: Any, rows: Rows, n_rows: int | None) -> Certificate:
    """Return the fit's own certificate, or check it by rows; of ``n_rows`` these are a sample."""
    own = getattr(model, "certificate_", None)
    if own is not None:
        return own
    with ranks.alone():
        if n_rows is None:
            return rows.ask(model.certify)
        from deconflow.program.beyond_memory import CHECKED_ROWS

        return replace(rows[:CHECKED_ROWS].ask(model.certify), fitted_of=int(n_rows))


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
        kept = folder / "fit" if ours else None
        if not resumable and resume:
            note(f"Fits of --method {method} are not kept half done: starting anew.")
        elif resumable and kept is None:
            note(f"Another fit to {output} is running: this one keeps no checkpoint.")
        elif resumable and resume and not (folder / "fit").exists():
            note(f"Nothing to resume for {output}: starting anew.")
        if ours and not resume:
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            yield kept
        except BaseException:
            if ours:
                with suppress(OSError):
                    folder.rmdir()  # if nothing was kept
            raise
        if ours:
            shutil.rmtree(folder, ignore_errors=True)
