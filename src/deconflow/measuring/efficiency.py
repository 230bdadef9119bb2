"""The chance to be seen, on a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.files import as_path


@dataclass(frozen=True)
class Efficiency:
    """The chance to be seen in the cells of a grid, zero outside; pass it as ``selection``.

    Parameters
    ----------
    edges
        For each column, the edges of its cells, rising.
    values
        The chance in each cell, between 0 and 1: one axis for each column, each of one cell less
        than it has edges.

    Examples
    --------
    >>> seen = Efficiency([[0.0, 1.0, 2.0]], [0.1, 0.9])
    >>> seen([[0.5], [1.5], [3.0]])
    array([0.1, 0.9, 0. ])
    """

    edges: Sequence[Any]
    values: ArrayLike

    def __post_init__(self) -> None:
        edges = tuple(as_floats(each, "edges") for each in self.edges)
        values = as_floats(self.values, "values")
        for d, each in enumerate(edges):
            if each.ndim != 1 or len(each) < 2 or not (np.diff(each) > 0).all():
                raise ValueError(f"Expected rising edges of column {d}; got {each!r}.")
        shape = tuple(len(each) - 1 for each in edges)
        if values.shape != shape:
            raise ValueError(
                f"Expected values of shape {shape}, one for each cell between the edges; "
                f"got {values.shape}."
            )
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("Expected values between 0 and 1, as chances are; got others.")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "values", values)

    @classmethod
    def from_npz(cls, path: str | Path) -> Self:
        """Read what ``numpy.savez(path, values=..., edges_0=..., edges_1=...)`` wrote."""
        path = as_path(path, "efficiency")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
            raise ValueError(
                f"Expected a grid of chances in {path}, made by numpy.savez; got: {error}"
            ) from error
        wanted = [f"edges_{d}" for d in range(len(arrays) - 1)]
        if arrays.keys() != {"values", *wanted}:
            raise ValueError(
                f"Expected values, edges_0, edges_1, ... in {path}; "
                f"got {', '.join(arrays) or 'nothing'}."
            )
        return cls([arrays[name] for name in wanted], arrays["values"])

    def __call__(self, w: ArrayLike) -> Array:
        """Return the chance ``(N,)`` at each point ``(N, D)``."""
        points = np.asarray(w, np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.edges):
            raise ValueError(
                f"Expected points of {len(self.edges)} columns, as the grid has; "
                f"got shape {points.shape}."
            )
        cells, inside = [], np.ones(len(points), bool)
        for column, edges in zip(points.T, self.edges, strict=True):
            cell = np.searchsorted(edges, column, side="right") - 1
            cell[column == edges[-1]] = len(edges) - 2
            inside &= (cell >= 0) & (cell < len(edges) - 1)
            cells.append(np.clip(cell, 0, len(edges) - 2))
        return np.where(inside, np.asarray(self.values)[tuple(cells)], 0.0)
