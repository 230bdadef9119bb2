"""Some of the draws that a law was made of, which tell where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

MOST_KEPT = 64
"""So many draws of each row are kept."""


@dataclass(frozen=True)
class KeptDraws:
    """Draws of each row, as ``v - w``, with their weights; rows with fewer have weights of zero.

    Attributes
    ----------
    offsets, weights : Tensor
        ``(N, K, D)`` and ``(N, K)``, in single precision.
    """

    offsets: Tensor
    weights: Tensor

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.offsets[rows], self.weights[rows])
