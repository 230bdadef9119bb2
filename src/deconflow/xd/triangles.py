"""Where the entries of a triangle are: asked for in every step of EM, worked out once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]


@lru_cache(maxsize=100)
def lower(dim: int) -> tuple[Indices, Indices]:
    """Rows and columns of the lower triangle, the diagonal included."""
    return np.tril_indices(dim)


@lru_cache(maxsize=100)
def strictly_lower(dim: int) -> tuple[Indices, Indices]:
    """Rows and columns below the diagonal."""
    return np.tril_indices(dim, -1)
