"""What estimators answer with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


@dataclass(frozen=True, repr=False)
class PosteriorSamples:
    """The posterior of each row's true value.

    Attributes
    ----------
    samples : array
        ``(N, S, D)`` draws.
    mean : array
        ``(N, D)``.
    covariance : array
        ``(N, D, D)``.
    effective_sample_size : array
        ``(N,)``: how many exact draws the weighted proposals of a row are worth. Below about 10
        the answer for that row is rough: ask for more ``n_proposals``.
    """

    samples: Array
    mean: Array
    covariance: Array
    effective_sample_size: Array

    @property
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        rows, draws, dim = self.samples.shape
        return f"PosteriorSamples({rows} rows, {draws} draws each, {dim} dimensions)"
