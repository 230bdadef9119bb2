r"""Nodes of a grid with a hat around each, and Gaussians integrated over these hats.

A density that is linear between nodes is :math:`p(v) = \sum_g p_g \Lambda_g(v)`, so that

.. math:: p(w) = \sum_g p_g \int \Lambda_g(v) \, N(w; v, s^2) \, dv

With :math:`F'' = N(\cdot; 0, s^2)`, which is :math:`F(x) = x \Phi(x / s) + s \phi(x / s)`, the
integral is a second difference of F: right for any s, zero included. Where s is wide, a Gaussian
with the hat's variance added is the same without the loss of digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from deconflow._types import Array

WIDE = 3.0
"""A Gaussian of at least so many distances between nodes hardly sees the form of a hat."""
FARTHEST = 9.0
"""Standard deviations beyond which a Gaussian is zero where differences would lose its digits."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of a grid on a line, rising; the outer two have half a hat."""

    x: Array

    @cached_property
    def gaps(self) -> tuple[Array, Array]:
        """Distances to the next node on the left and on the right; none at the ends."""
        gap = np.diff(self.x)
        return np.r_[0.0, gap], np.r_[gap, 0.0]

    @cached_property
    def mass(self) -> Array:
        """Integral of each hat."""
        left, right = self.gaps
        return 0.5 * (left + right)

    def log_likelihood(self, w: Array, variance: Array) -> Array:
        """Log of the mean over each hat of ``N(w; v, variance)``, ``(n, nodes)``."""
        widest = max(gap.max() for gap in self.gaps)
        wide = variance >= np.square(WIDE * widest)
        answer = np.empty((len(w), len(self.x)))
        answer[wide] = self._smooth(w[wide], variance[wide])
        answer[~wide] = self._exact(w[~wide], np.sqrt(variance[~wide]))
        return answer

    def _smooth(self, w: Array, variance: Array) -> Array:
        left, right = self.gaps
        centre = self.x + (right - left) / 3
        total = variance[:, None] + (left**2 + right**2 + left * right) / 18
        return -0.5 * (np.square(w[:, None] - centre) / total + np.log(2 * np.pi * total))

    def _exact(self, w: Array, sd: Array) -> Array:
        x, s = w[:, None] - self.x, sd[:, None]
        z = x / np.where(s > 0, s, 1.0)
        below = np.where(s > 0, ndtr(z), x >= 0)
        bell = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        mean_below = -np.diff(x * below + s * bell, axis=1) / np.diff(self.x)
        steps = np.concatenate([below[:, :1], mean_below, below[:, -1:]], axis=1)
        inside = np.abs(x) - np.maximum(*self.gaps) <= FARTHEST * s
        with np.errstate(divide="ignore"):  # differences of what is far away are rounding errors
            return np.log(
                np.where(inside, np.clip(-np.diff(steps, axis=1), 0, None), 0) / self.mass
            )
