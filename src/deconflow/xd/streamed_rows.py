"""Rows of a stream, as one fit by EM sees them."""

from __future__ import annotations

from collections.abc import Callable

from deconflow.mixtures import GaussianMixture
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd.em_statistics import EMStatistics
from deconflow.xd.shared_passes import NO_FOLD, FoldedRows


class StreamedRows:
    """All rows of a stream, of all processes; each passes over its own.

    Parameters
    ----------
    stream
        The rows.
    overview
        What a first pass has found.
    units
        The change of units that all chunks are given.
    step
        Called after every chunk, with its number of rows.
    """

    def __init__(
        self,
        stream: RowStream,
        overview: Overview,
        units: Standardiser,
        step: Callable[[int], None] = lambda n: None,
    ) -> None:
        self._rows, self.units = FoldedRows(stream, overview, 1, step), units
        self.n_rows, self.dim = overview.n_rows, len(units.scale)
        self.total_weight = float(overview.n_rows)

    def one_pass(self, mixture: GaussianMixture, threads: int | None) -> EMStatistics:
        """Add up over all rows what EM needs of them."""
        return self._rows.pass_over([(NO_FOLD, mixture)], self.units, threads)[0]
