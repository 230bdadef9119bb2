"""Progress of fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deconflow import ranks
from deconflow.progress import SILENT, Progress


class Watched:
    """Estimator that shows progress while it fits."""

    _progress: Progress = SILENT
    """Counts the steps of a fit, while it runs."""

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Show progress with ``verbose=True``, unless something else shows it already."""
        wanted = getattr(self, "verbose", False) and ranks.is_first()
        if not wanted or self._progress is not SILENT:
            yield
            return
        with Progress() as self._progress:
            try:
                yield
            finally:
                del self._progress
