"""The one abstraction for what is trained: a number for every row, to be maximised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, Self

import torch
from torch import Tensor, nn


class RowData(Protocol):
    """What the fit loop asks of data: rows, by index, with optional weights."""

    @property
    def weights(self) -> Tensor | None:
        """Row weights with mean one, or None."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows) -> Self: ...  # noqa: ANN001

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""


class Objective(nn.Module, ABC):
    """A per-row objective; its parameters are those of the models it holds.

    Attributes
    ----------
    draws : int
        Points of the latent space per row; the loop sizes its chunks by it.
    """

    draws: int = 1

    @abstractmethod
    def forward(self, data) -> Tensor:  # noqa: ANN001
        """Return ``(N,)`` numbers whose weighted mean is to be maximised."""
