"""Progress of passes over rows beyond memory."""

from deconflow import ranks
from deconflow.progress import Progress

PASSES = "passing over all rows"


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
