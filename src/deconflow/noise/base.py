"""The one abstraction for noise: the law of ``n`` in ``w = v + n``, row by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Transform

Rows = slice | Tensor | np.ndarray | list[int]


class Noise(ABC):
    """The law of the noise ``n`` of each row.

    A noise either has one law for each of ``n_rows`` rows, or one law for all rows
    (``shared``); the latter fits any number of rows until :meth:`bind` fixes it.

    Attributes
    ----------
    dim : int
        Number of measured values a row.
    n_rows : int or None
        Number of rows; None for a shared law that no observations have bound yet.
    shared : bool
        Whether all rows have the same law.
    observed : Tensor or None
        Boolean ``(N, dim)``, if the law is restricted to values that were observed.
    """

    dim: int
    n_rows: int | None
    shared: bool
    observed: Tensor | None

    @abstractmethod
    def log_prob(self, residual: Tensor) -> Tensor:
        """Log density of residuals ``(..., N, dim)``, as ``(..., N)``."""

    @abstractmethod
    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, dim)``."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Mean of each row's noise, ``(N, dim)``, or ``(1, dim)`` if shared."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Finite covariance of each row, ``(N, dim, dim)``, or ``(1, dim, dim)`` if shared.

        A law without a finite variance answers with the squared half width of its central
        68 %, so that what is built on it (scales, proposals, features) stays finite.
        """

    @abstractmethod
    def variance(self) -> Tensor:
        """Diagonal of :meth:`covariance`, ``(N, dim)``, or ``(1, dim)`` if shared."""

    @abstractmethod
    def cholesky(self) -> Tensor:
        """Cholesky factors of :meth:`covariance`, ``(N, dim, dim)``, or ``(1, dim, dim)``."""

    @abstractmethod
    def features(self) -> Tensor:
        """What a network should know of each row's law, ``(N, F)``, or ``(1, F)`` if shared."""

    @abstractmethod
    def restrict(self, observed: Tensor) -> Noise:
        """Return the law of the observed values only; others are ignored by :meth:`log_prob`.

        ``observed`` is a boolean ``(N, dim)``.
        """

    @abstractmethod
    def divide(self, scale: Tensor) -> Self:
        """Return the law of ``n / scale`` for a positive ``scale`` of shape ``(dim,)``."""

    @abstractmethod
    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""

    @abstractmethod
    def _take(self, rows: Rows, n_rows: int) -> Self:
        """Return the law of some rows."""

    def support_map(self) -> tuple[Transform, Tensor] | None:
        """Return how to reach a support that is not the whole space, else None.

        The answer is a map ``T`` from the real line and a unit ``s``: ``n = T(z) / s``.
        """
        return None

    def floor(self, sd: float) -> Noise:
        """Return the law of the noise plus, if it may be singular, Gaussian noise of ``sd``."""
        return self

    def bind(self, n_rows: int) -> Self:
        """Say how many rows there are; an error if this noise has another number."""
        if self.shared and self.n_rows in (None, n_rows):
            return self._take(slice(None), n_rows)
        if self.n_rows != n_rows:
            raise ValueError(
                f"Expected noise for {n_rows} rows, as many as w has; got {self.n_rows} rows."
            )
        return self

    def __getitem__(self, rows: Any) -> Self:
        if isinstance(rows, tuple):  # array[rows, ...], the form scikit-learn's splitters use
            rows = rows[0]
        rows = as_index(rows, self.n_rows)
        return self._take(rows, count_rows(rows, self.n_rows))

    def __len__(self) -> int:
        if self.n_rows is None:
            raise TypeError("This noise has one law for any number of rows, and no length.")
        return self.n_rows

    @property
    def shape(self) -> tuple[int, int]:
        """Shape ``(N, dim)``, as an array of standard deviations would have; one row if unbound."""
        return self.n_rows or 1, self.dim

    def __repr__(self) -> str:
        rows = "any number of" if self.n_rows is None else self.n_rows
        return f"{type(self).__name__}(rows={rows}, dim={self.dim}, shared={self.shared})"


def as_index(rows: Any, n_rows: int | None) -> slice | Tensor:
    """Turn an index of rows into a slice or a tensor that torch takes."""
    if isinstance(rows, slice) and (rows.step or 1) > 0:
        return rows
    if isinstance(rows, slice):
        rows = list(range(*rows.indices(n_rows or 0)))
    if isinstance(rows, int | np.integer):
        rows = [rows]
    if not isinstance(rows, Tensor):
        rows = np.asarray(rows)
        rows = torch.from_numpy(np.ascontiguousarray(rows if rows.size else rows.astype(np.int64)))
    return rows


def count_rows(rows: slice | Tensor, n_rows: int | None) -> int:
    """Count how many rows an index takes."""
    if isinstance(rows, slice):
        if n_rows is None:
            raise TypeError(
                "Expected noise that is bound to rows; got one law for any number of rows."
            )
        return len(range(*rows.indices(n_rows)))
    return int(rows.sum()) if rows.dtype == torch.bool else rows.numel()


def flatten_cholesky(factor: Tensor) -> Tensor:
    """Flatten lower-triangular ``(N, D, D)`` into ``(N, D (D + 1) / 2)``."""
    i, j = torch.tril_indices(factor.shape[-1], factor.shape[-1])
    return factor[..., i, j]
