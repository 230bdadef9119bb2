"""Progress of the program's fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deconflow.program.messages import note
from deconflow.progress import Progress


def waiting(*, quiet: bool) -> Progress:
    """Return the progress of a command."""
    return Progress(shown=not quiet, tell=note)


@contextmanager
def watched(model: Any, progress: Progress) -> Iterator[None]:
    """Show the progress of a fit."""
    progress.begin("fitting")
    model._progress = progress
    try:
        yield
    finally:
        del model._progress
