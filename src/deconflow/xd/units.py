r"""Units for the kernel: the spread of what is measured well becomes about one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deconflow.observations import Observations
from deconflow.xd.mixture import Mixture

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Units:
    """Powers of two, so that changing units is exact.

    Attributes
    ----------
    latent : array
        ``(D,)`` units of the truth.
    channel : array
        ``(M,)`` units of the measured values.
    """

    latent: Array
    channel: Array

    def log_volume(self, columns: NDArray[np.int64] | None) -> float:
        """Log density of measured values in these units, less that in the user's."""
        channel = self.channel if columns is None else self.channel[columns]
        return -float(np.log(channel).sum())

    def into(self, mixture: Mixture) -> Mixture:
        """Express a mixture in these units."""
        square = np.outer(self.latent, self.latent)
        return Mixture(mixture.weights, mixture.means / self.latent, mixture.covariances / square)

    def back(self, mixture: Mixture) -> Mixture:
        """Express a mixture in the user's units."""
        square = np.outer(self.latent, self.latent)
        return Mixture(mixture.weights, mixture.means * self.latent, mixture.covariances * square)


def find_units(data: Observations) -> Units:
    """Find units from the spread of the better half of each column's values.

    A few values with gigantic noise, or far outliers, do not change them.
    """
    w = data.w.numpy()
    variance = np.broadcast_to(data.noise.variance().numpy(), w.shape)
    seen = np.ones(w.shape, bool) if data.observed is None else data.observed.numpy()
    channel = _powers(np.array([
        _spread(w[seen[:, m], m], variance[seen[:, m], m]) for m in range(w.shape[1])
    ]))  # fmt: skip
    if data.projection is None:
        return Units(channel, channel)
    slopes = data.projection.numpy() / channel[:, None]
    size = np.sqrt(np.square(slopes).sum((0, 1)) / np.maximum(1, (slopes != 0).sum((0, 1))))
    return Units(_powers(1.0 / np.where(size > 0, size, 1.0)), channel)


def _spread(values: Array, variance: Array) -> float:
    if len(values) == 0:
        return 1.0
    good = values[variance <= np.median(variance)]
    for candidate in (
        np.median(np.abs(good - np.median(good))),
        good.std(),
        values.std(),
        np.sqrt(np.median(variance)),
        np.abs(values).max(),
    ):
        if candidate > 0:
            return float(candidate)
    return 1.0


def _powers(values: Array) -> Array:
    return np.exp2(np.round(np.log2(values)))
