"""Fits to rows that are too many for memory: a sample of them, and passes over all of them."""

from __future__ import annotations

from typing import Any

from deconflow import ranks
from deconflow.estimators.observing import ObservesRows
from deconflow.frames import Units
from deconflow.observations import Observations
from deconflow.progress import Progress
from deconflow.streams import Overview, RowStream

SAMPLE_VALUES = 3_000_000
"""Measured values of the sample that is in memory while all rows are passed over."""
NEEDS_MEMORY = (
    "Expected no bounds, atoms or background with rows beyond memory; got {}. Leave them out, or "
    "fit a sample of the rows in memory."
)
COUNTING, PASSES = "counting and sampling rows", "passing over all rows"


class Passing:
    """Progress of passes over rows: each is a stage, whose steps are rows.

    Parameters
    ----------
    progress
        Counts the rows.
    n_rows
        How many rows all processes have together.
    """

    def __init__(self, progress: Progress, n_rows: int) -> None:
        self.progress, self.number = progress, 0
        self.n_rows = -(-n_rows // ranks.world())
        self.next()

    def __call__(self, n: int) -> None:
        """Count the rows of a chunk."""
        self.progress.advance(n)

    def next(self) -> None:
        """Begin the next pass."""
        self.number += 1
        self.progress.begin(f"{PASSES}, pass {self.number}", "rows", self.n_rows)


class FitsStreams(ObservesRows):
    """What an estimator does with a :class:`~deconflow.RowStream`.

    One that can fit such rows says so, and how in ``_fit_stream``.
    """

    _progress: Progress
    _column_names: list[str] | None
    _units: Units | None
    random_state: Any

    _fits_streams = False
    _rows_of_stream: tuple[int, int] | None = None
    """How many rows of a stream have been fitted, and of how many; None for rows in memory."""

    def _fit_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        """Learn from all rows of a stream, of which some are in memory."""
        raise NotImplementedError

    def _observe_stream(
        self, stream: RowStream, noise: Any, others: dict[str, Any]
    ) -> tuple[Observations, RowStream, Overview]:
        """Pass over all rows once, and return some of them, checked as any rows to fit."""
        if not self._fits_streams:
            raise ValueError(
                f"Expected rows in memory with {type(self).__name__}; got a RowStream. Use XDGMM "
                "or Deconvolver, or fit a sample: stream.overview(100_000).sample."
            )
        for name, value in others.items():
            if value is not None:
                raise ValueError(
                    f"Expected no {name} beside a RowStream, whose rows have all that is known of "
                    "them; got some. open_rows takes weights= and errors=."
                )
        for name in ("bounds", "atoms", "background"):
            if getattr(self, name, None) is not None:
                raise ValueError(NEEDS_MEMORY.format(name))
        if noise is not None:
            stream = stream.with_errors(noise)
        if stream.reader.columns.fit_errors:
            raise ValueError(
                "Expected errors that are known for rows beyond memory; got some to learn. Learn "
                "them from a sample, and say what was learned."
            )
        n_sample = max(1, SAMPLE_VALUES // len(stream.names))
        self._progress.begin(COUNTING, "rows", stream.n_rows)
        overview = stream.overview(n_sample, self._stream_seed(), self._progress.advance)
        self._column_names = list(stream.names)
        rows = overview.sample
        self._rows_of_stream = overview.n_rows, overview.n_rows
        sample, *_ = self._observe_to_fit(
            rows.w, rows.noise, None, rows.weights, limits=rows.limits
        )
        if any(stream.units.values()):
            self._units = list(stream.units.values())
        return sample, stream, overview

    def _of_stream_in_words(self) -> list[str]:
        """Say how many rows of a stream were fitted."""
        if self._rows_of_stream is None:
            return []
        some, everything = self._rows_of_stream
        if some == everything:
            return [f"All {everything:,} rows were fitted, in chunks."]
        return [f"A sample of {some:,} of {everything:,} rows was fitted."]

    def _stream_seed(self) -> int:
        """Return a seed for the sample that is the same on all processes."""
        return ranks.from_first(int(self._means()[0].randint(2**30)))
