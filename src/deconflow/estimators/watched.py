"""Fits tell those who wait how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deconflow import ranks
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress


class Watched:
    """What every estimator says of its fit while it runs."""

    _progress: Progress = SILENT
    """Who is told how far a fit is, while it runs."""
    _quicker = ""
    """What to do if a fit takes too long, in words."""

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Show how far the fit is, if that is wanted and nobody else does."""
        wanted = getattr(self, "verbose", False) and ranks.is_first()
        if not wanted or self._progress is not SILENT:
            yield
            return
        with Progress() as self._progress:
            try:
                yield
            finally:
                del self._progress

    def _announce(self, data: Observations) -> None:
        """Tell who waits for the fit what is to come; only if there is someone."""
        if not self._progress.shown:
            return
        with suppress(ValueError, ArithmeticError):  # rows that cannot be fitted: the fit says so
            n, dim = data.w.shape
            what, stages = f"Fitting {n} rows of {dim} column{'s' * (dim > 1)}", self._stages(data)
            if stages:
                self._progress.plan(what, stages, self._quicker)

    def _stages(self, data: Observations) -> dict[str, list[float]]:
        """Return the stages of a fit, with the seconds that each of their steps should take."""
        return {}
