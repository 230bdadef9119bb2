"""``deconflow fit``: a table in, a model out."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deconflow import ranks
from deconflow.certificate import Certificate
from deconflow.files import locked_folder
from deconflow.program.how import HowSaid
from deconflow.program.known import Known
from deconflow.program.messages import (
    as_options,
    note,
    one_line_errors,
    say,
    speaks,
    watched,
)
from deconflow.program.methods import METHODS, make_estimator, settings_of
from deconflow.program.model_folder import check_writable, special_settings
from deconflow.program.option_groups import with_option_groups
from deconflow.program.options import Quiet, Seed
from deconflow.program.provenance import now, typed_command
from deconflow.program.reading import TableSaid, find_rows, read_all
from deconflow.program.selected import Selected
from deconflow.progress import Progress
from deconflow.saving import TABLE
from deconflow.tables import STANDARD, RowReader

if TYPE_CHECKING:
    from deconflow.program.beyond_memory import InPasses

METHOD_HELP = "; ".join(f"{name}: {method.words}" for name, method in METHODS.items()) + "."


@with_option_groups
def fit(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")],
    method: Annotated[
        str, typer.Option("--method", "-m", help=METHOD_HELP, autocompletion=lambda: list(METHODS))
    ] = "auto",
    said: TableSaid,
    how: HowSaid,
    known: Known,
    seen: Selected,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of the method, such as epochs=50."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first answer of auto: no flows, and fewer fits.")
    ] = False,
    seed: Seed = 0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a fit to the same output that was interrupted."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Fit the density of the truth to a table with errors.

    Example: deconflow fit stars.csv -c x,y -o model --method xd
    """
    resumable = method in METHODS and METHODS[method].resumable
    with (
        one_line_errors(_ending(resumable)),
        ranks.started(),
        Progress(shown=speaks() and not quiet, tell=note) as progress,
    ):
        parameters = settings_of(method, settings, quick=quick)
        known.check_method(method)
        seen.check()
        check_writable(output)
        progress.begin(f"reading {said.table}")
        reader = find_rows(said, how, known)
        from deconflow.program.beyond_memory import InPasses, is_beyond_memory

        rows: InMemory | InPasses = (
            InPasses(reader, method, seen) if is_beyond_memory(reader) else InMemory(reader, seen)
        )
        model = make_estimator(
            method, parameters, known.parameters(rows.columns.names), random_state=seed
        )  # fmt: skip
        with (
            one_line_errors(_ending(resumable)),
            _checkpoint(output, method, resume, resumable) as checkpoint,
        ):
            if resumable:
                model.set_params(checkpoint=checkpoint)
            model.name_columns(rows.columns.names)
            seconds = _fit(model, rows, progress)
            if not ranks.is_first():
                return
            certificate = _certificate(model, rows, progress)
            about = _about(model, said, rows) | {
                "method": method, "seconds": seconds, "date": now(), "command": typed_command(),
                "certificate": certificate.as_dict(), "columns": rows.columns.as_dict(),
            }  # fmt: skip
            model.save(output, extra_files={TABLE: json.dumps(about, indent=1) + "\n"})
        words = as_options(certificate.in_words())
        say(model.describe(), *model.known_, *words.splitlines())
        say(f"Model written to {output} after {seconds:.1f} s.")


def _ending(resumable: bool) -> str:
    return " Go on with --resume." if resumable else " Start it again."


class InMemory:
    """Rows that are all in memory; `InPasses` has the same methods for rows that are not."""

    def __init__(self, reader: RowReader, seen: Selected) -> None:
        self.columns, self.rows, self.found = read_all(reader)
        self._more = self.rows.to_fit | seen.arguments(self.columns.names, self.rows)

    def fit(self, model: Any) -> None:
        """Fit a model to all rows."""
        model.fit(self.rows.w, **self._more)

    def certify(self, model: Any) -> Certificate:
        """Check a fitted model by all rows."""
        return model.certify(self.rows.w, **self._more)


def _fit(model: Any, rows: InMemory | InPasses, progress: Progress) -> float:
    """Fit, and return the seconds it took."""
    from deconflow.estimators import UntrustedFitWarning

    start = time.perf_counter()
    with watched(model, progress), warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedFitWarning)  # the certificate says it at the end
        rows.fit(model)
        return round(time.perf_counter() - start, 1)


def _certificate(model: Any, rows: InMemory | InPasses, progress: Progress) -> Certificate:
    """Return the fit's own certificate, or check it."""
    own = getattr(model, "certificate_", None)
    if own is not None:
        return own
    progress.begin("checking the fit")
    with ranks.alone():
        return rows.certify(model)


def _about(model: Any, said: TableSaid, rows: InMemory | InPasses) -> dict[str, Any]:
    """Say what a model is kept with, as JSON can hold it."""
    path = "standard input" if said.table == STANDARD else str(said.table.resolve())
    return {
        "fitted": model.describe(),
        "known": model.known_,
        "special_settings": special_settings(model),
        "table": {"path": path, "weights": said.weights, **rows.found.figures(rows.columns)},
    }


@contextmanager
def _checkpoint(output: Path, method: str, resume: bool, resumable: bool) -> Iterator[Path | None]:
    """Give where a fit is kept while it runs: in a folder that one process at a time has.

    What is there goes, unless it is to be resumed; all goes when the model is written.
    """
    if not ranks.is_first():  # the first process keeps it for all
        yield None
        return
    folder = output.parent / f".{output.name}.checkpoint"
    with locked_folder(folder) as ours:
        kept = folder / "fit" if ours else None
        if not resumable:
            if resume:
                note(f"Fits of --method {method} are not kept half done: starting anew.")
        elif kept is None:
            note(f"Another fit to {output} is running: this one keeps no checkpoint.")
        elif resume and not kept.exists():
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
