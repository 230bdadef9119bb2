"""Rows of a stream, as EM sees them: laid out chunk by chunk at every pass, and added up."""

from __future__ import annotations

from collections.abc import Callable

from deconflow import ranks
from deconflow.mixtures import GaussianMixture
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd.em_statistics import EMStatistics, one_pass
from deconflow.xd.layout import lay_out


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
        self.stream, self.units, self.step = stream, units, step
        self.n_rows, self.dim = overview.n_rows, len(units.scale)
        self.total_weight = float(overview.n_rows)
        self.factor = overview.n_rows / overview.weight
        """Brings the weights of the table to a mean of one."""

    def one_pass(self, mixture: GaussianMixture, threads: int | None) -> EMStatistics:
        """Add up over all rows what EM needs of them."""
        found = ranks.together(lambda: self._own_pass(mixture, threads))
        n, *sums = ranks.total(*found.parts)
        everything = EMStatistics(int(n), float(sums[0]), float(sums[1]), *sums[2:])
        return everything.times(self.factor)

    def _own_pass(self, mixture: GaussianMixture, threads: int | None) -> EMStatistics:
        """Add up over the rows of this process."""
        found = EMStatistics.none(mixture)
        for data in self.stream.chunks():
            with self.stream.named_errors():
                found = found + one_pass(mixture, lay_out(data, self.units), threads)
            self.step(len(data))
        return found
